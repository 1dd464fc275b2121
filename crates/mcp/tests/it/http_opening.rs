//! Opening a session behind a URL: both kinds of revisions, their headers, and servers that do not get so far.

use std::net::TcpListener;
use std::time::Duration;

use portcullis_egress::{Credentials, Reach, Target};
use portcullis_mcp::{Http, HttpServer, Session as _};

use crate::http_scene::{CANARY, Remote, client};
use crate::scene::{PATIENT, SHORT, arguments, peak_mib, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_server_of_each_revision_lists_and_answers() {
    for mode in [
        "well",
        "events",
        "without-id",
        "old",
        "modern",
        "modern-events",
        "plain-404",
        "plain-405",
        "coded-400",
        "notices",
    ] {
        let remote = Remote::start(mode);
        let session = remote.connect().await;
        let listing = session.list().await.unwrap();
        let names: Vec<_> = listing.tools().iter().map(|tool| tool.name().to_owned()).collect();
        if mode.starts_with("modern") {
            assert_eq!(
                names,
                ["echo", "count"],
                "{mode}: whose schema says it wrongly is left out"
            );
        } else {
            assert_eq!(names, ["echo", "count", "wrong"], "{mode}");
        }
        let raw = listing.get("count").unwrap().raw().to_canonical_string();
        let kept = r#"{"Name":"x","inputSchema":{"maximum":9007199254740993},"name":"count"}"#;
        assert_eq!(raw, kept, "{mode}");
        let sent = r#"{"a":18446744073709551615,"b":1.5,"c":"\u0001é"}"#;
        let answer = text(session.call("echo", arguments(sent), PATIENT.into(), &|_| {}).await);
        assert_eq!(arguments(&answer), arguments(sent), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_its_id_and_its_revision_in_each_request_and_an_end() {
    let remote = Remote::start("well");
    let session = remote.connect().await;
    session.list().await.unwrap();
    text(session.call("echo", arguments("{}"), PATIENT.into(), &|_| {}).await);
    drop(session);
    assert_eq!(remote.of("DELETE").len(), 1, "a drop waits for it");
    let all = remote.seen();
    let opened = all.iter().position(|seen| seen.method() == "initialize").unwrap();
    for seen in &all[..=opened] {
        assert_eq!(seen.header("mcp-session-id"), None, "{seen:?}");
    }
    for seen in &all[opened + 1..] {
        assert_eq!(seen.header("mcp-session-id"), Some("id-0"), "{seen:?}");
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"), "{seen:?}");
        assert_eq!(seen.header("mcp-method"), None, "{seen:?}");
    }
    for seen in all.iter().filter(|seen| seen.verb == "POST") {
        assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.header("authorization"), None);
    }
    assert_eq!(remote.of("GET")[0].header("accept"), Some("text/event-stream"));
    assert_eq!(remote.of("notifications/initialized").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateless_request_says_in_its_headers_what_it_is() {
    let remote = Remote::start("modern");
    let session = remote.connect().await;
    session.list().await.unwrap();
    let sent = arguments(r#"{"region":"Zürich"}"#);
    text(session.call("echo", sent, PATIENT.into(), &|_| {}).await);
    let call = &remote.of("tools/call")[0];
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("echo"));
    assert_eq!(call.header("mcp-param-region"), Some("=?base64?WsO8cmljaA==?="));
    for seen in remote.seen() {
        assert_eq!(seen.verb, "POST");
        assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"), "{seen:?}");
        assert_eq!(seen.header("mcp-method"), Some(seen.method()), "{seen:?}");
        assert_eq!(seen.header("mcp-session-id"), None, "{seen:?}");
    }
    assert_eq!(remote.of("notifications/initialized").len(), 0);
}

/// What each server gets that does not answer as it should, whenever it is noticed.
const HOSTILE: [(&str, &str); 36] = [
    ("hang-head", "gave no answer within 2s while opening the session"),
    ("hang-body", "gave no answer within 2s while opening the session"),
    ("hang-list", "gave no answer within 8s while listing its tools"),
    (
        "close",
        "gave no usable answer while opening the session: the connection to `127.0.0.1` was lost",
    ),
    ("unauthorized", "with status 401: it wants a credential, or another one"),
    ("broken", "while opening the session: the server answered with status 503"),
    ("html", "another kind of content than JSON or a stream of events"),
    ("accepts", "the server answered with status 202 and no answer"),
    ("gzip", "`127.0.0.1` answered with an encoded body, which is not read"),
    ("announces-much", "the answer of `127.0.0.1` is longer than 268435456 bytes"),
    ("much", "it wrote a line of more than 16777216 bytes"),
    ("long-event", "it wrote a line of more than 16777216 bytes"),
    ("bad-utf8", "a line that is no strict JSON: "),
    ("deep", "a line that is no strict JSON: "),
    ("bomb", "a line of more than 500000 values"),
    ("cut", "the answer of `127.0.0.1` was cut off"),
    ("no-answer", "the stream of the answer ended without the answer"),
    ("other-id", "what the server answered is no answer to what was asked"),
    ("other-ids", "more than 100 lines that answer nothing that was asked"),
    ("notices-without-end", "it floods the connection"),
    ("comments-without-end", "it floods the connection"),
    ("odd-id", "the id that it gives the session is not 1 to 1,024 visible ASCII characters"),
    ("long-id", "the id that it gives the session is not 1 to 1,024 visible ASCII characters"),
    ("two-ids", "the id that it gives the session stands there twice"),
    ("control-id", "the connection to `127.0.0.1` was lost"),
    ("new-id", "the id that it gives the session changed"),
    ("unknown-revision", "it answers in the revision `1999-01-01`"),
    ("refuses-notices", "the server answered with status 400"),
    ("list-500", "while listing its tools: the server answered with status 500"),
    ("list-forbidden", "while listing its tools: the server answered with status 403"),
    ("list-cut", "while listing its tools: the stream of the answer ended without the answer"),
    ("modern-refuses", "it says that it tells of changes of its tools, and does not"),
    ("modern-silent", "it says that it tells of changes of its tools, and does not"),
    ("repeats-key", "no answer to what was asked"),
    ("redirects", "answered with a redirect (307), which is never followed"),
    ("redirects-to-get", "answered with a redirect (303), which is never followed"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_remote_opening_ends_with_a_reason_in_bounded_time_and_memory() {
    let elsewhere = Remote::start("well");
    for (mode, expected) in HOSTILE {
        let wait = match expected {
            short if short.starts_with("gave no answer within 2s") => SHORT,
            longer if longer.starts_with("gave no answer within 8s") => SHORT * 4,
            _ => PATIENT,
        };
        let remote = Remote::start_with(mode, Some(elsewhere.at));
        let begun = std::time::Instant::now();
        let failure = match remote.connect_within(wait).await {
            Ok(session) if mode.ends_with("-without-end") => loop {
                // The flood has a stream of its own, which a listing may overtake.
                match session.list().await {
                    Ok(_) => assert!(begun.elapsed() < PATIENT, "{mode} goes on for ever"),
                    Err(failure) => break failure.to_string(),
                }
            },
            Ok(session) => session.list().await.expect_err(mode).to_string(),
            Err(failure) => failure.to_string(),
        };
        let took = begun.elapsed();
        assert!(failure.contains(expected), "{mode}: {failure}");
        assert!(took < Duration::from_secs(40), "{mode} took {took:?}");
    }
    assert_eq!(elsewhere.connections(), 0, "nobody was sent there");
    assert!(peak_mib() < 400, "{} MiB", peak_mib());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_goes_to_its_server_and_comes_back_from_nowhere() {
    let remote = Remote::start("well");
    let session = remote.connect_with_key().await.unwrap();
    session.list().await.unwrap();
    text(session.call("count", arguments("{}"), PATIENT.into(), &|_| {}).await);
    session.close().await;
    assert_eq!(remote.of("DELETE").len(), 1);
    for seen in remote.seen() {
        let bearer = format!("Bearer {CANARY}");
        assert_eq!(seen.header("authorization"), Some(bearer.as_str()), "{seen:?}");
        assert!(!seen.body.to_canonical_string().contains(CANARY));
    }
    let elsewhere = Remote::start("well");
    for mode in ["redirects", "redirects-to-get"] {
        let redirects = Remote::start_with(mode, Some(elsewhere.at));
        let failure = redirects.connect_with_key().await.err().unwrap().to_string();
        assert!(failure.contains("never followed"), "{failure}");
        assert_eq!(redirects.seen().len(), 1, "it was asked once");
        assert_eq!(elsewhere.connections(), 0, "and nobody else");
    }
    let repeats = Remote::start("repeats-key");
    let failure = repeats.connect_with_key().await.err().unwrap().to_string();
    assert!(failure.contains("repeated the credential") && !failure.contains(CANARY), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_or_out_of_reach_is_not_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let server = HttpServer::new(Target::parse(&format!("http://{at}/")).unwrap());
    let egress = client(&server, Credentials::none());
    let failure = Http::connect(server, egress.clone(), PATIENT).await.err().unwrap().to_string();
    let expected = "cannot be reached: no connection to `127.0.0.1` could be made";
    assert_eq!(failure, expected);
    // The rules of one server admit no other.
    let remote = Remote::start("well");
    let failure = Http::connect(remote.server(), egress, PATIENT).await.err().unwrap().to_string();
    assert!(failure.contains("is not a place that the operator's rules admit"), "{failure}");
    assert_eq!(remote.connections(), 0);
    let mut inside = HttpServer::new(Target::parse("https://10.0.0.1/mcp").unwrap());
    assert!(inside.rules().is_err(), "a private address has to be said");
    inside.reach = Reach::Private;
    assert!(inside.rules().is_ok());
    let metadata = Target::parse("http://169.254.169.254/mcp").unwrap();
    assert!(HttpServer { target: metadata, ..inside }.rules().is_err());
}
