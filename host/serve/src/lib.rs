//! Pipelines on HTTP and gRPC.
//!
//! A request's way: `listen` takes the connection, `http` (or `oip`) finds the pipeline and reads
//! the head, `schedule` admits or refuses it, and one worker's turn turns the body's bytes into the
//! answer's bytes ([`Server::run`]). A request that is known to be shorter than the way to a worker
//! runs where the connection is (`short`).

#![forbid(unsafe_code)]

mod access;
mod answer_size;
mod aside;
mod call;
mod certificate;
mod connections;
mod context;
mod detached;
mod entry;
mod error;
mod front;
mod http;
mod listen;
mod memory;
mod metrics;
mod oip;
mod readings;
mod reload;
mod repository;
mod schedule;
mod served;
mod server;
mod settings;
mod short;
mod signals;
mod telemetry;
mod tenants;
mod tls;
mod trace;
mod warm_up;

pub use call::{Ask, Priority, Turn};
pub use entry::{Entry, State};
pub use error::ServeError;
#[doc(hidden)]
pub use listen::Unconnected;
pub use listen::{Ended, Event, ListenError, serve};
pub use repository::{Repository, RepositoryError, Source};
pub use schedule::{Load, Refusal};
pub use served::Served;
pub use server::Server;
pub use settings::{Otlp, Settings, TlsFiles};
pub use tls::TlsError;

use warm_up::made_up;
