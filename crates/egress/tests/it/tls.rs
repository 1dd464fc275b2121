//! Certificates that are right, for another name, of nobody, over, and not begun.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use portcullis_domain::ports::Disposition;
use portcullis_egress::{
    Credential, CredentialRef, Credentials, EgressError, EgressRules, Fault, HostRule, Reach,
    Response, RulesFault, Secret, Sent, TlsFault,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::server::{Scripted, Server, get, named, ok};

/// An authority of our own, with its certificate in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("roots.pem");
        std::fs::write(&file, certificate.pem()).expect("written");
        Self { issuer: Issuer::new(params, key), _folder: folder, file }
    }

    /// A server's side with a certificate for a name, within these years.
    fn vouches(&self, name: &str, from: i32, until: i32) -> ServerConfig {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("a server")
    }
}

const NAME: &str = "models.test";

/// What becomes of a request with a key to a server with this side of TLS, trusting an authority or not.
async fn fetch(
    config: ServerConfig,
    trusted: Option<&Authority>,
) -> (Result<Response, EgressError>, usize) {
    let server = Server::encrypted(config, ok("text/plain", "private")).await;
    let port = server.at.port();
    let rule = HostRule::new(NAME, Reach::Private).expect("a rule").ports([port]);
    let mut rules = EgressRules::closed().host(rule).expect("one rule");
    if let Some(authority) = trusted {
        rules = rules.extra_roots(&authority.file).expect("roots");
    }
    let key = Credential::given(Secret::new("canary-key".to_owned()).expect("a secret"));
    let key = key.only_to(&format!("{NAME}:{port}")).expect("a place");
    let credentials = Credentials::new([("k", key)]).expect("one");
    let egress = named(rules, credentials, Scripted::new(&[&["127.0.0.1"]]));
    let request = get(&format!("https://{NAME}:{port}/")).credential(CredentialRef::bearer("k"));
    let answer = egress.send(request).await;
    assert_eq!(server.connections(), 1, "the handshake was tried");
    (answer, server.seen().len())
}

async fn check(config: ServerConfig, trusted: Option<&Authority>, expected: TlsFault) {
    let (answer, seen) = fetch(config, trusted).await;
    let error = answer.expect_err("refused");
    let host = NAME.to_owned();
    assert_eq!(error.fault, Fault::Tls { host, fault: expected });
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Operator));
    assert_eq!(seen, 0, "no request arrived");
}

#[tokio::test]
async fn a_certificate_of_the_operators_authority_is_trusted() {
    let authority = Authority::new("ours");
    let (answer, seen) = fetch(authority.vouches(NAME, 2020, 4000), Some(&authority)).await;
    assert_eq!(answer.expect("an answer").body, b"private");
    assert_eq!(seen, 1);
}

#[tokio::test]
async fn certificates_are_verified() {
    let (authority, other) = (Authority::new("ours"), Authority::new("another"));
    let right = || authority.vouches(NAME, 2020, 4000);
    check(right(), None, TlsFault::Issuer).await;
    check(right(), Some(&other), TlsFault::Issuer).await;
    check(authority.vouches("other.test", 2020, 4000), Some(&authority), TlsFault::Name).await;
    check(authority.vouches("127.0.0.1", 2020, 4000), Some(&authority), TlsFault::Name).await;
    check(authority.vouches(NAME, 2000, 2001), Some(&authority), TlsFault::Expired).await;
    check(authority.vouches(NAME, 3900, 4000), Some(&authority), TlsFault::NotYet).await;
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_refused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("written");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        bytes
    });
    let egress = crate::server::local();
    let request = get(&format!("https://{at}/canary-path"));
    let error = egress.send(request).await.expect_err("refused");
    let host = "127.0.0.1".to_owned();
    assert_eq!(error.fault, Fault::Tls { host, fault: TlsFault::Handshake });
    assert_eq!(error.sent, Sent::Nothing);
    let arrived = server.await.expect("no panic");
    assert!(!arrived.is_empty() && !String::from_utf8_lossy(&arrived).contains("canary"));
}

#[test]
fn a_file_of_roots_has_to_be_one_that_nobody_else_can_write() {
    let authority = Authority::new("ours");
    let roots = || EgressRules::closed().extra_roots(&authority.file).err();
    assert_eq!(roots(), None);
    std::fs::set_permissions(&authority.file, std::fs::Permissions::from_mode(0o666))
        .expect("chmod");
    assert!(roots().expect("refused").to_string().contains("chmod go-w"));
    std::fs::set_permissions(&authority.file, std::fs::Permissions::from_mode(0o644))
        .expect("chmod");
    for text in ["", "no pem", "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&authority.file, text).expect("written");
        assert!(matches!(roots(), Some(RulesFault::Roots(_))), "{text}");
    }
}
