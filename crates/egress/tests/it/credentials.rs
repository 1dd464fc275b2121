//! Keys: put in at the edge, only where they are bound to, and in the clear only to this machine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_domain::ports::Disposition;
use portcullis_egress::{
    Credential, CredentialFault, CredentialRef, Credentials, EgressRules, Fault, HostRule, Reach,
    Secret, Sent,
};

use crate::server::{Scripted, Server, client, get, named, ok};

const KEY: &str = "canary-key-0123456789";

/// One credential, `k`, that may go to these places.
fn key_for(places: &[&str]) -> Credentials {
    let key = Credential::given(Secret::new(KEY.to_owned()).expect("a secret"));
    let key = places.iter().try_fold(key, |key, place| key.only_to(place)).expect("places");
    Credentials::new([("k", key)]).expect("one")
}

#[tokio::test]
async fn a_key_is_in_the_one_header_of_the_one_request() {
    let server = Server::json("{}").await;
    let egress = client(EgressRules::closed().loopback(), key_for(&[&server.at.to_string()]));
    let send = |credential| egress.send(get(&server.url("/")).credential(credential));
    send(CredentialRef::bearer("k")).await.expect("an answer");
    send(CredentialRef::header("k", "x-api-key").expect("a header")).await.expect("an answer");
    egress.send(get(&server.url("/"))).await.expect("an answer");
    let seen = server.seen();
    assert_eq!(seen[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen[1].header("x-api-key"), Some(KEY));
    assert!(seen[1].header("authorization").is_none());
    assert!(!seen[2].head.contains(KEY), "without a name there is no key");
}

#[tokio::test]
async fn a_key_does_not_go_where_it_is_not_bound_to() {
    let (bound, other) = (Server::json("{}").await, Server::json("{}").await);
    let egress = client(EgressRules::closed().loopback(), key_for(&[&bound.at.to_string()]));
    let keyed = |url: &str| get(url).credential(CredentialRef::bearer("k"));
    let error = egress.send(keyed(&other.url("/"))).await.expect_err("refused");
    let (name, host) = ("k".to_owned(), other.at.to_string());
    assert_eq!(error.fault, Fault::Credential(CredentialFault::Elsewhere { name, host }));
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Refuse));
    assert_eq!(other.connections(), 0);
    assert!(egress.send(keyed(&bound.url("/"))).await.is_ok());
    let unknown = get(&bound.url("/")).credential(CredentialRef::bearer("other"));
    let error = egress.send(unknown).await.expect_err("unknown");
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Operator));
}

#[tokio::test]
async fn in_the_clear_a_key_goes_to_this_machine_written_out_and_nowhere_else() {
    let server = Server::answering(ok("text/plain", "fine")).await;
    let port = server.at.port();
    // A name that leads to this machine, by a rule that admits it: who resolves it could say something else tomorrow.
    let rule = HostRule::new("models.test", Reach::Private).expect("a rule").ports([port]);
    let rules = EgressRules::closed().loopback().host(rule).expect("one rule");
    let places = ["models.test", "127.0.0.1", "localhost"].map(|host| format!("{host}:{port}"));
    let credentials = key_for(&places.each_ref().map(String::as_str));
    let egress = named(rules, credentials, Scripted::new(&[&["127.0.0.1"]]));
    let url = |host: &str| format!("http://{host}:{port}/");
    let keyed = |host: &str| egress.send(get(&url(host)).credential(CredentialRef::bearer("k")));

    let error = keyed("models.test").await.expect_err("refused");
    assert_eq!(error.fault, Fault::ClearCredential { host: "models.test".to_owned() });
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Operator));
    assert_eq!(server.connections(), 0, "refused before a connection");
    // The control: without a key the same request is sent.
    assert_eq!(egress.send(get(&url("models.test"))).await.expect("an answer").body, b"fine");
    for host in ["127.0.0.1", "localhost"] {
        keyed(host).await.expect("an answer");
    }
    let keys = server.seen().iter().filter(|seen| seen.head.contains(KEY)).count();
    assert_eq!((server.connections(), keys), (3, 2));
}

#[tokio::test]
async fn in_the_clear_a_key_does_not_go_to_an_address_of_the_network() {
    // The address that this machine has towards others, if it has one; nothing is sent to find it.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let ours = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).ok();
    let Some(ours) = ours.map(|at| at.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    else {
        portcullis_testkit::skip::skip("no address but loopback");
        return;
    };
    let first = Server::answering(ok("text/plain", "fine")).await;
    let server = Server::beside(first.at, &ours.to_string(), ok("text/plain", "fine")).await;
    let port = server.at.port();
    let Ok(rule) = HostRule::new(&ours.to_string(), Reach::Private) else {
        portcullis_testkit::skip::skip(
            "the address of this machine is in no range that a rule opens",
        );
        return;
    };
    let rules = EgressRules::closed().host(rule.ports([port])).expect("one rule");
    let egress = client(rules, key_for(&[&server.at.to_string()]));
    let keyed = get(&server.url("/")).credential(CredentialRef::bearer("k"));
    let error = egress.send(keyed).await.expect_err("refused");
    assert_eq!(error.fault, Fault::ClearCredential { host: ours.to_string() });
    assert_eq!((error.sent, server.connections()), (Sent::Nothing, 0));
    assert_eq!(egress.send(get(&server.url("/"))).await.expect("an answer").body, b"fine");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_new_key_in_the_file_is_used_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    let write = |text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    write("first-key\n", 0o600);
    let server = Server::json("{}").await;
    let key = Credential::file(&path).and_then(|key| key.only_to(&server.at.to_string()));
    let credentials = Credentials::new([("k", key.expect("a key"))]).expect("one");
    let egress = client(EgressRules::closed().loopback(), credentials);
    let send = || egress.send(get(&server.url("/")).credential(CredentialRef::bearer("k")));
    send().await.expect("an answer");
    write("second-key\n", 0o600);
    send().await.expect("an answer");
    // What others can read is not used any more, and the request is not sent without a key instead.
    write("third-key\n", 0o644);
    let error = send().await.expect_err("refused");
    assert!(matches!(error.fault, Fault::Credential(CredentialFault::File(_))), "{error:?}");
    let seen: Vec<_> = server
        .seen()
        .iter()
        .filter_map(|seen| seen.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(seen, ["Bearer first-key", "Bearer second-key"]);
}

#[tokio::test]
async fn a_caller_cannot_put_a_header_in_the_place_of_the_credentials() {
    let server = Server::json("{}").await;
    let egress = client(EgressRules::closed().loopback(), key_for(&[&server.at.to_string()]));
    let header = CredentialRef::header("k", "x-api-key").expect("a header");
    let request = get(&server.url("/")).header("X-Api-Key", "mine").expect("a header");
    let error = egress.send(request.credential(header)).await.expect_err("refused");
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Bug));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_key_that_is_repeated_is_not_handed_out() {
    for status in ["200 OK", "404 Not Found"] {
        let body = format!(r#"{{"error":"no such thing for {KEY}"}}"#);
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        let server = Server::answering(head + &body).await;
        let egress = client(EgressRules::closed().loopback(), key_for(&[&server.at.to_string()]));
        let keyed = get(&server.url("/")).credential(CredentialRef::bearer("k"));
        let error = egress.send(keyed).await.expect_err("not handed out");
        assert!(matches!(error.fault, Fault::Repeated { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains(KEY));
        // The control: it is the key that is kept back, not the answer.
        let answer = egress.send(get(&server.url("/"))).await.expect("an answer");
        assert!(String::from_utf8_lossy(&answer.body).contains(KEY));
    }
}

#[tokio::test]
async fn a_key_that_is_repeated_in_a_header_or_as_it_was_written_is_not_handed_out() {
    let basic = CredentialRef::basic("k", "ann").expect("a user");
    let written = STANDARD.encode(format!("ann:{KEY}"));
    let in_header = format!("HTTP/1.1 200 OK\r\nx-seen: a {KEY}\r\ncontent-length: 0\r\n\r\n");
    let cases = [
        (CredentialRef::bearer("k"), in_header, KEY),
        (basic, ok("text/plain", &format!("you sent Basic {written}")), written.as_str()),
    ];
    for (credential, answer, shown) in cases {
        let server = Server::answering(answer).await;
        let egress = client(EgressRules::closed().loopback(), key_for(&[&server.at.to_string()]));
        let error = egress.send(get(&server.url("/")).credential(credential)).await;
        let error = error.expect_err("not handed out");
        assert_eq!(error.sent, Sent::Answered);
        assert!(matches!(error.fault, Fault::Repeated { .. }), "{error}");
        // The control: without the credential the same answer is one.
        let answer = egress.send(get(&server.url("/"))).await.expect("an answer");
        let header = answer.headers.text("x-seen").unwrap_or_default().to_owned();
        assert!((header + &String::from_utf8_lossy(&answer.body)).contains(shown));
    }
}

#[tokio::test]
async fn an_error_is_one_in_whatever_form_it_comes() {
    let answer = "HTTP/1.1 429 Too Many Requests\r\ncontent-encoding: gzip\r\nretry-after: 2\r\n\
                  content-length: 3\r\nconnection: close\r\n\r\nabc";
    let server = Server::answering(answer).await;
    let egress = client(EgressRules::closed().loopback(), key_for(&[&server.at.to_string()]));
    let answer = egress.send(get(&server.url("/"))).await.expect("an answer");
    assert_eq!((answer.status, answer.disposition()), (429, Some(Disposition::Retry)));
}
