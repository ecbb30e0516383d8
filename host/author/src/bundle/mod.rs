//! What of a pipeline's folder goes into a bundle: the files that the pipeline names, its golden cases, and what people
//! read; nothing else.

mod contents;
mod left_out;
mod outside_files;

use std::path::PathBuf;

use gpux::GpuxError;
use gpux_store::StoreError;

pub use contents::{BundleContents, BundleRequest, bundle_contents};
pub use left_out::{LeftOut, LeftOutFiles};

/// Why a pipeline cannot become a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// a model or a component without a gpux.yml
    #[error("`{}` has no gpux.yml, which a bundle needs; `gpux new pipeline NAME --model FILE` makes a pipeline around a model", .0.display())]
    Alone(PathBuf),
    /// files elsewhere
    #[error("the pipeline names files outside of its folder: {}; `--vendor` puts copies into the bundle and changes the paths in its gpux.yml", .0.join(", "))]
    Outside(Vec<String>),
    /// a path that is not found as it stands in gpux.yml
    #[error(
        "`{0}` is outside of the folder, and its path does not stand in gpux.yml as it is, so that it cannot be changed there; move the file into the folder"
    )]
    Rewrite(String),
    /// a file of the folder by another path
    #[error("the pipeline names a file of its folder as `{}`; write the path from the folder, without `..`", .0.display())]
    Detour(PathBuf),
    /// a tokenizer without a file
    #[error(
        "the tokenizer `{0}` is found by its name, which may be another one on other machines: put its tokenizer.json into the folder, and write `tokenizer: ./tokenizer.json`"
    )]
    TokenizerName(String),
    /// a granted folder elsewhere
    #[error("the pipeline grants a component the folder `{0}`, which is outside of its own; move it into the folder")]
    OutsideFolder(String),
    /// a grant that a bundle cannot keep
    #[error(
        "the pipeline grants a component to write to the folder `{0}`; a bundle has only files that do not change, so remove the grant"
    )]
    WritableFolder(String),
    /// a folder that no bundle can hold
    #[error(
        "a component may read the folder `{0}`, which is empty, and a bundle has no empty folders: put a file there"
    )]
    EmptyFolder(String),
    /// two files for one place
    #[error(
        "`{}` would lie at `{place}` in the bundle, where another file of the pipeline does; rename one of them", file.display()
    )]
    SamePlace {
        /// the path in the bundle
        place: String,
        /// the file
        file: PathBuf,
    },
    /// a link to a folder
    #[error("`{}` is a link to a folder, which a bundle cannot hold; put the folder itself there", .0.display())]
    FolderLink(PathBuf),
    /// a link that leads elsewhere
    #[error("`{}` is a link that leads out of the pipeline's folder; put the file itself there", .0.display())]
    Link(PathBuf),
    /// a name that is no text
    #[error("the name of `{}` is not valid UTF-8; rename the file", .0.display())]
    NotUnicode(PathBuf),
    /// too much in a folder
    #[error("`{}` has more than {limit} files", folder.display())]
    TooManyFiles {
        /// the folder
        folder: PathBuf,
        /// the bound
        limit: usize,
    },
    /// the system refuses
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// the file or folder
        path: PathBuf,
        /// the system's reason
        source: std::io::Error,
    },
    /// a mistake in the pipeline, or in a file that it names
    #[error(transparent)]
    Pipeline(#[from] Box<GpuxError>),
    /// what the store says
    #[error(transparent)]
    Store(#[from] StoreError),
}
