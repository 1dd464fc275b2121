//! TLS: always verified, with the roots that are compiled in and those of a file of the operator's.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, RootCertStore};

use crate::error::TlsFault;
use crate::owned_file::{FileFault, Guard, read};

/// The longest file of further roots, in bytes.
const MAX_ROOTS: usize = 1024 * 1024;

/// Why a file of further roots is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootsFault {
    /// The file cannot be read safely.
    #[error("the file of further roots cannot be used: {0}")]
    File(#[from] FileFault),
    /// There is no certificate in it, or one that is no authority's.
    #[error("the file of further roots is not made of PEM certificates")]
    Certificates,
}

/// Certificate authorities that are trusted beside the compiled-in ones.
#[derive(Clone, Debug)]
pub(crate) struct ExtraRoots(Vec<CertificateDer<'static>>);

impl ExtraRoots {
    pub(crate) fn read(path: &Path) -> Result<Self, RootsFault> {
        let bytes = read(path, Guard::Readable, MAX_ROOTS)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(Self(found)),
            _ => Err(RootsFault::Certificates),
        }
    }
}

/// The client's side of TLS. There is no way to leave out the verification.
///
/// The provider is named here and nowhere else, and is never installed for the whole process, so that a host that uses
/// another one is not disturbed.
pub(crate) fn config(extra: Option<&ExtraRoots>) -> Option<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in extra.iter().flat_map(|extra| &extra.0) {
        roots.add(certificate.clone()).ok()?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().ok()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(config)
}

/// What an error of the library means to an operator.
pub(crate) const fn fault(error: &rustls::Error) -> TlsFault {
    let rustls::Error::InvalidCertificate(certificate) = error else { return TlsFault::Handshake };
    match certificate {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsFault::Name
        }
        CertificateError::UnknownIssuer => TlsFault::Issuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsFault::NotYet
        }
        _ => TlsFault::Certificate,
    }
}
