//! Certificates: read at the start, and again when the operator says so.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::readings::Readings;
use super::settings::TlsFiles;

/// What connections are encrypted with.
pub(super) struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
    readings: Readings,
}

/// A certificate or a key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

impl Tls {
    pub(super) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(read(&files)?);
        Ok(Self { files, config, readings: Readings::default() })
    }

    /// Reads the files again, for the connections that come from now on. If they cannot be used, those
    /// before hold.
    pub(super) fn reload(&self) -> Result<(), TlsError> {
        let reading = self.readings.begin();
        let config = Arc::new(read(&self.files)?);
        reading.put(|| self.config.store(config));
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let wrong = |path: &Path, what: &str, error: &dyn std::fmt::Display| {
        TlsError(format!("`{}` is no {what} in PEM: {error}", path.display()))
    };
    let no_certificate = |error: &dyn std::fmt::Display| wrong(&files.certificate, "certificate", error);
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| no_certificate(&error))?;
    if certificates.is_empty() {
        return Err(no_certificate(&"there is none in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, "private key", &error))?;
    let fits = |error| TlsError(format!("certificate and key do not go together: {error}"));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(fits)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(fits)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_said_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let load = || Tls::load(TlsFiles { certificate: certificate.clone(), key: key.clone() });
        let message = || load().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message().contains("cert.pem"), "{}", message());
        std::fs::write(&certificate, "nothing").unwrap();
        assert!(message().contains("there is none in it"), "{}", message());
        std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(message().contains("key.pem"), "{}", message());
    }
}
