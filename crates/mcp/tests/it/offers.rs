//! What a server offers beside tools, and what one that means no good makes of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_canon::Object;
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::ports::{Lack, ToolFailure, ToolOutput, ToolSource as _};
use portcullis_domain::time::Timestamp;
use portcullis_mcp::{
    Asks, CallFailure, Listing, Manifest, McpOffers, NO_SUCH_RESOURCE, OfferFate, OfferKind,
    OfferRules, OfferTerms, OpenError, ServerName, Session, Stdio,
};
use portcullis_testkit::permit::permit_for;
use portcullis_testkit::ports::ManualClock;

use crate::scene::{PATIENT, SHORT, Scene, arguments, peak_mib};

async fn listing_fails(mode: &str, expected: &str) {
    let scene = Scene::new(mode);
    let wait = if mode == "offers-hang" { SHORT } else { PATIENT };
    let session = scene.connect_within(wait).await.unwrap();
    let failure = session.offers(OfferKind::Resource).await.unwrap_err().to_string();
    assert!(failure.contains(expected), "{mode}: {failure}");
}

#[tokio::test]
async fn a_listing_without_end_or_sense_has_a_named_reason() {
    for (mode, expected) in [
        ("offers-flood", "lists more than 1000 resources"),
        ("offers-heavy", "listed its resources without end: more than 8 MiB"),
        ("offers-endless", "listed its resources without end: more than 100 pages"),
        ("offers-twice", "lists the resource `n:1` twice"),
        ("offers-odd", "a resource that is no object with a `uri`"),
        ("offers-refused", "refuses to list its resources"),
        ("offers-hang", "while listing its resources"),
    ] {
        listing_fails(mode, expected).await;
    }
    assert!(peak_mib() < 300, "{} MiB", peak_mib());
}

fn rules() -> OfferRules {
    OfferRules {
        resources: Some(vec!["n:*".parse().unwrap()]),
        prompts: Some(BTreeSet::from(["n:1".to_owned()])),
        completions: true,
        ..OfferRules::default()
    }
}

/// The server's offers, pinned as it offers them at this moment.
async fn pinned(session: &dyn Session) -> Manifest {
    let mut offers = Vec::new();
    for kind in OfferKind::ALL {
        offers.extend(session.offers(kind).await.unwrap());
    }
    let listing = Listing::new(Vec::new()).unwrap();
    Manifest::pin(ServerName::new("odd").unwrap(), &listing, Timestamp::from_micros(0))
        .with_offers(offers)
}

async fn opened(
    session: &Arc<Stdio>,
) -> Result<(McpOffers, Vec<portcullis_mcp::OfferLine>), OpenError> {
    let session = Arc::clone(session) as Arc<dyn Session>;
    let manifest = pinned(session.as_ref()).await;
    let terms = OfferTerms {
        manifest: &manifest,
        rules: &rules(),
        place: "here",
        deadline: PATIENT,
        max_result_bytes: 4_096,
    };
    let clock = Arc::new(ManualClock::default());
    McpOffers::open(&ServerName::new("odd").unwrap(), session, &terms, clock).await
}

async fn call(offers: &McpOffers, asks: Asks, params: &str) -> Result<ToolOutput, ToolFailure> {
    offers.call(permit_for(&offers.tool(asks).unwrap(), arguments(params))).await
}

fn text(output: Result<ToolOutput, ToolFailure>) -> String {
    String::from_utf8(output.unwrap().content).unwrap()
}

#[tokio::test]
async fn a_server_without_tools_is_read_and_what_it_gives_is_bounded() {
    let scene = Scene::new("offers");
    let session = Arc::new(scene.connect().await);
    assert_eq!(session.list().await.unwrap().tools().len(), 0);
    let (offers, lines) = opened(&session).await.unwrap();
    assert!(
        lines.iter().all(|line| line.fate == OfferFate::Shown) && lines.len() == 3,
        "{lines:?}"
    );
    let shown = offers.shown(OfferKind::Resource).next().unwrap().shown();
    assert!(!shown.contains_key("icons"), "an address that a host would ask");
    let read = call(&offers, Asks::Read, r#"{"uri":"n:1"}"#).await.unwrap();
    assert_eq!(read.labels, Some(Labels::of(Origin::external("odd/n:1"))));
    for uri in ["n:huge", "n:long"] {
        let kept = text(call(&offers, Asks::Read, &format!(r#"{{"uri":"{uri}"}}"#)).await);
        assert!(kept.len() <= 4_096 && kept.contains("\"sha256\":"), "{uri}: {}", kept.len());
        assert_eq!(kept.contains("[cut]"), uri == "n:long", "{uri}");
    }
    for (uri, words) in
        [("n:other", "another resource than the one"), ("n:more", "asks for more input")]
    {
        let failed = call(&offers, Asks::Read, &format!(r#"{{"uri":"{uri}"}}"#)).await;
        let Err(ToolFailure::Failed { message }) = failed else { panic!("{uri}: {failed:?}") };
        assert!(message.contains(words), "{message}");
    }
    let none = call(&offers, Asks::Read, r#"{"uri":"n:none"}"#).await;
    let message = NO_SUCH_RESOURCE.to_owned();
    let missing = ToolFailure::Lacking { lack: Lack::Subject, message };
    assert_eq!(none, Err(missing), "in words of ours, whatever the server says");
    let hangs = session.ask(Asks::Read, arguments(r#"{"uri":"n:hang"}"#), SHORT, &|_| {}).await;
    assert!(matches!(hangs, Err(CallFailure::Unknown(_))), "{hangs:?}");
    let typed = r#"{"ref":{"type":"ref/prompt","name":"n:1"},"argument":{"name":"a","value":""}}"#;
    let completed = text(call(&offers, Asks::Complete, typed).await);
    assert!(completed.starts_with(r#"{"has_more":true,"values":["v","v","#), "{completed}");
}

#[tokio::test]
async fn a_prompt_that_changes_in_the_middle_is_not_got_any_more() {
    let scene = Scene::new("offers-changed");
    let session = Arc::new(scene.connect().await);
    // Each listing says something else, so that what was pinned a moment ago is changed already.
    let (offers, lines) = opened(&session).await.unwrap();
    assert!(lines.iter().all(|line| matches!(line.fate, OfferFate::Changed(_))), "{lines:?}");
    assert_eq!(OfferKind::ALL.map(|kind| offers.shown(kind).count()), [0, 0, 0]);
    let got = call(&offers, Asks::Prompt, r#"{"name":"n:1"}"#).await;
    assert!(matches!(got, Err(ToolFailure::NothingHappened { .. })), "{got:?}");

    let scene = Scene::new("offers");
    let session = Arc::new(scene.connect().await);
    let (offers, _) = opened(&session).await.unwrap();
    let before = session.changes();
    assert!(text(call(&offers, Asks::Prompt, r#"{"name":"n:1"}"#).await).contains("hello"));
    // It says so before it answers.
    assert!(session.changes() > before);
    assert!(
        text(call(&offers, Asks::Prompt, r#"{"name":"n:1"}"#).await).contains("hello"),
        "it is the same"
    );
}

#[tokio::test]
async fn what_is_not_offered_is_not_asked_for() {
    let scene = Scene::new("");
    let session = scene.connect().await;
    for kind in OfferKind::ALL {
        assert_eq!(session.offers(kind).await.unwrap(), []);
    }
    let empty: Object = arguments("{}");
    let asked = session.ask(Asks::Read, empty, SHORT, &|_| {}).await;
    assert!(matches!(asked, Err(CallFailure::NotSent(_))), "a read without a name: {asked:?}");
}
