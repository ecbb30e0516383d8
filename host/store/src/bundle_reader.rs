//! The pipeline of a bundle that somebody made: what it says is checked before a file of it is read.

use std::path::Path;

use gpux_core::shorten;

use crate::bundle_fault::BundleFault;
use crate::error::StoreError;
use crate::forbidden_content::Sample;
use crate::layout_reader::LayoutReader;
use crate::manifest::{CheckedManifest, Descriptor, INDEX_FILE, Index, MANIFEST_TYPE, MAX_INDEX, MAX_MANIFEST};
use crate::pipeline::StoredPipeline;

/// The most manifests of a layout that are read in search of a pipeline.
const MAX_CANDIDATES: usize = 64;
/// The most names in an error.
const MAX_LISTED: usize = 8;

/// A bundle with a pipeline, whose manifest was checked.
#[derive(Debug)]
pub(crate) struct BundleReader {
    pub(crate) layout: LayoutReader,
    /// the manifest, as it was read
    pub(crate) bytes: Vec<u8>,
    pub(crate) manifest: CheckedManifest,
    pub(crate) entry: Descriptor,
}

/// The pipeline of a bundle by its index and its manifest, the only parts that are read.
pub fn peek(path: &Path) -> Result<StoredPipeline, StoreError> {
    Ok(BundleReader::open(path)?.manifest.pipeline)
}

impl BundleReader {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let layout = LayoutReader::open(path)?;
        let index = Index::parse(&layout.index(MAX_INDEX)?).map_err(|fault| layout.fault(fault))?;
        let is_candidate = |entry: &&Descriptor| entry.media_type == MANIFEST_TYPE;
        let candidates: Vec<_> = index.manifests.iter().filter(is_candidate).collect();
        if candidates.len() > MAX_CANDIDATES {
            return Err(layout.fault(BundleFault::TooManyManifests { limit: MAX_CANDIDATES }));
        }
        // Only the first is kept: each may be as large as a manifest can be.
        let (mut first, mut others) = (None::<(&Descriptor, Vec<u8>, CheckedManifest)>, Vec::new());
        for entry in candidates {
            match (read_manifest(&layout, entry), &first) {
                // One pipeline under two names is one.
                (Ok((_, manifest)), Some((.., first))) if manifest.pipeline.manifest == first.pipeline.manifest => {}
                (Ok(_), Some(_)) => others.push(entry),
                (Ok((bytes, manifest)), None) => first = Some((entry, bytes, manifest)),
                // Beside a pipeline there may be other things.
                (Err(StoreError::Bundle { fault: BundleFault::NotAPipeline { .. }, .. }), _)
                    if index.manifests.len() > 1 => {}
                (Err(error), _) => return Err(error),
            }
        }
        match first {
            Some((entry, bytes, manifest)) if others.is_empty() => {
                Ok(Self { entry: entry.clone(), layout, bytes, manifest })
            }
            Some((entry, ..)) => {
                let found = listed(&[&[entry], &others[..]].concat());
                Err(layout.fault(BundleFault::SeveralPipelines { found }))
            }
            None => {
                let found = listed(&index.manifests.iter().collect::<Vec<_>>());
                Err(layout.fault(BundleFault::NoPipeline { found }))
            }
        }
    }

    /// Checks that all files are there with their sizes, and that none of them is code for a machine.
    pub(crate) fn check_files(&self) -> Result<(), StoreError> {
        let config = &self.manifest.config;
        let digest = config.sha256().map_err(|fault| self.layout.fault(fault))?;
        self.layout.blob(&digest, config.size, "its configuration")?;
        for file in &self.manifest.pipeline.files {
            let section = self.layout.blob(&file.sha256, file.size, &file.path)?;
            let sample = Sample::of_file(&section).map_err(|error| self.layout.unreadable(error))?;
            sample.check(&file.path).map_err(|fault| self.layout.fault(fault))?;
        }
        Ok(())
    }
}

fn read_manifest(layout: &LayoutReader, entry: &Descriptor) -> Result<(Vec<u8>, CheckedManifest), StoreError> {
    let fault = |fault| layout.fault(fault);
    let digest = entry.sha256().map_err(fault)?;
    if entry.size > MAX_MANIFEST {
        let (what, size, limit) = ("its manifest", entry.size, MAX_MANIFEST);
        return Err(fault(BundleFault::TooLarge { what, size, limit }));
    }
    let section = layout.blob(&digest, entry.size, "its manifest")?;
    let bytes = section.bytes(0, MAX_MANIFEST).map_err(|error| layout.unreadable(error))?;
    let manifest = CheckedManifest::parse(&digest, &bytes).map_err(fault)?;
    Ok((bytes, manifest))
}

/// What an index has, for an error.
fn listed(entries: &[&Descriptor]) -> String {
    if entries.is_empty() {
        return format!("its {INDEX_FILE} is empty");
    }
    let shown = |entry: &&Descriptor| {
        let kind = entry.artifact_type.as_deref().unwrap_or(&entry.media_type);
        format!("`{}` ({})", shorten(entry.name().unwrap_or(&entry.digest)), shorten(kind))
    };
    let mut names: Vec<_> = entries.iter().take(MAX_LISTED).map(shown).collect();
    if entries.len() > MAX_LISTED {
        names.push(format!("{} more", entries.len() - MAX_LISTED));
    }
    names.join(", ")
}
