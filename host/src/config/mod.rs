//! gpux.yml → Spec: what the file says, checked, with the place of every word.

mod cache;

pub use cache::CacheDir;
