//! Tokens that are refreshed at a made-up endpoint: once under concurrency, saved before use, with named refusals.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_domain::ports::Disposition;
use portcullis_egress::{
    Credential, CredentialFault, CredentialRef, Credentials, Egress, EgressError, EgressRules,
    Fault, OAuthClient, OAuthFault, OAuthRule, Secret, Sent, Target,
};
use portcullis_testkit::ports::ManualClock;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

use crate::server::{Seen, Server, get, ok};

/// A resource, a token endpoint, a file of tokens and a client.
struct Scene {
    api: Server,
    endpoint: Server,
    _folder: tempfile::TempDir,
    file: PathBuf,
    clock: ManualClock,
    egress: Egress,
}

fn secret(text: &str) -> Secret {
    Secret::new(text.to_owned()).expect("a secret")
}

/// An endpoint that gives `access-token-N` and takes the refresh token back each time, as long as it gets the right one.
async fn rotating() -> Server {
    let given = Arc::new(AtomicUsize::new(0));
    Server::acting(move |seen: Seen, mut wire| {
        let given = Arc::clone(&given);
        async move {
            let count = given.load(Ordering::SeqCst);
            let form = String::from_utf8(seen.body).expect("text");
            let answer = if form.contains(&format!("refresh_token=refresh-token-{count}")) {
                given.store(count + 1, Ordering::SeqCst);
                let next = count + 1;
                let body = format!(
                    r#"{{"access_token":"access-token-{next}","token_type":"bearer","expires_in":3600,"refresh_token":"refresh-token-{next}","scope":"x"}}"#
                );
                ok("application/json", &body)
            } else {
                refusal(400, "invalid_grant")
            };
            let _ = wire.write_all(answer.as_bytes()).await;
        }
    })
    .await
}

fn refusal(status: u16, code: &str) -> String {
    let body = format!(r#"{{"error":"{code}","error_description":"canary"}}"#);
    let length = body.len();
    format!(
        "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

impl Scene {
    async fn with(endpoint: Server) -> Self {
        Self::of(endpoint, OAuthClient::Public { id: "me".to_owned() }, Server::json("{}").await)
    }

    fn of(endpoint: Server, client: OAuthClient, api: Server) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens.json");
        write(&file, r#"{"version":1,"refresh_token":"refresh-token-0"}"#);
        let clock = ManualClock::default();
        let egress = egress(&endpoint, client, &api, &file, &clock);
        Self { api, endpoint, _folder: folder, file, clock, egress }
    }

    async fn send(&self) -> Result<(), EgressError> {
        let request = get(&self.api.url("/")).credential(CredentialRef::bearer("t"));
        self.egress.send(request).await.map(|_| ())
    }

    /// The tokens that the resource got.
    fn used(&self) -> Vec<String> {
        let seen = self.api.seen();
        seen.iter().filter_map(|seen| seen.header("authorization").map(str::to_owned)).collect()
    }

    fn stored(&self) -> String {
        std::fs::read_to_string(&self.file).expect("read")
    }
}

fn write(file: &PathBuf, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(file, text).expect("written");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
}

fn egress(
    endpoint: &Server,
    client: OAuthClient,
    api: &Server,
    file: &std::path::Path,
    clock: &ManualClock,
) -> Egress {
    let target = Target::parse(&endpoint.url("/token")).expect("a URL");
    let rule = OAuthRule::new(target, client, file.to_owned()).expect("a rule");
    let token = Credential::oauth(rule).and_then(|token| token.only_to(&api.at.to_string()));
    let credentials = Credentials::new([("t", token.expect("a token"))]).expect("one");
    let rules = EgressRules::closed().loopback();
    Egress::new(rules, credentials, Arc::new(clock.clone())).expect("a client")
}

fn fault(error: EgressError) -> OAuthFault {
    assert_eq!(error.sent, Sent::Nothing, "nothing of the request itself");
    match error.fault {
        Fault::Credential(CredentialFault::OAuth { name, fault }) if name == "t" => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_is_got_once_saved_and_used_until_shortly_before_its_end() {
    let scene = Scene::with(rotating().await).await;
    scene.send().await.expect("an answer");
    scene.send().await.expect("an answer");
    assert_eq!(scene.endpoint.seen().len(), 1);
    assert!(
        scene.stored().contains("access-token-1") && scene.stored().contains("refresh-token-1")
    );
    // 61 seconds before its end it is still good, 60 before it is not.
    scene.clock.advance(Duration::from_secs(3600 - 61));
    scene.send().await.expect("an answer");
    scene.clock.advance(Duration::from_secs(1));
    scene.send().await.expect("an answer");
    assert_eq!(
        scene.used(),
        ["Bearer access-token-1"; 3]
            .into_iter()
            .chain(["Bearer access-token-2"])
            .collect::<Vec<_>>()
    );
    let form = String::from_utf8(scene.endpoint.seen()[0].body.clone()).expect("text");
    assert_eq!(form, "grant_type=refresh_token&refresh_token=refresh-token-0&client_id=me");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_refresh_once() {
    let scene = Arc::new(Scene::with(rotating().await).await);
    for round in 1..=3_usize {
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let scene = Arc::clone(&scene);
            waiting.spawn(async move { scene.send().await });
        }
        while let Some(ended) = waiting.join_next().await {
            ended.expect("no panic").expect("an answer");
        }
        assert_eq!(scene.endpoint.seen().len(), round, "one refresh for sixteen");
        scene.clock.advance(Duration::from_secs(7200));
    }
    assert_eq!(scene.used().len(), 48);
}

#[tokio::test]
async fn two_processes_share_one_refresh_by_the_file() {
    let first = Scene::with(rotating().await).await;
    let id = || OAuthClient::Public { id: "me".to_owned() };
    let second = egress(&first.endpoint, id(), &first.api, &first.file, &first.clock);
    first.send().await.expect("an answer");
    let request = || get(&first.api.url("/")).credential(CredentialRef::bearer("t"));
    second.send(request()).await.expect("an answer");
    assert_eq!(first.endpoint.seen().len(), 1, "the second found it in the file");
    // And when it is over, whoever comes first rotates it, and the other does not use the old one.
    first.clock.advance(Duration::from_secs(7200));
    second.send(request()).await.expect("an answer");
    first.send().await.expect("an answer");
    assert_eq!(first.endpoint.seen().len(), 2);
    assert_eq!(first.used().last().map(String::as_str), Some("Bearer access-token-2"));
}

#[tokio::test]
async fn a_dropped_wait_loses_no_rotated_token() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let endpoint = Server::acting(move |_, mut wire| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.expect("open").forget();
            let body = r#"{"access_token":"access-token-1","token_type":"Bearer","expires_in":3600,"refresh_token":"refresh-token-1"}"#;
            let _ = wire.write_all(ok("application/json", body).as_bytes()).await;
        }
    })
    .await;
    let scene = Scene::with(endpoint).await;
    let asked = async {
        while scene.endpoint.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = scene.send() => panic!("the endpoint has not answered"),
        () = asked => {}
    }
    // Nobody waits any more; the endpoint takes the old token back and answers.
    gate.add_permits(1);
    scene.send().await.expect("an answer");
    assert_eq!(scene.endpoint.seen().len(), 1, "the first refresh was kept");
    assert!(scene.stored().contains("refresh-token-1"));
}

#[tokio::test]
async fn a_token_that_a_server_does_not_take_is_refreshed_before_the_next_use() {
    let api = Server::acting(|seen: Seen, mut wire| async move {
        let fits = seen.header("authorization") == Some("Bearer access-token-2");
        let status = if fits { "200 OK" } else { "401 No" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = wire.write_all(answer.as_bytes()).await;
    })
    .await;
    let client = OAuthClient::Public { id: "me".to_owned() };
    let scene = Scene::of(rotating().await, client, api);
    let status = || async {
        let request = get(&scene.api.url("/")).credential(CredentialRef::bearer("t"));
        scene.egress.send(request).await.expect("an answer").status
    };
    assert_eq!(status().await, 401, "nothing is sent a second time by itself");
    assert_eq!(scene.api.seen().len(), 1);
    assert_eq!(status().await, 200);
    assert_eq!(scene.endpoint.seen().len(), 2);
}

#[tokio::test]
async fn a_token_that_is_good_for_too_little_is_looked_for_in_the_file_again() {
    let api = Server::acting(|seen: Seen, mut wire| async move {
        let fits = seen.header("authorization") == Some("Bearer wider-token");
        let status = if fits { "200 OK" } else { "403 No" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = wire.write_all(answer.as_bytes()).await;
    })
    .await;
    let client = OAuthClient::Public { id: "me".to_owned() };
    let scene = Scene::of(rotating().await, client, api);
    let status = || async {
        let request = get(&scene.api.url("/")).credential(CredentialRef::bearer("t"));
        scene.egress.send(request).await.expect("an answer").status
    };
    assert_eq!((status().await, status().await), (403, 403));
    assert_eq!(scene.endpoint.seen().len(), 1, "nothing is refreshed for it");
    write(&scene.file, &scene.stored().replace("access-token-1", "wider-token"));
    assert_eq!((status().await, status().await), (200, 200), "somebody logged in again");
    assert_eq!(scene.endpoint.seen().len(), 1);
}

#[tokio::test]
async fn clients_say_who_they_are() {
    let id = || "a:b c".to_owned();
    let basic = OAuthClient::Basic { id: id(), secret: secret("s3cret+/=") };
    let scene = Scene::of(rotating().await, basic, Server::json("{}").await);
    scene.send().await.expect("an answer");
    let seen = scene.endpoint.seen().remove(0);
    // RFC 6749, section 2.3.1: both are form-encoded, then joined: `a%3Ab+c:s3cret%2B%2F%3D`.
    assert_eq!(seen.header("authorization"), Some("Basic YSUzQWIrYzpzM2NyZXQlMkIlMkYlM0Q="));
    assert!(!String::from_utf8_lossy(&seen.body).contains("s3cret"));
    let posted = OAuthClient::Posted { id: id(), secret: secret("s3cret+/=") };
    let scene = Scene::of(rotating().await, posted, Server::json("{}").await);
    scene.send().await.expect("an answer");
    let seen = scene.endpoint.seen().remove(0);
    assert!(seen.header("authorization").is_none());
    assert!(
        String::from_utf8_lossy(&seen.body)
            .ends_with("client_id=a%3Ab+c&client_secret=s3cret%2B%2F%3D")
    );
}

#[tokio::test]
async fn refusals_are_named_and_nothing_is_sent_without_a_token() {
    let json = |body: &str| ok("application/json", body);
    for (answer, expected, disposition) in [
        (
            refusal(400, "invalid_grant"),
            OAuthFault::Refused("invalid_grant"),
            Disposition::Operator,
        ),
        (
            refusal(401, "invalid_client"),
            OAuthFault::Refused("invalid_client"),
            Disposition::Operator,
        ),
        (refusal(400, "canary_code"), OAuthFault::Status(400), Disposition::Operator),
        (refusal(503, "x"), OAuthFault::Status(503), Disposition::Retry),
        (json("not json"), OAuthFault::Answer, Disposition::Operator),
        (json(r#"{"access_token":"canary-token"}"#), OAuthFault::Answer, Disposition::Operator),
        (
            json(r#"{"access_token":"canary-token","token_type":"mac"}"#),
            OAuthFault::Answer,
            Disposition::Operator,
        ),
        (
            json(r#"{"access_token":"","token_type":"bearer"}"#),
            OAuthFault::Answer,
            Disposition::Operator,
        ),
        (
            json(r#"{"access_token":"canary-token","token_type":"bearer","expires_in":-1}"#),
            OAuthFault::Answer,
            Disposition::Operator,
        ),
        (
            json(r#"{"access_token":"canary\r\nx: y","token_type":"bearer"}"#),
            OAuthFault::Answer,
            Disposition::Operator,
        ),
    ] {
        let scene = Scene::with(Server::answering(answer.clone()).await).await;
        let error = scene.send().await.expect_err("refused");
        assert_eq!(error.disposition(), disposition, "{answer}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        assert_eq!(fault(error), expected, "{answer}");
        assert_eq!(scene.api.connections(), 0);
        assert!(scene.stored().contains("refresh-token-0"), "the old one is kept");
    }
}

#[tokio::test]
async fn those_who_waited_get_the_refusal_that_they_waited_for() {
    let scene = Scene::with(Server::answering(refusal(400, "invalid_grant")).await).await;
    let results = futures_of(&scene, 8).await;
    assert!(results.iter().all(|result| *result == OAuthFault::Refused("invalid_grant")));
    assert_eq!(scene.endpoint.seen().len(), 1, "a refusal is not asked for eight times");
    // Whoever comes later asks again: the operator may have mended it.
    assert_eq!(
        fault(scene.send().await.expect_err("refused")),
        OAuthFault::Refused("invalid_grant")
    );
    assert_eq!(scene.endpoint.seen().len(), 2);
}

/// The faults of `count` requests at once, polled together on one thread.
async fn futures_of(scene: &Scene, count: usize) -> Vec<OAuthFault> {
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..count {
        let request = get(&scene.api.url("/")).credential(CredentialRef::bearer("t"));
        waiting.spawn(scene.egress.send(request));
    }
    let mut faults = Vec::new();
    while let Some(ended) = waiting.join_next().await {
        faults.push(fault(ended.expect("no panic").expect_err("refused")));
    }
    faults
}

#[tokio::test]
async fn a_token_that_cannot_be_saved_is_not_used_and_not_lost() {
    let scene = Scene::with(rotating().await).await;
    // When the endpoint answers, a folder stands in the file's place, and nothing can be renamed over it.
    let folder = scene.file.parent().expect("a folder").to_owned();
    let saved = scene.file.clone();
    let endpoint = Server::acting(move |_, mut wire| {
        let saved = saved.clone();
        async move {
            std::fs::remove_file(&saved).expect("removed");
            std::fs::create_dir(&saved).expect("a folder in its place");
            let body = r#"{"access_token":"access-token-9","token_type":"bearer","expires_in":3600,"refresh_token":"refresh-token-9"}"#;
            let _ = wire.write_all(ok("application/json", body).as_bytes()).await;
        }
    })
    .await;
    let id = OAuthClient::Public { id: "me".to_owned() };
    let egress = egress(&endpoint, id, &scene.api, &scene.file, &scene.clock);
    let request = || get(&scene.api.url("/")).credential(CredentialRef::bearer("t"));
    let refused = fault(egress.send(request()).await.expect_err("not saved"));
    assert!(matches!(refused, OAuthFault::NotSaved(_)), "{refused:?}");
    assert_eq!(scene.api.connections(), 0, "not used before it is saved");
    std::fs::remove_dir(&scene.file).expect("removed");
    egress.send(request()).await.expect("an answer");
    assert_eq!(endpoint.seen().len(), 1, "the token of the first time was kept");
    assert!(scene.stored().contains("refresh-token-9"));
    let left = std::fs::read_dir(&folder).expect("listed").count();
    assert_eq!(left, 2, "the file and its lock");
}

#[test]
fn an_endpoint_in_the_clear_is_refused() {
    let rule = |url: &str| {
        let id = OAuthClient::Public { id: "me".to_owned() };
        OAuthRule::new(Target::parse(url).expect("a URL"), id, PathBuf::from("x")).err()
    };
    assert_eq!(rule("http://login.example.com/token"), Some(OAuthFault::Clear));
    assert_eq!(rule("https://login.example.com/token"), None);
    assert_eq!(rule("http://127.0.0.1:1/token"), None);
}
