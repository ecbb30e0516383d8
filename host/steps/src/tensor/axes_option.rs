//! One axis or several, as an option.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One axis, or a list.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(super) enum Axes {
    One(i64),
    Several(#[schemars(length(max = 64))] Vec<i64>),
}

impl Axes {
    pub(super) fn list(&self) -> &[i64] {
        match self {
            Self::One(axis) => std::slice::from_ref(axis),
            Self::Several(axes) => axes,
        }
    }
}
