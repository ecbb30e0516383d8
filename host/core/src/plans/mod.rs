//! Steps, the plan that they make, and its requests and runs.

pub(crate) mod benchmark;
pub(crate) mod branch;
pub(crate) mod calls;
pub(crate) mod condition;
pub(crate) mod deadline;
pub(crate) mod failure_counts;
pub(crate) mod for_each;
pub(crate) mod inner_step;
mod json_request;
pub(crate) mod model_metadata;
pub(crate) mod plan;
pub(crate) mod plan_builder;
pub(crate) mod registry;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod step;
pub(crate) mod synthetic_inputs;
pub(crate) mod table;
pub(crate) mod text_counts;
pub(crate) mod tokenization;
pub(crate) mod trace;
