//! Rendering: pinned bytes, the fence, windows, and that the same steps give the same bytes.

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::ports::AdvertisedTool;
use portcullis_models::{Dialect, FenceSeed, Frame, Head, Profile, Said, StepResult, Transcript};
use portcullis_testkit::ports::SeededEntropy;
use proptest::prelude::*;

fn frame(dialect: Dialect) -> Frame {
    frame_in(dialect, Profile::LATEST)
}

fn frame_in(dialect: Dialect, profile: Profile) -> Frame {
    let schema = Object::from_iter([("type", "object")]);
    let tool = AdvertisedTool {
        name: "files.read".to_owned(),
        description: "Reads.".to_owned(),
        input_schema: Value::Object(schema),
    };
    let head = Head {
        model: "m".to_owned(),
        system: profile.system(Some("Be kind.")),
        tools: [tool].into(),
        max_output_tokens: 64,
        strict_tools: false,
        extra: Object::from_iter([("temperature", 0)]),
    };
    dialect.frame(&head).unwrap()
}

fn transcript(dialect: Dialect) -> Transcript {
    transcript_in(dialect, Profile::LATEST)
}

fn transcript_in(dialect: Dialect, profile: Profile) -> Transcript {
    let seed = FenceSeed::draw(&SeededEntropy::new(5));
    Transcript::new(dialect, profile, seed, "tidy\nup")
}

fn push(transcript: &mut Transcript, request: u64, outcome: &str, content: &Value, external: bool) {
    let result = StepResult {
        id: format!("step_{request}"),
        tool: "files.read",
        arguments: Object::from_iter([("path", format!("f{request}"))]),
        request,
        index: 0,
        outcome,
        content,
        external,
    };
    transcript.push(Said { text: format!("Step {request}."), verbatim: None }, &[result]);
}

fn read(body: &[u8]) -> Value {
    let value = parse(body, &Limits::BARE).expect("a request is strict JSON");
    assert_eq!(value.to_canonical(), body, "a request is canonical");
    value
}

fn text(transcript: &Transcript, dialect: Dialect) -> String {
    let body = transcript.body(&frame(dialect));
    read(&body);
    String::from_utf8(body).unwrap()
}

fn story(dialect: Dialect) -> Transcript {
    story_in(dialect, Profile::LATEST)
}

fn story_in(dialect: Dialect, profile: Profile) -> Transcript {
    let mut made = transcript_in(dialect, profile);
    let long = Value::from("line\n".repeat(100));
    push(&mut made, 0, "tool_result", &long, true);
    push(&mut made, 1, "tool_result", &Value::from("it's \u{202e}short"), true);
    push(&mut made, 2, "denied", &Value::Object(Object::from_iter([("refusal", "policy")])), false);
    push(&mut made, 3, "tool_error", &Value::Object(Object::from_iter([("message", "no")])), true);
    push(&mut made, 4, "interrupted", &Value::Null, false);
    push(&mut made, 5, "not_attempted", &Value::Null, false);
    made.push_remark(Some("I will".to_owned()), "[max_tokens] Cut.");
    push(&mut made, 7, "tool_result", &Value::from("x"), false);
    push(&mut made, 8, "tool_result", &Value::from("y"), false);
    made
}

/// What a recording is keyed on. A change here is a new profile, not a new value.
#[test]
fn every_profile_is_pinned() {
    for (profile, dialect) in Profile::ALL.into_iter().flat_map(|p| Dialect::ALL.map(|d| (p, d))) {
        let path = format!("tests/fixtures/profile_{}_{}.json", profile.as_str(), dialect.as_str());
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let rendered = story_in(dialect, profile).body(&frame_in(dialect, profile));
        if std::env::var_os("PORTCULLIS_WRITE_FIXTURES").is_some() && !path.exists() {
            std::fs::write(&path, &rendered).unwrap();
        }
        assert_eq!(rendered, std::fs::read(&path).unwrap(), "{profile:?} {dialect:?}");
    }
}

#[test]
fn old_long_results_become_a_line_and_short_ones_stay() {
    for dialect in Dialect::ALL {
        let rendered = text(&story(dialect), dialect);
        assert!(
            rendered.contains("[summary] tool_result: 602 bytes from `files.read`"),
            "{rendered}"
        );
        assert!(!rendered.contains("line\\\\nline"), "{rendered}");
        assert!(rendered.contains("it's \\\\u{202E}short"), "{rendered}");
        assert!(!rendered.contains('\u{202e}'));
    }
}

#[test]
fn a_long_result_is_capped_and_says_so() {
    let mut made = transcript(Dialect::OpenAi);
    push(&mut made, 0, "tool_result", &Value::from("ü".repeat(20_000)), true);
    let rendered = text(&made, Dialect::OpenAi);
    assert!(
        rendered.contains("[cut] Only the first 23999 of 40002 bytes are shown."),
        "{rendered}"
    );
    assert!(rendered.len() < 27_000, "{}", rendered.len());
}

#[test]
fn a_very_long_run_leaves_its_oldest_steps_out_and_stays_bounded() {
    for dialect in Dialect::ALL {
        let mut made = transcript(dialect);
        let content = Value::from("z".repeat(8 * 1024));
        let mut most = 0;
        for request in 0..1_200 {
            push(&mut made, request, "tool_result", &content, true);
            if request % 50 == 0 || request > 1_150 {
                most = most.max(made.body(&frame(dialect)).len());
            }
        }
        assert!(most < 260 * 1024, "{most}");
        let rendered = text(&made, dialect);
        assert!(rendered.contains("earlier steps of this run are not shown."), "{dialect:?}");
        assert!(rendered.contains("f1199") && !rendered.contains("Step 1."));
        // Every result that is there has the tool use that it names, and the other way round.
        if dialect == Dialect::Anthropic {
            assert_eq!(
                rendered.matches("\"type\":\"tool_use\"").count(),
                rendered.matches("\"type\":\"tool_result\"").count()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn content_from_outside_stays_inside_its_fence(
        hostile in "(<<end of outside [0-9a-f]{16}>>|\\n|\"|\\\\|[\u{200b}\u{202e}\u{e0041}a-z<> ]){0,60}",
    ) {
        for dialect in Dialect::ALL {
            let mut made = transcript(dialect);
            push(&mut made, 0, "tool_result", &Value::from(hostile.as_str()), true);
            let value = read(&made.body(&frame(dialect)));
            let messages = value.get("messages").and_then(Value::as_array).unwrap();
            let last = messages.last().unwrap();
            let told = last.get("content").and_then(Value::as_str);
            let told = told.or_else(|| last.pointer("/content/0/content").and_then(Value::as_str)).unwrap();
            let lines: Vec<&str> = told.lines().collect();
            prop_assert_eq!(lines.len(), 4, "{}", told);
            prop_assert_eq!(told.matches(lines[3]).count(), 1);
            let hidden = told.contains(['\u{200b}', '\u{202e}', '\u{e0041}']);
            prop_assert!(!hidden);
        }
    }

    #[test]
    fn the_same_steps_give_the_same_bytes(steps in prop::collection::vec(("[a-z]{0,300}", any::<bool>()), 1..20)) {
        for dialect in Dialect::ALL {
            let mut one = transcript(dialect);
            let mut other = transcript(dialect);
            for (request, (content, external)) in steps.iter().enumerate() {
                let content = Value::from(content.as_str());
                push(&mut one, request as u64, "tool_result", &content, *external);
                // Asking in between changes nothing.
                let _ = one.body(&frame(dialect));
                push(&mut other, request as u64, "tool_result", &content, *external);
            }
            prop_assert_eq!(one.body(&frame(dialect)), other.body(&frame(dialect)));
        }
    }
}
