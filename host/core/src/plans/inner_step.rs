//! Where a step stands within others.

use serde::{Deserialize, Serialize};

/// A place within a step that runs others for each item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerPlace {
    /// the number of the inner step, from 1
    pub number: usize,
    /// the index of the item, from 0
    pub item: usize,
}

/// A step within others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerStep {
    /// its place, the outermost first
    pub places: Vec<InnerPlace>,
    /// its name
    pub name: String,
}
