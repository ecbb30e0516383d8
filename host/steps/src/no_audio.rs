//! In the place of `audio`, where gpux is built without the feature `audio`.

use gpux_core::Builtin;

pub(super) fn all() -> Vec<Builtin> {
    Vec::new()
}
