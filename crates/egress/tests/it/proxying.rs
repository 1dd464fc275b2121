//! Proxies: none unless a rule says so, and then for everything but this machine.

use portcullis_egress::{
    Credential, CredentialRef, Credentials, EgressRules, Fault, HostRule, Proxy, Reach, Secret,
    Sent,
};

use crate::server::{Scripted, Server, client, get, named, ok};

#[tokio::test]
async fn the_environment_makes_no_proxy() {
    // The variables of this process, for a child of this test's binary: the client must be deaf to them.
    let (server, proxy) = (Server::json("{}").await, Server::json("{}").await);
    let exe = std::env::current_exe().expect("this binary");
    let run = tokio::process::Command::new(exe)
        .args(["--exact", "proxying::a_child_with_a_proxy_in_its_environment", "--include-ignored"])
        .env("PORTCULLIS_TEST_PORT", server.at.port().to_string())
        .envs(
            ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
                .map(|name| (name, proxy.url(""))),
        )
        .output()
        .await
        .expect("a child");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert_eq!((server.seen().len(), proxy.connections()), (1, 0));
}

#[tokio::test]
#[ignore = "started by the test above, with variables set"]
async fn a_child_with_a_proxy_in_its_environment() {
    let port: u16 = std::env::var("PORTCULLIS_TEST_PORT").expect("a port").parse().expect("a port");
    assert!(std::env::var("http_proxy").is_ok(), "the variable is there");
    // A name, so that no rule for this machine stands between.
    let rule = HostRule::new("models.test", Reach::Private).expect("a rule").ports([port]);
    let rules = EgressRules::closed().host(rule).expect("one rule");
    let egress = named(rules, Credentials::none(), Scripted::new(&[&["127.0.0.1"]]));
    egress.send(get(&format!("http://models.test:{port}/"))).await.expect("an answer");
}

#[tokio::test]
async fn a_proxy_of_the_operators_gets_what_is_not_for_this_machine() {
    let proxy = Server::answering(ok("text/plain", "by proxy")).await;
    let server = Server::answering(ok("text/plain", "directly")).await;
    let key = Credential::given(Secret::new("canary-key".to_owned()).expect("a secret"));
    let key = key.only_to(&server.at.to_string()).expect("a place");
    let rules = EgressRules::closed()
        .public()
        .loopback()
        .proxy(Proxy::new(&proxy.url(""), []).expect("a proxy"));
    let egress = client(rules, Credentials::new([("k", key)]).expect("one"));
    let answer = egress.send(get("http://www.example.com/path")).await.expect("an answer");
    assert_eq!(answer.body, b"by proxy");
    assert!(proxy.seen()[0].head.starts_with("GET http://www.example.com/path HTTP/1.1"));
    // This machine is reached directly, above all with a key in the clear.
    let keyed = get(&server.url("/")).credential(CredentialRef::bearer("k"));
    assert_eq!(egress.send(keyed).await.expect("an answer").body, b"directly");
    assert_eq!(proxy.connections(), 1);
    // Addresses that are written out are judged all the same.
    for url in ["http://169.254.169.254/", "http://10.0.0.1/", "http://metadata.google.internal/"] {
        let error = egress.send(get(url)).await.expect_err("refused");
        assert_eq!(error.sent, Sent::Nothing, "{url}");
    }
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_got_nothing_of_the_request() {
    let proxy = Server::answering("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n").await;
    let rules =
        EgressRules::closed().public().proxy(Proxy::new(&proxy.url(""), []).expect("a proxy"));
    let egress = client(rules, Credentials::none());
    let error = egress.send(get("https://www.example.com/canary-path")).await.expect_err("refused");
    assert_eq!(error.fault, Fault::Connect { host: "www.example.com".to_owned() });
    assert_eq!(error.sent, Sent::Nothing);
    let seen = proxy.seen().remove(0);
    assert!(
        seen.head.starts_with("CONNECT www.example.com:443 HTTP/1.1")
            && !seen.head.contains("canary"),
        "{}",
        seen.head
    );
}
