//! `gpux pull`, and `gpux run` and `gpux serve` with models of the hub: against repositories that
//! `tests/hub/make_repositories.py` made, and a double of the hub.

mod client;
mod double;
mod lock;
mod models;
