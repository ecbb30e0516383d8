//! The configuration of one component step in a pipeline.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::grants::Grants;
use super::limits::Limits;

/// Options, limits and grants of a component, from gpux.yml to the process that prepares it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComponentConfig {
    /// the component's options, an object; `null` for none
    pub options: Json,
    /// resource limits, capped by the operator's
    pub limits: Limits,
    /// grants
    pub grants: Grants,
    /// whether an instance serves further requests, until its first error: faster where it is
    /// large, but what one request leaves in it the next can see. Decides nothing before the first request.
    #[serde(skip)]
    pub reuse: bool,
}

impl Default for ComponentConfig {
    /// No options, the default limits, no grants, a new instance for each request.
    fn default() -> Self {
        let options = Json::Object(Map::new());
        Self { options, limits: Limits::default(), grants: Grants::default(), reuse: false }
    }
}
