//! Calls over HTTP: each is sent once, and what became of it is known only where the server said so.

use std::sync::Arc;
use std::time::Duration;

use portcullis_mcp::{Answer, CallFailure, Http, Session as _};

use crate::http_scene::Remote;
use crate::scene::{PATIENT, SHORT, arguments, sends_only_while_held, text};

async fn call(session: &Http, tool: &str, wait: Duration) -> Result<Answer, CallFailure> {
    session.call(tool, arguments("{}"), wait.into(), &|_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_call_without_an_answer_is_unknown_and_is_not_made_again() {
    for (tool, expected) in [
        ("count-silent", "gave no answer in time"),
        ("count-close", "was lost before an answer"),
        ("count-cut", "the stream of the answer ended without the answer"),
        ("count-half", "the stream of the answer ended without the answer"),
        ("count-500", "status 500"),
        ("count-coded-500", "status 500"),
        ("count-400", "status 400"),
        ("count-202", "status 202 and no answer"),
        ("count-html", "another kind of content"),
        ("count-gzip", "an encoded body"),
        ("count-redirect", "a redirect (303), which is never followed"),
        ("count-other", "no answer to what was asked"),
        ("count-noise", "no answer to what was asked"),
    ] {
        for mode in ["well", "modern"] {
            let remote = Remote::start(mode);
            let session = remote.connect().await;
            let wait = if tool == "count-silent" { SHORT } else { PATIENT };
            match call(&session, tool, wait).await {
                Err(CallFailure::Unknown(why)) => {
                    assert!(why.contains(expected), "{mode} {tool}: {why}");
                    assert!(why.ends_with("what became of the call is not known"), "{why}");
                }
                other => panic!("{mode} {tool}: {other:?}"),
            }
            // The session goes on: one more request shows that nothing was sent in between.
            assert_eq!(text(call(&session, "count", PATIENT).await), "counted", "{mode} {tool}");
            drop(session);
            assert_eq!(remote.counted(), 2, "{mode} {tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_that_it_did_not_take_up_was_not_sent() {
    for mode in ["without-id", "modern"] {
        let remote = Remote::start(mode);
        let session = remote.connect().await;
        for tool in ["refuse-401", "refuse-403", "refuse-429", "coded-404", "no-such-tool"] {
            let refused = call(&session, tool, PATIENT).await;
            assert!(matches!(refused, Err(CallFailure::NotSent(_))), "{mode} {tool}: {refused:?}");
        }
        let failed = call(&session, "coded-400", PATIENT).await.unwrap();
        assert!(failed.failed, "an error of the server's own is a failure that is known");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_server_ended_is_opened_again_by_a_listing_alone() {
    let remote = Remote::start("forgets");
    let session = remote.connect().await;
    session.list().await.unwrap();
    let before = session.changes();
    let refused = call(&session, "count", PATIENT).await;
    assert!(matches!(refused, Err(CallFailure::NotSent(_))), "{refused:?}");
    let moved = session.changes();
    assert!(moved > before, "its listing is good no more");
    match call(&session, "count", PATIENT).await {
        Err(CallFailure::NotSent(why)) => assert!(why.contains("it ended the session"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(remote.counted(), 1, "a session that is over sends nothing");
    assert_eq!(remote.of("initialize").len(), 1);
    session.list().await.unwrap();
    assert_eq!(session.changes(), moved, "the new listing is good");
    assert_eq!(text(call(&session, "count", PATIENT).await), "counted");
    assert_eq!(remote.of("initialize").len(), 2);
    let last = remote.of("tools/call").pop().unwrap();
    assert_eq!(last.header("mcp-session-id"), Some("id-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_taken_up_again_brings_the_answer_of_the_one_call() {
    let remote = Remote::start("well");
    let session = remote.connect().await;
    assert_eq!(text(call(&session, "resume", PATIENT).await), "resumed");
    assert_eq!(remote.counted(), 1);
    let resumed =
        remote.of("GET").into_iter().filter(|seen| seen.header("last-event-id").is_some());
    assert_eq!(resumed.count(), 1);
    // A stateless server has no such thing.
    let remote = Remote::start("modern");
    let session = remote.connect().await;
    let lost = call(&session, "resume", PATIENT).await;
    assert!(matches!(lost, Err(CallFailure::Unknown(_))), "{lost:?}");
    assert_eq!((remote.counted(), remote.of("GET").len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_waits_for_is_told_where_the_revision_has_a_word_for_it() {
    for (mode, told) in [("well", 1), ("modern", 0)] {
        let remote = Remote::start(mode);
        let session = remote.connect().await;
        let late = call(&session, "count-silent", SHORT).await;
        assert!(matches!(late, Err(CallFailure::Unknown(_))), "{late:?}");
        if told > 0 {
            remote.wait_for("notifications/cancelled", told).await;
        }
        assert_eq!(text(call(&session, "count", PATIENT).await), "counted");
        assert_eq!(remote.of("notifications/cancelled").len(), told, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_server_that_asks_back_is_refused() {
    let remote = Remote::start("well");
    let session = remote.connect().await;
    assert_eq!(text(call(&session, "ask", PATIENT).await), "asked");
    let refused = remote.seen().into_iter().find(|seen| seen.body.get("error").is_some()).unwrap();
    let body = refused.body.to_canonical_string();
    assert!(body.contains("-32601") && body.contains("\"id\":\"s\""), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_remote_calls_at_once_get_their_own_answers() {
    for mode in ["events", "modern"] {
        let remote = Remote::start(mode);
        let session = Arc::new(remote.connect().await);
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..100 {
            let session = Arc::clone(&session);
            calls.spawn(async move {
                let sent = format!(r#"{{"n":{n}}}"#);
                assert_eq!(
                    text(session.call("echo", arguments(&sent), PATIENT.into(), &|_| {}).await),
                    sent
                );
            });
        }
        while let Some(done) = calls.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_changes_are_counted_wherever_they_are_told() {
    for mode in ["well", "modern"] {
        for tool in ["change", "change-after"] {
            let remote = Remote::start(mode);
            let session = remote.connect().await;
            session.list().await.unwrap();
            assert_eq!(session.changes(), 0, "{mode} {tool}");
            assert_eq!(text(call(&session, tool, PATIENT).await), "changed");
            wait_until(|| session.changes() > 0).await;
        }
    }
    // On the stream that a server with a handshake offers, and on the subscription to a stateless one.
    for (mode, tool) in [("notices", "count"), ("modern", "change")] {
        let remote = Remote::start(mode);
        let session = remote.connect().await;
        session.list().await.unwrap();
        assert_eq!(session.changes(), 0, "{mode}");
        call(&session, tool, PATIENT).await.unwrap();
        wait_until(|| session.changes() > 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_what_is_told_counts_as_a_change() {
    for (mode, method) in [
        ("notices-end", "GET"),
        ("notices-late", "GET"),
        ("notices-cut", "GET"),
        ("modern-drops", "subscriptions/listen"),
    ] {
        let remote = Remote::start(mode);
        let session = remote.connect().await;
        remote.wait_for(method, 2).await;
        wait_until(|| session.changes() > 0).await;
        session.list().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_that_it_tells_nothing_is_left_alone() {
    let remote = Remote::start("well");
    let session = remote.connect().await;
    remote.wait_for("GET", 1).await;
    for _ in 0..3 {
        assert_eq!(text(call(&session, "echo", PATIENT).await), "{}");
    }
    assert_eq!(session.changes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_on_a_stream_that_answers_nothing_is_not_taken() {
    let remote = Remote::start("notices-forge");
    let session = remote.connect().await;
    let listing = session.list().await.unwrap();
    assert!(listing.get("forged").is_none() && listing.get("echo").is_some());
    // Nor while the request waits: the server answers the call when it is listed again.
    let before = session.changes();
    let called = session.call("count", arguments("{}"), PATIENT.into(), &|_| {});
    let looked = async {
        wait_until(|| session.changes() >= before + 2).await;
        session.list().await.unwrap();
    };
    let (answer, ()) = tokio::join!(called, looked);
    assert_eq!(text(answer), "counted");
}

async fn wait_until(there: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENT;
    while !there() {
        assert!(std::time::Instant::now() < end, "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_call_whose_run_is_not_held_any_more_is_not_sent() {
    let remote = Remote::start("well");
    sends_only_while_held(&remote.connect().await).await;
    assert_eq!(remote.counted(), 1);
}
