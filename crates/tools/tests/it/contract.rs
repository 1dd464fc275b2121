//! The contract of every tool source, and what each spec says.

use portcullis_canon::{Object, Value};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::ports::ToolSource;
use portcullis_domain::tool::EffectClass;
use portcullis_testkit::tool_contract::{Example, Subject, assert_kept};
use portcullis_testkit::tree;

use crate::bench::{Bench, digest, nothing};

fn subject() -> Subject {
    let bench = Bench::new();
    bench.put("notes/a.txt", "one\ntwo\n");
    bench.put("b.txt", "two");
    let Bench { _folder: folder, inside, outside, files } = bench;
    let expect = digest("two");
    Subject {
        source: Box::new(files),
        examples: vec![
            Example::new("files.list", [("path", "notes")]),
            Example::new("files.read", [("path", "notes/a.txt")]),
            Example::new("files.search", [("text", "two"), ("path", ".")]),
            Example::new("files.create", [("path", "new.txt"), ("content", "x")]),
            Example::new(
                "files.replace",
                [("path", "b.txt"), ("expect", &expect), ("content", "y")],
            ),
            Example::new("files.move", [("from", "b.txt"), ("to", "notes/c.txt")]),
            Example::new("files.make_folder", [("path", "notes/old")]),
            Example::new("files.delete", [("path", "b.txt"), ("expect", &expect)]),
        ],
        state: Box::new(move || {
            let _kept = &folder;
            let both = [tree::digest(&inside).unwrap(), tree::digest(&outside).unwrap()];
            portcullis_canon::Digest::of_parts(
                portcullis_canon::Kind::Content,
                &[both[0].as_bytes(), both[1].as_bytes()],
            )
        }),
    }
}

#[test]
fn the_contract_is_kept() {
    assert_kept(&subject);
}

#[test]
fn each_spec_says_what_the_issue_asks_for() {
    let said: Vec<_> = Bench::new()
        .files
        .specs()
        .into_iter()
        .map(|spec| (spec.name, spec.effect, spec.source, spec.sink, spec.authority.join(" ")))
        .collect();
    let expected = [
        ("files.list", EffectClass::ReadOnly, true, false, "/path"),
        ("files.read", EffectClass::ReadOnly, true, false, "/path"),
        ("files.search", EffectClass::ReadOnly, true, false, "/path"),
        ("files.create", EffectClass::LocalMutation, false, true, "/path"),
        ("files.replace", EffectClass::LocalMutation, false, true, "/path"),
        ("files.move", EffectClass::LocalMutation, false, true, "/from /to"),
        ("files.make_folder", EffectClass::LocalMutation, false, true, "/path"),
        ("files.delete", EffectClass::Destructive, false, true, "/path"),
    ]
    .map(|(name, effect, source, sink, authority)| {
        (name.to_owned(), effect, source, sink, authority.to_owned())
    });
    assert_eq!(said, expected);
    assert!(Bench::new().files.blocks());
}

#[test]
fn content_is_from_outside_and_a_receipt_is_the_agents_own() {
    let bench = Bench::new();
    bench.put("a.txt", "x");
    for (tool, arguments) in [
        ("files.list", "{}"),
        ("files.read", r#"{"path":"a.txt"}"#),
        ("files.search", r#"{"text":"x"}"#),
    ] {
        // The gate's own default: external, from this tool.
        assert_eq!(bench.call(tool, arguments).unwrap().labels, None, "{tool}");
    }
    let agent = Some(Labels::of(Origin::Agent));
    for (tool, arguments) in [
        ("files.create", r#"{"path":"b.txt","content":""}"#),
        ("files.make_folder", r#"{"path":"d"}"#),
        ("files.move", r#"{"from":"b.txt","to":"d/b.txt"}"#),
        ("files.delete", r#"{"path":"d/b.txt"}"#),
    ] {
        assert_eq!(bench.call(tool, arguments).unwrap().labels, agent, "{tool}");
    }
}

#[test]
fn arguments_that_break_the_schema_change_nothing_even_without_a_gate() {
    let bench = Bench::new();
    bench.put("a.txt", "x");
    let call = |tool: &str, arguments: &[(&str, Value)]| {
        nothing(bench.unchecked(tool, arguments.iter().cloned().collect()))
    };
    let a = || ("path", Value::from("a.txt"));
    let said = call("files.delete", &[a(), ("expect", Value::Null)]);
    assert!(said.starts_with("the arguments do not fit: "), "{said}");
    call("files.delete", &[a(), ("expect", Value::from("sha256:AB"))]);
    call("files.delete", &[a(), ("force", Value::from(true))]);
    call("files.create", &[a()]);
    call("files.create", &[("path", Value::from("b")), ("content", Value::from(7_u64))]);
    assert_eq!(call("files.search", &[("text", Value::from(""))]), "`text` is empty");
    assert_eq!(call("files.read", &[("path", Value::from(""))]), "the path is empty");
    assert_eq!(call("files.format", &[]), "there is no such tool on files");
    assert_eq!(bench.on_disk("a.txt"), b"x");
    // Control: the file can be deleted.
    bench.unchecked("files.delete", Object::from_iter([a()])).unwrap();
}
