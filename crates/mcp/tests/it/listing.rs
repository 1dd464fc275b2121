//! Listings: the server's own digits and keys, and lists without end.

use std::time::Duration;

use portcullis_mcp::{MAX_LISTING_BYTES, Session as _};

use crate::scene::{PATIENT, Scene, failure_of, peak_mib};

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_stands_in_the_listing_as_the_server_wrote_it() {
    for mode in ["well", "modern"] {
        let session = Scene::new(mode).connect().await;
        // The second time is asked again, whatever the server says of how long a page is good for.
        for _ in 0..2 {
            let listing = session.list().await.unwrap();
            assert_eq!(
                listing.get("count").unwrap().raw().to_canonical_string(),
                r#"{"Name":"x","inputSchema":{"maximum":9007199254740993},"name":"count"}"#
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_listing_ends_with_a_reason_in_bounded_time_and_memory() {
    for (mode, expected) in [
        ("endless", "listed its tools without end: more than 100 pages"),
        ("circle", "listed its tools without end: a cursor that it gave before"),
        ("many", "lists more than 1000 tools"),
        ("heavy", "listed its tools without end: more than 8 MiB"),
        ("twice", "lists the tool `a` twice"),
        ("wrong-id", "more than 100 lines that answer nothing that was asked"),
        ("die-list", "closed the connection while listing its tools"),
        ("half-list", "closed the connection while listing its tools"),
        ("refuse-list", "refuses to list its tools (error -32000: no)"),
    ] {
        let (failure, took) = failure_of(mode, PATIENT).await;
        assert!(failure.contains(expected), "{mode}: {failure}");
        assert!(took < Duration::from_secs(30), "{mode} took {took:?}");
    }
    let most = 300 + MAX_LISTING_BYTES as u64 / (1 << 20);
    assert!(peak_mib() < most, "{} MiB", peak_mib());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_its_question_is_not_taken() {
    let session = Scene::new("eager").connect().await;
    let listing = session.list().await.unwrap();
    assert!(listing.get("forged").is_none() && listing.get("echo").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_come_again_end_the_session() {
    let scene = Scene::new("double");
    let session = scene.connect().await;
    // The first of them is the answer.
    assert_eq!(session.list().await.unwrap().tools().len(), 0);
    let failure = loop {
        if let Err(failure) = session.list().await {
            break failure.to_string();
        }
    };
    assert!(failure.contains("more than 100 lines that answer nothing"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_counted() {
    for mode in ["well", "modern"] {
        let session = Scene::new(mode).connect().await;
        session.list().await.unwrap();
        assert_eq!(session.changes(), 0, "{mode}");
        session.call("change", Default::default(), PATIENT.into(), &|_| {}).await.unwrap();
        assert_eq!(session.changes(), 1, "{mode}");
    }
    let session = Scene::new("changes-while-listed").connect().await;
    session.list().await.unwrap();
    assert_eq!(session.changes(), 1);
}
