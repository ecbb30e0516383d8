//! The client of HTTP that asks hubs and other servers: with the certificates that this machine trusts, within bounds.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::Response;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// The most bytes of an answer's headers.
const MAX_HEADERS: usize = 64 << 10;

/// How long a server may take.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// to take a request, and until its answer begins
    pub answer: Duration,
    /// without a byte of a body
    pub stall: Duration,
    /// for a whole body
    pub body: Option<Duration>,
}

/// A client that follows no redirect and takes every status for an answer. Without TLS it needs no certificates.
pub fn http_agent(uses_tls: bool, limits: HttpLimits) -> Result<Agent, String> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("gpux/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .max_response_header_size(MAX_HEADERS)
        .timeout_resolve(Some(CONNECT_LIMIT))
        .timeout_connect(Some(CONNECT_LIMIT))
        .timeout_send_request(Some(limits.answer))
        .timeout_recv_response(Some(limits.answer))
        .timeout_per_read(Some(limits.stall))
        .timeout_recv_body(limits.body)
        .tls_config(tls(uses_tls)?);
    Ok(config.build().new_agent())
}

/// The body of an answer, if it has at most `limit` bytes; else `None`.
pub fn read_body(response: Response<Body>, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    response.into_body().into_with_config().limit(u64::MAX).reader().take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// The certificates that this machine trusts, which are those of a proxy of the company as well.
fn tls(is_needed: bool) -> Result<TlsConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    if !is_needed {
        return Ok(builder.build());
    }
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let none = || "this machine trusts no certificate".to_owned();
        return Err(found.errors.first().map_or_else(none, ToString::to_string));
    }
    let roots: Vec<_> = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    Ok(builder.root_certs(RootCerts::new_with_certs(&roots)).build())
}
