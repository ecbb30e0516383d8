//! The subcommands, a module each.

pub(crate) mod build;
pub(crate) mod bundle;
pub(crate) mod cache;
pub(crate) mod completions;
pub(crate) mod engine;
pub(crate) mod inspect;
pub(crate) mod man;
pub(crate) mod new;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod steps;
pub(crate) mod store;
pub(crate) mod test;
pub(crate) mod verify;
