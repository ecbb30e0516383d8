//! Gathering the files of a bundle.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use gpux::LoadOptions;
use gpux::internal::Definition;
use gpux_config::{Action, Content, Node};
use gpux_core::files::{lies_in, resolve_path};
use gpux_core::hub_blobs;
use gpux_hub::LOCK_FILE;
use gpux_store::{
    BundleFile, BundleInfo, BundlePlan, DIGEST_SCHEME, FileRole, FileSource, MAX_PORTABLE_FILES, PIPELINE_FILE, Store,
};

use serde_json::Value as Json;

use super::BundleError;
use super::left_out::LeftOutFiles;
use super::outside_files::OutsideFiles;
use crate::case::{CASES_FOLDER, Case, cases_in};

/// Files of the folder's top that people read, by how their names begin.
const DOCUMENTS: [&str; 5] = ["README", "LICENSE", "LICENCE", "NOTICE", "COPYING"];
/// The most files of a granted folder, or of a case.
const MAX_FILES: usize = 10_000;
/// A file that is no model is worth a note from this size on.
const LARGE: u64 = 8 << 20;

/// A pipeline that becomes a bundle.
pub struct BundleRequest<'a> {
    /// what describes it
    pub definition: &'a Definition,
    /// the operator's word
    pub load_options: &'a LoadOptions,
    /// whether files from outside of the folder go into it
    pub vendor: bool,
    /// further annotations
    pub annotations: BTreeMap<String, String>,
}

/// What goes into a bundle, and what does not.
#[derive(Clone, Debug)]
pub struct BundleContents {
    /// its files
    pub plan: BundlePlan,
    /// the rest of the folder
    pub left_out: LeftOutFiles,
    /// what is unusual about the files, for people
    pub notes: Vec<String>,
}

/// Gathers the files of a pipeline. No model is loaded, and no component run.
pub fn bundle_contents(request: &BundleRequest<'_>) -> Result<BundleContents, BundleError> {
    let source = request.definition.source();
    if source.is_alone() {
        return Err(BundleError::Alone(source.path().to_owned()));
    }
    if let Some(digest) = source.digest() {
        // What was damaged there would get a digest of its own.
        let (store, digits) = (Store::from_environment()?, digest.strip_prefix(DIGEST_SCHEME).unwrap_or(&digest));
        store.verify(&store.pipeline(digits)?, &mut |_| {})?;
    }
    let mut gathered = Gathered::new(source.path().parent().unwrap_or(Path::new("")))?;
    gathered.check_tokenizers(request.definition)?;
    let outside = gathered.add_named(request)?;
    gathered.add_granted(request.definition)?;
    gathered.add_cases()?;
    gathered.add_documents()?;
    let text = outside.rewrite(request.definition.text(), request.definition.root(), &gathered.root)?;
    gathered.files.insert(PIPELINE_FILE.to_owned(), (FileRole::Code, FileSource::Bytes(text.into_bytes())));

    let file_name = source.path().file_name().unwrap_or_default().to_string_lossy();
    let bundled = gathered.files.keys().map(String::as_str).chain([&*file_name]).collect();
    let left_out = LeftOutFiles::find(&gathered.root, &bundled);
    let files = gathered.files.into_iter().map(|(path, (role, source))| BundleFile { path, role, source });
    let plan = BundlePlan::new(files.collect(), info(request))?;
    let notes = notes(&plan);
    Ok(BundleContents { plan, left_out, notes })
}

fn info(request: &BundleRequest<'_>) -> BundleInfo {
    let spec = request.definition.spec();
    let said = |key: &str| match spec.metadata.get(key)? {
        Json::Array(several) => Some(several.iter().map(|one| one.as_str()).collect::<Option<Vec<_>>>()?.join(" AND ")),
        one => one.as_str().map(str::to_owned),
    };
    BundleInfo {
        name: spec.name.value.clone(),
        version: Some(spec.version.value.clone()),
        description: spec.description.clone(),
        licenses: said("license").or_else(|| said("licenses")),
        annotations: request.annotations.clone(),
    }
}

fn notes(plan: &BundlePlan) -> Vec<String> {
    let mut notes = Vec::new();
    for (file, size) in plan.files() {
        if size >= LARGE && file.role != FileRole::Weight {
            notes.push(format!("`{}` is no model and has {:.1} MB", file.path, size as f64 / 1e6));
        }
    }
    let is_hidden = |path: &&str| path.split('/').any(|part| part.starts_with('.'));
    let hidden: Vec<_> = plan.files().map(|(file, _)| file.path.as_str()).filter(is_hidden).collect();
    if let Some(first) = hidden.first() {
        let more = if hidden.len() > 1 { format!(" and {} more", hidden.len() - 1) } else { String::new() };
        notes.push(format!("hidden files of folders that components may read are in the bundle: `{first}`{more}"));
    }
    let files = plan.files().count();
    if files > MAX_PORTABLE_FILES {
        notes.push(format!("the bundle has {files} files; some registries take {MAX_PORTABLE_FILES} to 500"));
    }
    notes
}

/// Files by their paths in the bundle.
struct Gathered {
    root: PathBuf,
    /// the folder without links, for what is compared
    canonical: PathBuf,
    files: BTreeMap<String, (FileRole, FileSource)>,
}

impl Gathered {
    fn new(root: &Path) -> Result<Self, BundleError> {
        let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
        let canonical = resolve_path(root).map_err(|source| BundleError::Io { path: root.to_owned(), source })?;
        Ok(Self { root: root.to_owned(), canonical, files: BTreeMap::new() })
    }

    /// Takes a file, which must lie in the folder unless it `may_be_outside`.
    fn add(&mut self, path: String, role: FileRole, file: &Path, may_be_outside: bool) -> Result<(), BundleError> {
        let found = resolve_path(file).map_err(|source| BundleError::Io { path: file.to_owned(), source })?;
        if !may_be_outside && !self.is_inside(&found) {
            return Err(BundleError::Link(file.to_owned()));
        }
        let (_, there) = self.files.entry(path.clone()).or_insert((role, FileSource::Path(found.clone())));
        if *there != FileSource::Path(found) {
            return Err(BundleError::SamePlace { place: path, file: file.to_owned() });
        }
        Ok(())
    }

    /// Whether a resolved path lies in the folder, or is a blob of the hub's cache that the folder belongs to.
    fn is_inside(&self, found: &Path) -> bool {
        lies_in(found, &self.canonical) || hub_blobs(&self.canonical).is_some_and(|blobs| lies_in(found, &blobs))
    }

    /// The files that gpux.yml names, and the weights of its models. Gives those outside of the folder.
    fn add_named(&mut self, request: &BundleRequest<'_>) -> Result<OutsideFiles, BundleError> {
        let named = request.definition.named_files(request.load_options).map_err(Box::new)?;
        let weights = named.weights;
        let named: Vec<_> = named.files.into_iter().collect();
        let outside: Vec<_> = named.iter().filter(|path| self.place(path).is_none()).cloned().collect();
        // `a/../b` is a file of the folder, but `a` may not be in the bundle.
        let is_within = |path: &&PathBuf| resolve_path(path).is_ok_and(|found| lies_in(&found, &self.canonical));
        if let Some(path) = outside.iter().find(is_within) {
            return Err(BundleError::Detour(path.clone()));
        }
        if !outside.is_empty() && !request.vendor {
            let shown = |path: &PathBuf| {
                let written = path.strip_prefix(&self.root).unwrap_or(path);
                format!("`{}`", written.display())
            };
            return Err(BundleError::Outside(outside.iter().map(shown).collect()));
        }
        let outside = OutsideFiles::new(&outside, &self.root)?;
        let may_be_outside = request.load_options.policy.outside_files;

        for path in named {
            let place = self.place(&path).or_else(|| outside.place(&path).map(str::to_owned));
            let place = place.ok_or_else(|| BundleError::NotUnicode(path.clone()))?;
            let mut role = FileRole::of(&place);
            if let Some(weights) = weights.get(&path) {
                role = FileRole::Weight;
                let folder = place.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
                for (location, data) in weights {
                    let beside = plain(location).ok_or_else(|| BundleError::NotUnicode(location.clone()))?;
                    self.add(format!("{folder}{beside}"), FileRole::Weight, data, may_be_outside)?;
                }
            }
            self.add(place, role, &path, may_be_outside)?;
        }
        Ok(outside)
    }

    /// Refuses tokenizers that are found by a model's name, in a cache of the machine.
    fn check_tokenizers(&self, definition: &Definition) -> Result<(), BundleError> {
        for step in definition.spec().all_steps() {
            let Action::BuiltIn(options) = &step.action else { continue };
            if let Some(name) = options.get("tokenizer").and_then(Node::as_str)
                && !self.root.join(name).exists()
            {
                return Err(BundleError::TokenizerName(name.to_owned()));
            }
        }
        Ok(())
    }

    /// The path of a file in the bundle, if it lies in the folder and is named in the plain way.
    fn place(&self, path: &Path) -> Option<String> {
        plain(path.strip_prefix(&self.root).ok()?)
    }

    /// What is in the folders that components may read.
    fn add_granted(&mut self, definition: &Definition) -> Result<(), BundleError> {
        for step in definition.spec().all_steps() {
            let Action::Wasm(wasm) = &step.action else { continue };
            for granted in &wasm.grant.dirs {
                let written = &granted.value.path;
                if granted.value.writable {
                    return Err(BundleError::WritableFolder(written.clone()));
                }
                let outside = || BundleError::OutsideFolder(written.clone());
                let place = plain(Path::new(written)).ok_or_else(outside)?;
                self.add_folder(&place, FileRole::Code)?;
            }
        }
        Ok(())
    }

    /// The cases that `gpux test` runs, with the files that they name beside them.
    fn add_cases(&mut self) -> Result<(), BundleError> {
        let folder = self.root.join(CASES_FOLDER);
        if !folder.exists() {
            return Ok(());
        }
        // A case that cannot be read is not left out without a word.
        for (path, _) in entries(&folder)? {
            if path.is_dir() {
                entries(&path)?;
            }
        }
        let cases = cases_in(&folder).unwrap_or_default();
        for case in &cases {
            if let Some(place) = self.place(case) {
                self.add_folder(&place, FileRole::Dataset)?;
            }
            // `gpux test` reports what is wrong with a case.
            let Ok(read) = Case::load(case) else { continue };
            let mut texts = Vec::new();
            find_texts(&read.document.root, &mut texts);
            for path in texts.into_iter().map(|text| case.join(text)).filter(|path| path.is_file()) {
                let found = resolve_path(&path).map_err(|source| BundleError::Io { path: path.clone(), source })?;
                if let Some(place) = found.strip_prefix(&self.canonical).ok().and_then(plain)
                    && place.starts_with(&format!("{CASES_FOLDER}/"))
                {
                    self.add(place, FileRole::Dataset, &found, false)?;
                }
            }
        }
        Ok(())
    }

    /// What people read, and where the files come from.
    fn add_documents(&mut self) -> Result<(), BundleError> {
        for (path, name) in entries(&self.root)? {
            let is_document = DOCUMENTS.iter().any(|document| name.to_ascii_uppercase().starts_with(document));
            if (is_document || name == LOCK_FILE) && path.is_file() {
                let role = if is_document { FileRole::Doc } else { FileRole::Code };
                self.add(name, role, &path, false)?;
            }
        }
        Ok(())
    }

    /// Every file in a folder and below it.
    fn add_folder(&mut self, place: &str, role: FileRole) -> Result<(), BundleError> {
        let (mut folders, mut left) = (vec![place.to_owned()], MAX_FILES);
        // What systems and editors leave there differs from machine to machine.
        let is_taken = |name: &str| role != FileRole::Dataset || !(name.starts_with('.') || name == "__pycache__");
        while let Some(place) = folders.pop() {
            let prefix = if place.is_empty() { String::new() } else { format!("{place}/") };
            let found = entries(&self.root.join(&place))?;
            if found.is_empty() && role == FileRole::Code {
                return Err(BundleError::EmptyFolder(place));
            }
            for (path, name) in found.into_iter().filter(|(_, name)| is_taken(name)) {
                let limit = MAX_FILES;
                left = left.checked_sub(1).ok_or_else(|| BundleError::TooManyFiles { folder: path.clone(), limit })?;
                let place = format!("{prefix}{name}");
                if path.is_symlink() && path.is_dir() {
                    return Err(BundleError::FolderLink(path));
                } else if path.is_dir() {
                    folders.push(place);
                } else if path.is_file() {
                    self.add(place, role, &path, false)?;
                }
            }
        }
        Ok(())
    }
}

/// The path with slashes, if it stays in its folder and has only names.
fn plain(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

/// The entries of a folder with their names, sorted.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, String)>, BundleError> {
    let io = |source| BundleError::Io { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in folder.read_dir().map_err(io)? {
        let path = entry.map_err(io)?.path();
        // Only what is taken needs a name that is text.
        if let Some(name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) {
            found.push((path, name));
        }
    }
    found.sort();
    Ok(found)
}

fn find_texts<'a>(node: &'a Node, texts: &mut Vec<&'a str>) {
    match &node.content {
        Content::String(text) => texts.push(text),
        Content::Sequence(items) => items.iter().for_each(|item| find_texts(item, texts)),
        Content::Mapping(entries) => entries.iter().for_each(|(_, value)| find_texts(value, texts)),
        _ => {}
    }
}
