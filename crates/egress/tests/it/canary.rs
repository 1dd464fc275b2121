//! A canary in every secret place, looked for in everything that can be printed, logged or thrown.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use portcullis_egress::{
    Credential, CredentialRef, Credentials, EgressRules, Method, OAuthClient, OAuthRule, Request,
    Secret, Target,
};

use crate::server::{Server, client, get, ok};

const CANARY: &str = "canary-0f3a9c";

/// Where log lines end up.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned()
    }
}

/// A file of tokens with the canary as its refresh token.
fn token_file(folder: &std::path::Path) -> std::path::PathBuf {
    let file = folder.join("tokens.json");
    std::fs::write(&file, format!(r#"{{"version":1,"refresh_token":"{CANARY}-refresh"}}"#))
        .expect("written");
    std::os::unix::fs::chown(&file, None, None).expect("there");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("chmod");
    file
}

/// All that a host could print of an answer, its panic included.
fn all_forms_of<T: std::fmt::Debug, E: std::error::Error>(result: Result<T, E>) -> String {
    let mut shown = format!("{result:?}");
    if let Err(error) = &result {
        shown += &format!("{error} {:?}", error.source().map(ToString::to_string));
    }
    let thrown =
        std::panic::catch_unwind(AssertUnwindSafe(|| result.map(|_| ()).expect("an answer")));
    if let Err(thrown) = thrown {
        shown += thrown.downcast_ref::<String>().map_or("", String::as_str);
    }
    shown
}

#[tokio::test]
async fn a_canary_is_in_no_text_of_ours() {
    let log = Log::default();
    let writer = log.clone();
    // Everything, from every crate, the `log` facade included.
    tracing_subscriber::fmt().with_env_filter("trace").with_writer(move || writer.clone()).init();

    let folder = tempfile::tempdir().expect("a folder");
    let file = token_file(folder.path());
    let granted =
        format!(r#"{{"access_token":"{CANARY}-access","token_type":"bearer","expires_in":60}}"#);
    let endpoint = Server::json(&granted).await;
    let api = Server::answering(ok("text/plain", &format!("{CANARY}-answer"))).await;
    let silent = Server::answering("").await;

    let target = Target::parse(&endpoint.url(&format!("/token?{CANARY}"))).expect("a URL");
    let posted = OAuthClient::Posted {
        id: "me".to_owned(),
        secret: Secret::new(format!("{CANARY}-client")).expect("a secret"),
    };
    let token = Credential::oauth(OAuthRule::new(target, posted, file).expect("a rule"));
    let key = Credential::given(Secret::new(format!("{CANARY}-key")).expect("a secret"));
    let bind = |credential: Credential| {
        let places = [api.at.to_string(), silent.at.to_string()];
        places
            .iter()
            .try_fold(credential, |credential, place| credential.only_to(place))
            .expect("places")
    };
    let all = [("key", bind(key)), ("token", bind(token.expect("a token")))];
    let egress = client(EgressRules::closed().loopback(), Credentials::new(all).expect("two"));

    let mut shown = format!("{egress:?}");
    for (server, credential) in
        [(&api, "key"), (&api, "token"), (&silent, "key"), (&silent, "token")]
    {
        let url = server.url(&format!("/{CANARY}-path?{CANARY}-query"));
        let request = Request::new(Method::Post, Target::parse(&url).expect("a URL"))
            .header("x-note", &format!("{CANARY}-header"))
            .expect("a header")
            .credential(CredentialRef::bearer(credential))
            .body(format!("{CANARY}-body").into_bytes());
        shown += &format!("{request:?}");
        shown += &all_forms_of(egress.send(request).await);
    }
    let misplaced = get(&endpoint.url("/")).credential(CredentialRef::bearer("key"));
    let refused = egress.send(misplaced).await.expect_err("refused");
    shown += &format!("{refused} {refused:?}");
    for server in [&api, &silent] {
        let arrived = server.seen();
        assert!(
            arrived.iter().any(|seen| seen.head.contains(&format!("Bearer {CANARY}-key"))),
            "it was used"
        );
        assert!(arrived.iter().any(|seen| seen.head.contains(&format!("Bearer {CANARY}-access"))));
    }
    assert!(shown.contains("was lost before an answer") && shown.contains("is not for"), "{shown}");
    assert!(!shown.contains(CANARY), "{shown}");
    let logged = log.text();
    assert!(logged.contains("starting new connection"), "the libraries were listened to: {logged}");
    assert!(!logged.contains(CANARY), "{logged}");
}
