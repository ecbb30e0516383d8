//! Why a server does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::tls::TlsError;
use gpux::GpuxError;
use gpux_config::LoadError;

/// The reason that the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// cannot listen on the address
    #[error("cannot listen on {address}: {source}{}", bind_hint(source, flag, address))]
    Bind {
        /// the address
        address: String,
        /// the flag that sets its port
        flag: &'static str,
        /// the operating system's error
        source: std::io::Error,
    },
    /// cannot listen on the Unix socket
    #[error("cannot listen on unix:{}: {reason}", path.display())]
    Socket {
        /// its path
        path: PathBuf,
        /// in words
        reason: String,
    },
    /// threads or the runtime cannot be started
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// `--isolation-strict`, where pipelines cannot have processes of their own
    #[error("`--isolation-strict`: pipelines cannot have processes of their own: {0}")]
    Isolation(String),
    /// a pipeline cannot be loaded
    #[error(transparent)]
    Pipeline(#[from] GpuxError),
    /// `--model-control` without keys on an address that other machines reach
    #[error(
        "`--model-control` without `--keys` lets everybody who reaches {0} load and unload pipelines; name a file of \
         keys with `--keys`, or listen on this machine alone with `--host 127.0.0.1`"
    )]
    ModelControl(SocketAddr),
    /// the keys file cannot be read or is invalid
    #[error(transparent)]
    Keys(#[from] LoadError),
    /// the certificate or its key cannot be used
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// the trace exporter cannot be started
    #[error("{0}")]
    Telemetry(String),
}

fn bind_hint(error: &std::io::Error, flag: &str, address: &str) -> String {
    if address.starts_with("unix:") {
        return "; a Unix socket is named on the command line: `--host unix:PATH`".to_owned();
    }
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("; another program listens there: stop it, or choose another `{flag}`")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("; ports below 1024 are for the system: choose another `{flag}`")
        }
        std::io::ErrorKind::AddrNotAvailable => "; `--host` is none of this machine's addresses".to_owned(),
        _ => String::new(),
    }
}
