//! Recordings on a real disk: private, whole, in sequence, and never a way to a live model.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use portcullis_canon::{Object, Value};
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{
    Model, ModelCall, ModelFault, ModelName, ModelOutcome, ModelReply, Price, Projection, Stop,
    ToolUse, Usage,
};
use portcullis_models::{
    Dialect, FenceSeed, Manifest, Profile, Recorder, Replayer, ScriptedModel, TapeError,
};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::SeededEntropy;
use tempfile::TempDir;

fn name() -> ModelName {
    ModelName::read("anthropic:m").unwrap()
}

fn manifest() -> Manifest {
    Manifest {
        model: name(),
        dialect: Dialect::Anthropic,
        profile: Profile::V1,
        seed: FenceSeed::draw(&SeededEntropy::new(3)),
        max_output_tokens: Some(100),
        extra: Object::new(),
    }
}

fn call(body: &str) -> ModelCall {
    ModelCall {
        request: 0,
        body: body.as_bytes().into(),
        projection: Projection::of(1, 1),
        labels: Labels::none(),
        watch: None,
    }
}

fn reply(text: &str) -> ModelReply {
    let arguments = Object::from_iter([("n", Value::from(u64::MAX)), ("s", Value::from("é\u{0}"))]);
    ModelReply {
        stop: Stop::ToolUse,
        text: text.to_owned(),
        uses: vec![ToolUse { id: "a".to_owned(), name: "t".to_owned(), arguments }],
        verbatim: Some(b"[ {\"x\":1.50} ]".as_slice().into()),
        usage: Some(Usage {
            input_tokens: 1,
            cache_read_tokens: 2,
            cache_write_tokens: 3,
            cache_write_long_tokens: 4,
            output_tokens: 5,
        }),
        raw: b"{ \"raw\" : 1 }".as_slice().into(),
    }
}

fn record(folder: &Path, exchanges: &[(&str, &str)]) {
    let outcomes = exchanges.iter().map(|(_, text)| ModelOutcome::Reply(reply(text)));
    let inner = Arc::new(ScriptedModel::new(name(), outcomes));
    let recorder = Recorder::open(inner, folder, manifest()).unwrap();
    for (body, text) in exchanges {
        assert_eq!(block_on(recorder.attempt(call(body))), ModelOutcome::Reply(reply(text)));
    }
}

fn folder() -> (TempDir, std::path::PathBuf) {
    let outer = TempDir::new().unwrap();
    let path = outer.path().join("tape");
    (outer, path)
}

#[track_caller]
fn plays(replayer: &Replayer, body: &str, expected: Result<&str, ModelFault>) {
    match (block_on(replayer.attempt(call(body))), expected) {
        (ModelOutcome::Reply(got), Ok(text)) => assert_eq!(got, reply(text)),
        (ModelOutcome::Failed(failure), Err(fault)) => {
            assert_eq!(failure.fault, fault, "{failure}")
        }
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn equal_requests_are_answered_in_sequence_and_others_not_at_all() {
    let (_outer, path) = folder();
    record(
        &path,
        &[(r#"{"a":1,"b":2}"#, "one"), (r#"{"a":2}"#, "other"), (r#"{ "b":2, "a":1e0 }"#, "two")],
    );
    let replayer = Replayer::open(&path).unwrap();
    assert_eq!(replayer.manifest(), &manifest());
    assert_eq!(replayer.price(), Price::Free);
    // The key is the canonical request: how it is spelled does not count.
    plays(&replayer, r#"{"b":2,"a":1}"#, Ok("one"));
    plays(&replayer, r#"{"a":1,"b":2}"#, Ok("two"));
    plays(&replayer, r#"{"a":1,"b":2}"#, Err(ModelFault::NotRecorded));
    plays(&replayer, r#"{"a":2}"#, Ok("other"));
    plays(&replayer, r#"{"a":3}"#, Err(ModelFault::NotRecorded));
    plays(&replayer, "no json", Err(ModelFault::NotRecorded));
    // Another player begins at the beginning.
    plays(&Replayer::open(&path).unwrap(), r#"{"a":1,"b":2}"#, Ok("one"));
}

#[test]
fn a_later_recording_takes_the_place_of_the_earlier_one() {
    let (_outer, path) = folder();
    record(&path, &[("{}", "one"), ("{}", "two"), ("{}", "three")]);
    record(&path, &[("{}", "new")]);
    let replayer = Replayer::open(&path).unwrap();
    plays(&replayer, "{}", Ok("new"));
    plays(&replayer, "{}", Err(ModelFault::NotRecorded));
}

#[test]
fn what_is_written_is_private_and_whole() {
    let (_outer, path) = folder();
    record(&path, &[("{}", "one")]);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    let mut files = 0;
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{entry:?}");
        assert!(entry.file_name().to_str().unwrap().ends_with(".json"), "{entry:?}");
        files += 1;
    }
    assert_eq!(files, 2);
}

#[test]
fn a_failure_is_not_recorded() {
    let (_outer, path) = folder();
    let inner = Arc::new(ScriptedModel::new(name(), []));
    let recorder = Recorder::open(inner, &path, manifest()).unwrap();
    assert!(matches!(block_on(recorder.attempt(call("{}"))), ModelOutcome::Failed(_)));
    plays(&Replayer::open(&path).unwrap(), "{}", Err(ModelFault::NotRecorded));
}

#[test]
fn a_recording_of_something_else_is_not_gone_on_with() {
    let (_outer, path) = folder();
    record(&path, &[("{}", "one")]);
    let open = |manifest: Manifest| {
        Recorder::open(Arc::new(ScriptedModel::new(name(), [])), &path, manifest)
    };
    let other = Manifest { model: ModelName::read("anthropic:n").unwrap(), ..manifest() };
    assert!(matches!(open(other).err(), Some(TapeError::Other { what: "model" })));
    let other = Manifest { dialect: Dialect::OpenAi, ..manifest() };
    assert!(matches!(open(other).err(), Some(TapeError::Other { what: "dialect" })));
    let other = Manifest { extra: Object::from_iter([("temperature", 0_u64)]), ..manifest() };
    assert!(matches!(open(other).err(), Some(TapeError::Other { what: "set of request members" })));
    // Its own profile and seed are kept, so that what is recorded now replays with what was before.
    let seed = FenceSeed::draw(&SeededEntropy::new(9));
    let drawn = Manifest { seed, profile: Profile::V2, ..manifest() };
    assert_eq!(open(drawn).unwrap().manifest(), &manifest());
}

#[test]
fn what_others_can_write_or_what_is_odd_is_not_played() {
    let (_outer, path) = folder();
    record(&path, &[("{}", "one")]);
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    for mode in [0o775, 0o757] {
        set(&path, mode);
        assert!(matches!(Replayer::open(&path).err(), Some(TapeError::Written { .. })));
    }
    // Others may read what is played: it may have come with a program's source.
    set(&path, 0o755);
    let files = || std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let file = files().find(|path| !path.ends_with("recording.json")).unwrap();
    set(&file, 0o664);
    plays(&Replayer::open(&path).unwrap(), "{}", Err(ModelFault::RecordingFailed));
    set(&file, 0o644);
    plays(&Replayer::open(&path).unwrap(), "{}", Ok("one"));

    let whole = std::fs::read(&file).unwrap();
    for broken in [&whole[..whole.len() / 2], b"{}", b"", b"[]"] {
        std::fs::write(&file, broken).unwrap();
        plays(&Replayer::open(&path).unwrap(), "{}", Err(ModelFault::RecordingFailed));
    }
    // A reply that was cut off and still asks for something could not have come from a model.
    let forged = String::from_utf8(whole.clone()).unwrap().replace("tool_use\"", "max_tokens\"");
    std::fs::write(&file, forged).unwrap();
    plays(&Replayer::open(&path).unwrap(), "{}", Err(ModelFault::RecordingFailed));
    std::fs::remove_file(&file).unwrap();
    symlink("/dev/zero", &file).unwrap();
    plays(&Replayer::open(&path).unwrap(), "{}", Err(ModelFault::RecordingFailed));

    std::fs::remove_file(path.join("recording.json")).unwrap();
    assert!(matches!(Replayer::open(&path).err(), Some(TapeError::Shape { .. })));
    assert!(matches!(Replayer::open(&path.join("none")).err(), Some(TapeError::Io { .. })));
}

#[test]
fn what_others_can_read_is_not_recorded_into() {
    let (_outer, path) = folder();
    record(&path, &[("{}", "one")]);
    let open = || Recorder::open(Arc::new(ScriptedModel::new(name(), [])), &path, manifest());
    assert!(open().is_ok());
    for (what, mode) in [(path.clone(), 0o750), (path.join("recording.json"), 0o640)] {
        let was = std::fs::metadata(&what).unwrap().permissions();
        std::fs::set_permissions(&what, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(open().err(), Some(TapeError::Open { .. })), "{what:?}");
        std::fs::set_permissions(&what, was).unwrap();
    }
    assert!(open().is_ok());
}

#[test]
fn a_reply_that_cannot_be_recorded_is_charged_and_not_handed_on() {
    let (_outer, path) = folder();
    let inner = Arc::new(ScriptedModel::new(name(), [ModelOutcome::Reply(reply("one"))]));
    let recorder = Recorder::open(inner, &path, manifest()).unwrap();
    // The folder goes away beneath it: the file cannot be made, whoever asks.
    std::fs::remove_dir_all(&path).unwrap();
    let ModelOutcome::Failed(failure) = block_on(recorder.attempt(call("{}"))) else {
        panic!("a reply")
    };
    assert_eq!(failure.fault, ModelFault::RecordingFailed);
    assert_eq!(failure.usage, reply("one").usage);
}
