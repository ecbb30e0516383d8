//! The documents of an OCI image layout, as they are written and read: index, manifest, configuration.

use std::collections::BTreeMap;

use gpux_core::BoundedJsonTree;
use gpux_core::catch_panic::shorten;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::bundle_fault::BundleFault;
use crate::digest::{FileDigest, sha256};
use crate::file_name;
use crate::pipeline::{FileRole, StoredFile, StoredPipeline, TITLE_KEY, VERSION_KEY};

/// The most bytes of an index, of a manifest, and of a configuration that are read.
pub(crate) const MAX_INDEX: u64 = 4 << 20;
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;
pub(crate) const MAX_CONFIG: u64 = 1 << 20;
/// The most files of a pipeline.
pub(crate) const MAX_FILES: usize = 4096;
/// Files beyond which some registries take no manifest.
pub const MAX_PORTABLE_FILES: usize = 400;

/// Levels and memory of a document's tree.
const MAX_LEVELS: usize = 32;
const MAX_TREE: usize = 24 << 20;

pub(crate) const LAYOUT_FILE: &str = "oci-layout";
pub(crate) const LAYOUT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
pub(crate) const INDEX_FILE: &str = "index.json";
pub(crate) const BLOBS: &str = "blobs/sha256";
/// The file in a bundle that describes the pipeline.
pub const PIPELINE_FILE: &str = "gpux.yml";

pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const ARTIFACT_TYPE: &str = "application/vnd.cncf.model.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.cncf.model.config.v1+json";
/// What a media type of a file of a model begins with, and what one of a file as it is ends with.
const FILE_TYPE: [&str; 2] = ["application/vnd.cncf.model.", ".v1.raw"];

pub(crate) const NAME_KEY: &str = "org.opencontainers.image.ref.name";
const LICENSES_KEY: &str = "org.opencontainers.image.licenses";
const DESCRIPTION_KEY: &str = "org.opencontainers.image.description";
const PATH_KEY: &str = "org.cncf.model.filepath";
const BUNDLE_KEY: &str = "dev.gpux.bundle";
const CONTRACT_KEY: &str = "dev.gpux.contract";
const REQUIRES_KEY: &str = "dev.gpux.requires";

/// The format of bundles that this version reads and writes.
const BUNDLE_VERSION: u32 = 1;
/// The first version of gpux that reads them.
const REQUIRES: &str = "0.1";
/// The contract with components, without the number of its last additions.
const CONTRACT: [u32; 2] = [0, 1];

/// A document's reference to another, or to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// what other programs keep there
    #[serde(flatten)]
    other: Map<String, Json>,
}

impl Descriptor {
    fn new(media_type: &str, sha256: &str, size: u64) -> Self {
        let (media_type, digest) = (media_type.to_owned(), format!("sha256:{sha256}"));
        let (annotations, other) = (BTreeMap::new(), Map::new());
        Self { media_type, artifact_type: None, digest, size, annotations, other }
    }

    /// The reference of an index to the manifest of a pipeline.
    pub(crate) fn of_pipeline(sha256: &str, size: u64) -> Self {
        Self { artifact_type: Some(ARTIFACT_TYPE.to_owned()), ..Self::new(MANIFEST_TYPE, sha256, size) }
    }

    /// The digits of its digest, if that is a SHA-256.
    pub(crate) fn sha256(&self) -> Result<String, BundleFault> {
        match self.digest.strip_prefix("sha256:").and_then(FileDigest::from_hex) {
            Some(FileDigest::Sha256(digits)) => Ok(digits),
            _ => Err(BundleFault::NoSha256 { found: self.digest.clone() }),
        }
    }

    /// The name that it has in an index.
    pub(crate) fn name(&self) -> Option<&str> {
        self.annotations.get(NAME_KEY).map(String::as_str)
    }
}

/// The manifests of a layout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    pub(crate) manifests: Vec<Descriptor>,
    /// what other programs keep there
    #[serde(flatten)]
    other: Map<String, Json>,
}

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: Some(INDEX_TYPE.to_owned()), manifests, other: Map::new() }
    }

    /// That of somebody's layout.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BundleFault> {
        Self::checked(parse(INDEX_FILE, bytes)?)
    }

    /// That of the store, whose names may be many.
    pub(crate) fn parse_own(bytes: &[u8]) -> Result<Self, BundleFault> {
        let invalid = |error: serde_json::Error| BundleFault::Json { what: INDEX_FILE, reason: error.to_string() };
        Self::checked(serde_json::from_slice(bytes).map_err(invalid)?)
    }

    fn checked(index: Self) -> Result<Self, BundleFault> {
        check_type(INDEX_FILE, index.schema_version, index.media_type.as_deref().unwrap_or(INDEX_TYPE), INDEX_TYPE)?;
        Ok(index)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    /// of others, it may be missing
    media_type: Option<String>,
    #[serde(default)]
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// What a bundle says of its pipeline beside the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleInfo {
    /// its name
    pub name: String,
    /// its version
    pub version: Option<String>,
    /// for people
    pub description: Option<String>,
    /// SPDX expression of its licences
    pub licenses: Option<String>,
    /// further annotations
    pub annotations: BTreeMap<String, String>,
}

/// The configuration of CNCF ModelPack.
#[derive(Serialize)]
struct Config<'a> {
    descriptor: ConfigDescriptor<'a>,
    #[serde(rename = "config")]
    format: ConfigFormat,
    modelfs: ModelFiles<'a>,
}

#[derive(Serialize)]
struct ConfigDescriptor<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    licenses: Option<[&'a str; 1]>,
}

#[derive(Serialize)]
struct ConfigFormat {
    format: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModelFiles<'a> {
    r#type: &'static str,
    diff_ids: Vec<&'a str>,
}

/// The documents of a bundle, whose sizes depend on nothing but names and sizes of files.
pub(crate) struct Documents {
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
    /// the manifest as an index refers to it
    pub(crate) entry: Descriptor,
    pub(crate) pipeline: StoredPipeline,
}

impl Documents {
    /// The documents of a pipeline with these files, sorted by their paths.
    pub(crate) fn new(files: Vec<StoredFile>, info: &BundleInfo) -> Self {
        let layers: Vec<_> = files.iter().map(layer).collect();
        let licenses = info.licenses.as_deref();
        let config = json(&Config {
            descriptor: ConfigDescriptor {
                name: &info.name,
                version: info.version.as_deref(),
                description: info.description.as_deref(),
                licenses: licenses.map(|licenses| [licenses]),
            },
            format: ConfigFormat { format: "onnx" },
            modelfs: ModelFiles {
                r#type: "layers",
                diff_ids: layers.iter().map(|layer| layer.digest.as_str()).collect(),
            },
        });
        let [major, minor] = CONTRACT;
        let mut annotations = info.annotations.clone();
        let known = [
            (BUNDLE_KEY, Some(BUNDLE_VERSION.to_string())),
            (CONTRACT_KEY, Some(format!("gpux:pipeline@{major}.{minor}.0"))),
            (REQUIRES_KEY, Some(REQUIRES.to_owned())),
            (TITLE_KEY, Some(info.name.clone())),
            (VERSION_KEY, info.version.clone()),
            (DESCRIPTION_KEY, info.description.clone()),
            (LICENSES_KEY, info.licenses.clone()),
        ];
        annotations.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.to_owned()),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config: Descriptor::new(CONFIG_TYPE, &sha256(&config), config.len() as u64),
            layers,
            annotations: annotations.clone(),
        };
        let manifest = json(&manifest);
        let digest = sha256(&manifest);
        let entry = Descriptor::of_pipeline(&digest, manifest.len() as u64);
        Self { config, manifest, entry, pipeline: StoredPipeline { manifest: digest, files, annotations } }
    }
}

fn layer(file: &StoredFile) -> Descriptor {
    let [start, end] = FILE_TYPE;
    let mut layer = Descriptor::new(&format!("{start}{}{end}", file.role.name()), &file.sha256, file.size);
    layer.annotations = [TITLE_KEY, PATH_KEY].map(|key| (key.to_owned(), file.path.clone())).into();
    layer
}

/// A manifest that was read and checked, but for the files that it names.
#[derive(Debug)]
pub(crate) struct CheckedManifest {
    pub(crate) config: Descriptor,
    pub(crate) pipeline: StoredPipeline,
}

impl CheckedManifest {
    /// The digits of the files that a manifest of this digest needs, also of one that others made.
    pub(crate) fn references(digest: &str, bytes: &[u8]) -> Result<Vec<String>, BundleFault> {
        let what = "its manifest";
        if sha256(bytes) != digest {
            return Err(BundleFault::WrongDigest { path: what.to_owned(), digest: digest.to_owned() });
        }
        let Manifest { config, layers, .. } = parse(what, bytes)?;
        layers.iter().chain([&config]).map(Descriptor::sha256).collect()
    }

    /// Reads the manifest of this digest.
    pub(crate) fn parse(digest: &str, bytes: &[u8]) -> Result<Self, BundleFault> {
        let what = "its manifest";
        if sha256(bytes) != digest {
            return Err(BundleFault::WrongDigest { path: what.to_owned(), digest: digest.to_owned() });
        }
        let Manifest { schema_version, media_type, artifact_type, config, layers, annotations } = parse(what, bytes)?;
        check_type(what, schema_version, media_type.as_deref().unwrap_or_default(), MANIFEST_TYPE)?;
        match artifact_type.as_deref() {
            Some(ARTIFACT_TYPE) => {}
            other => return Err(BundleFault::NotAPipeline { found: other.unwrap_or(&config.media_type).to_owned() }),
        }
        check_versions(&annotations)?;
        if layers.len() > MAX_FILES {
            return Err(BundleFault::TooManyFiles { files: layers.len(), limit: MAX_FILES });
        }
        config.sha256()?;
        if config.size > MAX_CONFIG {
            return Err(BundleFault::TooLarge { what: "its configuration", size: config.size, limit: MAX_CONFIG });
        }
        let mut files = layers.into_iter().map(file_of_layer).collect::<Result<Vec<_>, _>>()?;
        check_paths(files.iter().map(|file| file.path.as_str()))?;
        if !files.iter().any(|file| file.path == PIPELINE_FILE) {
            return Err(BundleFault::ModelAlone);
        }
        if files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.size)).is_none() {
            return Err(BundleFault::TooLarge { what: "all files together", size: u64::MAX, limit: u64::MAX });
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self { config, pipeline: StoredPipeline { manifest: digest.to_owned(), files, annotations } })
    }
}

fn file_of_layer(layer: Descriptor) -> Result<StoredFile, BundleFault> {
    let named = layer.annotations.get(PATH_KEY).or_else(|| layer.annotations.get(TITLE_KEY));
    let path = named.cloned().ok_or_else(|| BundleFault::Path {
        path: layer.digest.clone(),
        reason: "it is the digest of a file without a path",
    })?;
    let [start, end] = FILE_TYPE;
    let role =
        layer.media_type.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).and_then(FileRole::from_name);
    let Some(role) = role else {
        return Err(BundleFault::FileType { path, found: layer.media_type });
    };
    Ok(StoredFile { sha256: layer.sha256()?, path, size: layer.size, role })
}

/// Checks the paths of a bundle's files, each by itself and one against the other.
pub(crate) fn check_paths<'a>(paths: impl Iterator<Item = &'a str>) -> Result<(), BundleFault> {
    let mut seen = BTreeMap::new();
    for path in paths {
        if let Some(reason) = file_name::fault(path) {
            return Err(BundleFault::Path { path: path.to_owned(), reason });
        }
        let folded = path.to_lowercase();
        if let Some(other) = seen.insert(folded, path) {
            let (one, other) = (other.to_owned(), path.to_owned());
            return Err(if one == other {
                BundleFault::SamePath { path: one }
            } else {
                BundleFault::Case { one, other }
            });
        }
    }
    // A file cannot be the folder of another.
    let folders =
        seen.iter().flat_map(|(folded, path)| folded.match_indices('/').map(move |(end, _)| (&folded[..end], path)));
    for (folder, path) in folders {
        if let Some(file) = seen.get(folder) {
            return Err(BundleFault::FileAsFolder { file: (*file).to_owned(), path: (*path).to_owned() });
        }
    }
    Ok(())
}

fn check_versions(annotations: &BTreeMap<String, String>) -> Result<(), BundleFault> {
    let newer = |what, found: &str, known: String| BundleFault::Newer { what, found: found.to_owned(), known };
    if let Some(version) = annotations.get(BUNDLE_KEY)
        && !version.parse().is_ok_and(|version: u32| (1..=BUNDLE_VERSION).contains(&version))
    {
        return Err(newer("format of bundles", version, BUNDLE_VERSION.to_string()));
    }
    if let Some(contract) = annotations.get(CONTRACT_KEY)
        && contract.strip_prefix("gpux:pipeline@").and_then(numbers).is_none_or(|found| found > CONTRACT)
    {
        let [major, minor] = CONTRACT;
        return Err(newer("contract with components", contract, format!("gpux:pipeline@{major}.{minor}")));
    }
    let own = numbers(env!("CARGO_PKG_VERSION")).unwrap_or_default();
    if let Some(requires) = annotations.get(REQUIRES_KEY)
        && numbers(requires).is_none_or(|found| found > own)
    {
        return Err(newer("gpux", requires, env!("CARGO_PKG_VERSION").to_owned()));
    }
    Ok(())
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<[u32; 2]> {
    let mut parts = version.split('.').map(str::parse);
    Some([parts.next()?.ok()?, parts.next()?.ok()?])
}

fn check_type(what: &'static str, schema: u32, found: &str, expected: &'static str) -> Result<(), BundleFault> {
    if schema != 2 {
        return Err(BundleFault::Type { what, found: format!("schemaVersion {schema}"), expected });
    }
    if found != expected {
        return Err(BundleFault::Type { what, found: found.to_owned(), expected });
    }
    Ok(())
}

/// Checks that a configuration is an object, and so nothing that runs.
pub(crate) fn check_config(bytes: &[u8]) -> Result<(), BundleFault> {
    parse::<Map<String, Json>>("its configuration", bytes).map(drop)
}

/// Reads a document in one way only: no key may be there twice, and it may not be two kinds of document at once.
fn parse<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, BundleFault> {
    let invalid = |reason: String| BundleFault::Json { what, reason: shorten(&reason) };
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    let (tree, _) = BoundedJsonTree::parse(text, MAX_LEVELS, MAX_TREE).map_err(|error| invalid(error.to_string()))?;
    if tree.get("layers").is_some() && tree.get("manifests").is_some() {
        return Err(BundleFault::Ambiguous { what });
    }
    serde_json::from_value(tree).map_err(|error| invalid(error.to_string()))
}

pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    // Maps of texts cannot fail to be written.
    serde_json::to_vec(value).unwrap_or_default()
}
