//! Signed thinking goes back as the bytes that it came in.

use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::ports::{ModelReply, Stop};
use portcullis_models::{Dialect, FenceSeed, Head, Profile, Said, StepResult, Transcript};
use portcullis_testkit::ports::SeededEntropy;

/// Odd spellings that another encoder would not keep: order of keys, spaces, escapes, a number with a zero at its end.
const CONTENT: &str = "[ {\"type\":\"thinking\",\"thinking\":\"\\u00e9 first\\/then\",\"signature\":\"EqQB+/==\", \"x\":1.50},{\"type\":\"redacted_thinking\",\"data\":\"AAE=\"},\n {\"type\":\"text\",\"text\":\"I read.\"},{\"input\":{\"path\":\"a\"},\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"files__read\"}]";

fn body(content: &str) -> String {
    format!(
        r#"{{"id":"m","content":{content},"stop_reason":"tool_use","usage":{{"input_tokens":1,"output_tokens":2}}}}"#
    )
}

fn continued(reply: &ModelReply) -> String {
    let seed = FenceSeed::draw(&SeededEntropy::new(1));
    let mut transcript = Transcript::new(Dialect::Anthropic, Profile::LATEST, seed, "read a");
    let content = Value::from("text of a");
    let result = StepResult {
        id: reply.uses[0].id.clone(),
        tool: "files.read",
        arguments: reply.uses[0].arguments.clone(),
        request: 0,
        index: 0,
        outcome: "tool_result",
        content: &content,
        external: true,
    };
    let said = Said { text: reply.text.clone(), verbatim: reply.verbatim.clone() };
    transcript.push(said, &[result]);
    let head = Head {
        model: "m".to_owned(),
        system: "s".to_owned(),
        tools: [].into(),
        max_output_tokens: 5_000,
        strict_tools: false,
        extra: Object::from_iter([("thinking", Object::from_iter([("type", "enabled")]))]),
    };
    let body = transcript.body(&Dialect::Anthropic.frame(&head).unwrap());
    parse(&body, &Limits::BARE).expect("a request is strict JSON");
    String::from_utf8(body).unwrap()
}

#[test]
fn a_content_goes_back_byte_for_byte() {
    let reply = Dialect::Anthropic.read(body(CONTENT).as_bytes()).unwrap();
    assert_eq!(reply.stop, Stop::ToolUse);
    assert_eq!(reply.verbatim.as_deref(), Some(CONTENT.as_bytes()));
    let request = continued(&reply);
    assert_eq!(request.matches(CONTENT).count(), 1, "{request}");
    assert!(request.contains(r#""tool_use_id":"toolu_1""#), "{request}");
}

#[test]
fn blocks_of_empty_text_are_left_out_and_the_others_stay_as_they_are() {
    let with = CONTENT
        .replace("{\"type\":\"text\",\"text\":\"I read.\"}", "{\"type\":\"text\",\"text\":\"\"}");
    let reply = Dialect::Anthropic.read(body(&with).as_bytes()).unwrap();
    let kept = String::from_utf8(reply.verbatim.as_deref().unwrap().to_vec()).unwrap();
    assert!(kept.contains(r#"{"type":"thinking","thinking":"\u00e9 first\/then","signature":"EqQB+/==", "x":1.50}"#), "{kept}");
    assert!(!kept.contains("\"text\":\"\""), "{kept}");
    let request = continued(&reply);
    assert!(request.contains(&kept));
}

#[test]
fn a_streamed_signature_is_put_together_to_the_letter() {
    let events = [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"one \u00e9"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" two"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq+"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"/=="}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"AAE="}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"files__read","input":{}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let mut assembler = Dialect::Anthropic.assembler();
    for event in events {
        assembler.push(format!("data: {event}\n\n").as_bytes(), None).unwrap();
    }
    let reply = assembler.finish().unwrap();
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (3, 9));
    let verbatim: Arc<[u8]> = reply.verbatim.clone().unwrap();
    let blocks = parse(&verbatim, &Limits::BARE).unwrap();
    let at = |pointer: &str| blocks.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(at("/0/thinking"), "one é two");
    assert_eq!(at("/0/signature"), "Eq+/==");
    assert_eq!(at("/1/data"), "AAE=");
    assert!(continued(&reply).contains(std::str::from_utf8(&verbatim).unwrap()));
}
