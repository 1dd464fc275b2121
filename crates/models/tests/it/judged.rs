//! Recordings are held to what live replies are held to: what a provider's body came to live, it comes to again, and what
//! no provider could have said is not played.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{
    BoxFuture, Model, ModelCall, ModelFault, ModelName, ModelOutcome, Price, Projection, Watch,
};
use portcullis_models::{
    Answer, Dialect, Exchange, FenceSeed, Manifest, Pieces, Profile, Provider, ProviderConfig,
    Recorder, Replayer, Transport, TransportFailure,
};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::SeededEntropy;

use crate::shapes::{Spec, pieces, whole};

/// A provider that answers everything with one body.
struct Says(String);

struct Body(Option<Vec<u8>>);

impl Pieces for Body {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, TransportFailure>> {
        Box::pin(async { Ok(self.0.take()) })
    }
}

impl Transport for Says {
    fn exchange(&self, _: Exchange) -> BoxFuture<'_, Result<Answer, TransportFailure>> {
        let body = Box::new(Body(Some(self.0.clone().into_bytes())));
        Box::pin(async move { Ok(Answer { status: 200, retry_after: None, body }) })
    }
}

fn name() -> ModelName {
    ModelName::read("p:m").unwrap()
}

fn call(streamed: bool) -> ModelCall {
    ModelCall {
        request: 0,
        body: Arc::from(*br#"{"messages":[],"model":"m"}"#),
        projection: Projection::of(27, 100),
        labels: Labels::none(),
        watch: streamed.then(|| Watch::new(|_| {})),
    }
}

/// What the body comes to, recorded; the folder that it was recorded into.
fn recorded(dialect: Dialect, streamed: bool, body: String, path: &Path) -> ModelOutcome {
    let config = ProviderConfig {
        name: name(),
        dialect,
        base: "https://h/v1".to_owned(),
        credential: None,
        marked_for: std::collections::BTreeSet::new(),
        price: Price::Free,
    };
    let seed = FenceSeed::draw(&SeededEntropy::new(3));
    let manifest = Manifest {
        model: name(),
        dialect,
        profile: Profile::V1,
        seed,
        max_output_tokens: None,
        extra: Object::new(),
    };
    let provider = Arc::new(Provider::new(config, Arc::new(Says(body))).unwrap());
    let recorder = Recorder::open(provider, path, manifest).unwrap();
    block_on(recorder.attempt(call(streamed)))
}

fn replayed(path: &Path) -> ModelOutcome {
    block_on(Replayer::open(path).unwrap().attempt(call(false)))
}

fn refused_bodies() -> Vec<(ModelFault, Spec)> {
    let uses = |uses: &[(&'static str, &'static str, &'static str)]| Spec {
        uses: uses.to_vec(),
        stop: "tools",
        ..Spec::default()
    };
    vec![
        (ModelFault::ArgumentsNotObject, uses(&[("a", "t", "[1]")])),
        (ModelFault::RepeatedId, uses(&[("a", "t", "{}"), ("a", "u", "{}")])),
        (ModelFault::EmptyReply, Spec { text: "", ..Spec::default() }),
        (ModelFault::UnknownStop, Spec { stop: "mood", ..Spec::default() }),
        (ModelFault::UsageImplausible, Spec { usage: Some(("-1", "7")), ..Spec::default() }),
    ]
}

#[test]
fn what_is_refused_live_is_recorded_and_refused_again() {
    for (fault, spec) in refused_bodies() {
        for dialect in Dialect::ALL {
            for streamed in [false, true] {
                let folder = tempfile::TempDir::new().unwrap();
                let path = folder.path().join("tape");
                let body = if streamed { pieces(dialect, &spec) } else { whole(dialect, &spec) };
                let live = recorded(dialect, streamed, body.clone(), &path);
                let ModelOutcome::Failed(failure) = &live else { panic!("{live:?}") };
                assert_eq!(failure.fault, fault, "{dialect:?} {streamed}");
                assert_eq!(failure.raw.as_deref(), Some(body.as_bytes()), "{dialect:?}");
                assert_eq!(replayed(&path), live, "{dialect:?} {streamed}");
            }
        }
    }
}

#[test]
fn what_came_is_played_as_it_came() {
    let uses = vec![("a", "t", r#"{"path":"x"}"#), ("b", "t", "{}")];
    for spec in [Spec { uses, stop: "tools", ..Spec::default() }, Spec::default()] {
        for dialect in Dialect::ALL {
            for streamed in [false, true] {
                let folder = tempfile::TempDir::new().unwrap();
                let path = folder.path().join("tape");
                let body = if streamed { pieces(dialect, &spec) } else { whole(dialect, &spec) };
                let live = recorded(dialect, streamed, body, &path);
                assert!(matches!(live, ModelOutcome::Reply(_)), "{live:?}");
                assert_eq!(replayed(&path), live, "{dialect:?} {streamed}");
            }
        }
    }
}

#[test]
fn what_may_be_tried_again_is_not_recorded() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("tape");
    let all = pieces(Dialect::OpenAi, &Spec::default());
    let cut = all[..all.len() / 2].to_owned();
    let live = recorded(Dialect::OpenAi, true, cut, &path);
    assert!(
        matches!(&live, ModelOutcome::Failed(f) if f.fault == ModelFault::CutShort),
        "{live:?}"
    );
    let played = replayed(&path);
    assert!(matches!(&played, ModelOutcome::Failed(f) if f.fault == ModelFault::NotRecorded));
}

/// The only exchange of a recording.
fn exchange(path: &Path) -> PathBuf {
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|file| !file.ends_with("recording.json")).unwrap()
}

/// Whether the recording is still played after `change` of its exchange.
fn plays_after(path: &Path, change: &dyn Fn(&mut Object)) -> bool {
    let file = exchange(path);
    let before = std::fs::read(&file).unwrap();
    let Ok(Value::Object(mut whole)) = parse(&before, &Limits::ENVELOPE) else {
        panic!("no object")
    };
    change(&mut whole);
    std::fs::write(&file, Value::Object(whole).to_canonical_string()).unwrap();
    let played = replayed(path);
    std::fs::write(&file, before).unwrap();
    match played {
        ModelOutcome::Failed(failure) => {
            assert_eq!(failure.fault, ModelFault::RecordingFailed, "{failure}");
            false
        }
        _ => true,
    }
}

fn reply_with(whole: &mut Object, key: &str, value: &str) {
    let Some(Value::Object(mut reply)) = whole.get("reply").cloned() else { panic!("no reply") };
    reply.insert(key, parse(value.as_bytes(), &Limits::ENVELOPE).unwrap());
    whole.insert("reply", Value::Object(reply));
}

#[test]
fn what_no_provider_could_have_said_is_not_played() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("tape");
    let spec = Spec { uses: vec![("a", "t", "{}")], stop: "tools", ..Spec::default() };
    let body = whole(Dialect::OpenAi, &spec);
    recorded(Dialect::OpenAi, false, body, &path);
    let set = |key: &'static str, value: String| {
        plays_after(&path, &move |whole: &mut Object| reply_with(whole, key, &value))
    };
    let one = |id: &str, name: &str, arguments: &str| {
        format!(r#"{{"id":"{id}","name":"{name}","arguments":{arguments}}}"#)
    };
    let usage = |count: u64| {
        format!(
            r#"{{"input":{count},"cache_read":0,"cache_write":0,"cache_write_long":0,"output":1}}"#
        )
    };
    // The control: other words, tools and counts that could have come are played.
    assert!(set("text", r#""Other.""#.to_owned()));
    assert!(set("uses", format!("[{},{}]", one("a", "t", "{}"), one("b", "t", "{}"))));
    assert!(set("usage", usage(1_000_000_000)));

    assert!(!set("uses", format!("[{},{}]", one("a", "t", "{}"), one("a", "t", "{}"))));
    assert!(!set("uses", format!("[{}]", one("a", "", "{}"))));
    assert!(!set("uses", format!("[{}]", one("", "t", "{}"))));
    assert!(!set("uses", format!("[{}]", one("a", "t", "[]"))));
    let deep = format!("{}1{}", r#"{"a":"#.repeat(257), "}".repeat(257));
    assert!(!set("uses", format!("[{}]", one("a", "t", &deep))));
    let many: Vec<String> = (0..65).map(|n| one(&n.to_string(), "t", "{}")).collect();
    assert!(!set("uses", format!("[{}]", many.join(","))));
    assert!(!set("uses", "[]".to_owned()));
    assert!(!set("stop", r#""max_tokens""#.to_owned()));
    assert!(!set("stop", r#""end_turn""#.to_owned()));
    assert!(!set("stop", r#""mood""#.to_owned()));
    assert!(!set("usage", usage(1_000_000_001)));
    // Only Anthropic's thinking goes back as it came.
    assert!(!set("verbatim", r#""[]""#.to_owned()));
    assert!(!plays_after(&path, &|whole: &mut Object| drop(whole.remove("reply"))));
}

#[test]
fn a_refusal_stands_only_with_its_body() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("tape");
    let spec = Spec { uses: vec![("a", "t", "[1]")], stop: "tools", ..Spec::default() };
    recorded(Dialect::OpenAi, false, whole(Dialect::OpenAi, &spec), &path);
    assert!(
        matches!(replayed(&path), ModelOutcome::Failed(f) if f.fault == ModelFault::ArgumentsNotObject)
    );
    let good = whole(Dialect::OpenAi, &Spec::default());
    assert!(!plays_after(&path, &|whole: &mut Object| {
        whole.insert("raw", good.as_str());
    }));
    let empty = whole(Dialect::OpenAi, &Spec { text: "", ..Spec::default() });
    assert!(!plays_after(&path, &|whole: &mut Object| {
        whole.insert("raw", empty.as_str());
    }));
}
