//! TLS certificates, loaded at the start and on SIGHUP.

mod certificate;
pub(crate) mod plain_http;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::authentication::world_readable_warning;
use super::load_generation::LoadGeneration;
use crate::settings::TlsFiles;

/// The TLS configuration of new connections.
pub(crate) struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
    generation: LoadGeneration,
}

/// A certificate or a key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

impl Tls {
    /// Reads the files; also returns warnings for the operator.
    pub(crate) fn load(files: TlsFiles) -> Result<(Self, Vec<String>), TlsError> {
        let (config, warnings) = read(&files)?;
        Ok((Self { files, config: ArcSwap::from_pointee(config), generation: LoadGeneration::default() }, warnings))
    }

    /// Reads the files again, for new connections. If it fails, the previous certificate stays.
    pub(crate) fn reload(&self) -> Result<Vec<String>, TlsError> {
        let attempt = self.generation.begin();
        let (config, warnings) = read(&self.files)?;
        attempt.commit(|| self.config.store(Arc::new(config)));
        Ok(warnings)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn read(files: &TlsFiles) -> Result<(ServerConfig, Vec<String>), TlsError> {
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
    let now = SystemTime::now();
    let faults = certificates.iter().filter_map(|certificate| certificate::fault(certificate, now));
    let faults = faults.map(|fault| format!("a certificate in `{}` {fault}", files.certificate.display()));
    let warnings = faults.chain(world_readable_warning(&files.key)).collect();
    let fits = |error| TlsError(format!("certificate and key do not go together: {error}"));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(fits)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(fits)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, warnings))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn names_the_file_that_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let load =
            || Tls::load(TlsFiles { certificate: certificate.clone(), key: key.clone() }).map(|(_, warnings)| warnings);
        let message = || load().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message().contains("cert.pem"), "{}", message());
        std::fs::write(&certificate, "nothing").unwrap();
        assert!(message().contains("there is none in it"), "{}", message());
        std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(message().contains("key.pem"), "{}", message());
    }

    #[test]
    #[cfg(unix)]
    fn warns_about_expired_certificates_and_readable_keys() {
        use std::os::unix::fs::PermissionsExt;

        use base64::Engine as _;

        let folder = tempfile::tempdir().unwrap();
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tls");
        let files = TlsFiles { certificate: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        std::fs::copy(format!("{tests}/first.pem"), &files.certificate).unwrap();
        std::fs::copy(format!("{tests}/first.key"), &files.key).unwrap();
        let readable = |mode| std::fs::set_permissions(&files.key, PermissionsExt::from_mode(mode)).unwrap();
        readable(0o640);
        let (tls, warnings) = Tls::load(files.clone()).unwrap();
        assert_eq!(warnings, [""; 0]);
        let expired = base64::engine::general_purpose::STANDARD.encode(certificate::tests::expired());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{expired}\n-----END CERTIFICATE-----\n");
        std::fs::write(&files.certificate, pem).unwrap();
        readable(0o644);
        let warnings = tls.reload().unwrap();
        assert!(warnings[0].contains("cert.pem") && warnings[0].contains("expired"), "{warnings:?}");
        assert!(warnings[1].contains("key.pem") && warnings[1].contains("chmod 600"), "{warnings:?}");
        assert_eq!(warnings.len(), 2);
    }
}
