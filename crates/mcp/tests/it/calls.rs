//! Calls: each is sent once, and without an answer its outcome is unknown.

use std::time::Duration;

use portcullis_canon::Value;
use portcullis_mcp::{CallFailure, Session as _};

use crate::scene::{PATIENT, SHORT, Scene, arguments, call, sends_only_while_held, text};

#[tokio::test(flavor = "multi_thread")]
async fn arguments_arrive_to_the_digit_and_answers_come_back() {
    let session = Scene::new("well").connect().await;
    let sent = r#"{"a":18446744073709551615,"b":1.5,"c":"\u0001é","d":[null]}"#;
    let answer = session.call("echo", arguments(sent), PATIENT.into(), &|_| {}).await;
    assert_eq!(text(answer), Value::Object(arguments(sent)).to_canonical_string());
    let failed = call(&session, "fail", PATIENT).await.unwrap();
    assert!(failed.failed);
    let asks = call(&session, "ask", PATIENT).await.unwrap();
    assert!(asks.failed, "a result that asks for input is a failure that is known");
    let none = call(&session, "no-such-tool", PATIENT).await;
    assert!(matches!(none, Err(CallFailure::NotSent(_))), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_come_is_unknown_and_the_call_is_not_made_again() {
    for (tool, wait, expected) in [
        ("count-silent", SHORT, "gave no answer in time"),
        ("count-die", PATIENT, "closed the connection"),
        ("count-half", PATIENT, "closed the connection"),
        ("count-noise", PATIENT, "no strict JSON"),
        ("flood", PATIENT, "it floods the connection"),
    ] {
        let scene = Scene::new("well");
        let session = scene.connect().await;
        match call(&session, tool, wait).await {
            Err(CallFailure::Unknown(why)) => assert!(why.contains(expected), "{tool}: {why}"),
            other => panic!("{tool}: {other:?}"),
        }
        drop(session);
        assert_eq!(scene.counted(), 1, "{tool}");
    }
    let scene = Scene::new("well");
    let session = scene.connect().await;
    assert_eq!(text(call(&session, "count", PATIENT).await), "counted", "control");
    assert_eq!(scene.counted(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_dropped_and_the_session_goes_on() {
    let scene = Scene::new("well");
    let session = scene.connect().await;
    let late = call(&session, "count-late", SHORT).await;
    assert!(matches!(late, Err(CallFailure::Unknown(_))), "{late:?}");
    // The server answers that one first.
    assert_eq!(text(call(&session, "echo", PATIENT).await), "{}");
    // It is told that nobody waits any more, in an order with other calls that nobody promised.
    scene.wait_for_notes(&["count", "cancelled"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_is_given_up() {
    let scene = Scene::new("well");
    let session = scene.connect().await;
    let dropped = call(&session, "count-late", PATIENT);
    assert!(tokio::time::timeout(SHORT, dropped).await.is_err());
    assert_eq!(text(call(&session, "echo", PATIENT).await), "{}");
    scene.wait_for_notes(&["count", "cancelled"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_end_of_a_session_nothing_is_sent() {
    let scene = Scene::new("well");
    let session = scene.connect().await;
    let lost = call(&session, "count-die", PATIENT).await;
    assert!(matches!(lost, Err(CallFailure::Unknown(_))), "{lost:?}");
    let after = call(&session, "count", PATIENT).await;
    match after {
        Err(CallFailure::NotSent(why)) => assert!(why.ends_with("the call was not sent"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.counted(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_behind_a_server_that_does_not_read_was_not_sent() {
    let scene = Scene::new("well");
    let session = scene.connect().await;
    // It reads this one and nothing more, so the next fills the pipe and the last stays behind it.
    let wait = Duration::from_secs(8);
    let (first, big, last) = tokio::join!(
        call(&session, "count-hang", wait),
        async {
            scene.wait_for(1).await;
            let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
            session.call("echo", arguments(&text), wait.into(), &|_| {}).await
        },
        async {
            scene.wait_for(1).await;
            // Nothing tells that the pipe is full; the one before this has this long to fill it.
            tokio::time::sleep(wait / 2).await;
            call(&session, "count", Duration::from_millis(500)).await
        },
    );
    assert!(matches!(first, Err(CallFailure::Unknown(_))), "{first:?}");
    assert!(matches!(big, Err(CallFailure::Unknown(_))), "{big:?}");
    assert!(matches!(last, Err(CallFailure::NotSent(_))), "{last:?}");
    drop(session);
    assert_eq!(scene.counted(), 1, "the last one never came");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_back_is_refused() {
    let session = Scene::new("well").connect().await;
    let answer = text(call(&session, "sample", PATIENT).await);
    assert!(answer.contains("-32601") && answer.contains("\"id\":\"s\""), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_get_their_own_answers() {
    let session = std::sync::Arc::new(Scene::new("well").connect().await);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..100 {
        let session = std::sync::Arc::clone(&session);
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

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_call_is_comes_as_numbers_that_grow() {
    let session = Scene::new("well").connect().await;
    let heard = std::sync::Mutex::new(Vec::new());
    let told = |progress: portcullis_mcp::Progress| heard.lock().unwrap().push(progress);
    assert_eq!(
        text(session.call("progress", arguments("{}"), PATIENT.into(), &told).await),
        "done"
    );
    let heard = heard.into_inner().unwrap();
    assert!(heard.windows(2).all(|pair| pair[0].so_far < pair[1].so_far), "{heard:?}");
    assert!(heard.iter().all(|one| [1.0, 2.0, 3.0].contains(&one.so_far)), "{heard:?}");
    let last = heard.last().unwrap();
    assert_eq!((last.so_far, last.total), (3.0, None), "what came before the answer is not lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_run_is_not_held_any_more_is_not_sent() {
    let scene = Scene::new("well");
    sends_only_while_held(&scene.connect().await).await;
    assert_eq!(scene.counted(), 1);
}
