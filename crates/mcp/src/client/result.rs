//! The answer to a call: what came, as our own types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_canon::{Value, sanitize};

use super::ledger::{Fault, Reply};
use super::request::{Lost, Why};
use crate::needs::Needs;
use crate::session::{Answer, Block, CallFailure};

/// How much of a server's error goes into a sentence.
const QUOTED_BYTES: usize = 2_000;

/// Errors by which a server says that it did not take the request up: no such method, no request, no JSON, a revision
/// or a capability that it asks for. That arguments are wrong is not among them: tools say so half-way, too.
const NOT_TAKEN_UP: [i64; 6] = [-32601, -32600, -32700, -32020, -32021, -32022];

/// What an answer that came says.
pub(super) fn answer(reply: Reply) -> Result<Answer, CallFailure> {
    match reply {
        Reply::Error(code, message) => {
            if Needs::read(&message).is_some() {
                return Err(CallFailure::NotSent(message));
            }
            let message = sanitize::clip(&sanitize::line(&message), QUOTED_BYTES);
            let sentence = format!("the server answered with error {code}: {message}");
            if NOT_TAKEN_UP.contains(&code) {
                return Err(CallFailure::NotSent(sentence));
            }
            Ok(failed(sentence))
        }
        Reply::Result(result) => match result.get("resultType").map(|kind| kind.as_str()) {
            None | Some(Some("complete")) => Ok(complete(&result)),
            Some(Some("input_required")) => {
                Ok(failed("the server asks for more input, which is not offered".to_owned()))
            }
            Some(_) => Err(CallFailure::Unknown(
                "the server goes on with the call by itself: what becomes of it is not known"
                    .to_owned(),
            )),
        },
    }
}

/// A known failure, in our words.
fn failed(text: String) -> Answer {
    Answer { blocks: vec![Block::Text(text)], structured: None, failed: true }
}

fn complete(result: &Value) -> Answer {
    let content = result.get("content").map_or(Some(&[][..]), Value::as_array);
    let (Some(_), Some(content)) = (result.as_object(), content) else {
        return failed("the server answered with something that is no result of a tool".to_owned());
    };
    Answer {
        blocks: content.iter().map(block).collect(),
        structured: result.get("structuredContent").filter(|value| !value.is_null()).cloned(),
        failed: result.get("isError").is_some_and(says_failure),
    }
}

/// What is neither `false` nor `null` is no word for a success.
fn says_failure(said: &Value) -> bool {
    !said.is_null() && said.as_bool() != Some(false)
}

fn block(block: &Value) -> Block {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or_default();
    let read = match kind {
        "text" => text("text").map(|text| Block::Text(text.to_owned())),
        "image" | "audio" => blob(text("mimeType"), text("data")),
        "resource_link" => text("uri").map(|uri| Block::Link {
            uri: uri.to_owned(),
            name: text("title").or_else(|| text("name")).unwrap_or_default().to_owned(),
        }),
        "resource" => block.get("resource").and_then(embedded),
        _ => None,
    };
    read.unwrap_or_else(|| {
        let kind = sanitize::clip(&sanitize::line(kind), 40);
        Block::Text(format!("[a block of type `{kind}` that cannot be read was left out]"))
    })
}

fn embedded(resource: &Value) -> Option<Block> {
    let text = |name: &str| resource.get(name).and_then(Value::as_str);
    match text("text") {
        Some(text) => Some(Block::Text(text.to_owned())),
        None => blob(text("mimeType"), text("blob")),
    }
}

fn blob(media_type: Option<&str>, data: Option<&str>) -> Option<Block> {
    let bytes = STANDARD.decode(data?).ok()?;
    let media_type = media_type.unwrap_or("application/octet-stream").to_owned();
    Some(Block::Blob { media_type, bytes })
}

/// What is known of a call without an answer.
pub(super) fn lost(lost: Lost) -> CallFailure {
    let why = match &lost.why {
        Why::Deadline => "the server gave no answer in time".to_owned(),
        Why::Over(Fault::Closed) => "the server closed the connection".to_owned(),
        Why::Over(fault) => format!("the session with the server is over: {fault}"),
        Why::Broken(why) => why.clone(),
    };
    if lost.sent {
        CallFailure::Unknown(format!("{why}: what became of the call is not known"))
    } else {
        CallFailure::NotSent(format!("{why}: the call was not sent"))
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn read(text: &str) -> Result<Answer, CallFailure> {
        answer(Reply::Result(parse(text.as_bytes(), &Limits::default()).unwrap()))
    }

    #[test]
    fn blocks_are_read_by_their_kind() {
        let read = read(
            r#"{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AQI="},
            {"type":"audio","data":"AQ=="},{"type":"resource_link","uri":"file:///x","name":"x"},
            {"type":"resource","resource":{"uri":"u","text":"t"}},
            {"type":"resource","resource":{"uri":"u","mimeType":"a/b","blob":"Aw=="}},
            {"type":"image","mimeType":"image/png","data":"!"},{"type":"new"},7],
            "structuredContent":{"n":1.50},"isError":true}"#,
        );
        let answer = read.unwrap();
        assert!(answer.failed);
        assert_eq!(answer.structured.unwrap().to_canonical_string(), r#"{"n":1.5}"#);
        let left_out = |kind: &str| {
            Block::Text(format!("[a block of type `{kind}` that cannot be read was left out]"))
        };
        let blob = |media_type: &str, bytes: &[u8]| Block::Blob {
            media_type: media_type.into(),
            bytes: bytes.into(),
        };
        assert_eq!(
            answer.blocks,
            [
                Block::Text("a".into()),
                blob("image/png", &[1, 2]),
                blob("application/octet-stream", &[1]),
                Block::Link { uri: "file:///x".into(), name: "x".into() },
                Block::Text("t".into()),
                blob("a/b", &[3]),
                left_out("image"),
                left_out("new"),
                left_out(""),
            ]
        );
    }

    #[test]
    fn an_answer_is_a_known_outcome_whatever_it_says() {
        for empty in
            ["{}", r#"{"content":[]}"#, r#"{"resultType":"complete","structuredContent":null}"#]
        {
            let answer = read(empty).unwrap();
            assert_eq!(
                answer,
                Answer { blocks: vec![], structured: None, failed: false },
                "{empty}"
            );
        }
        for said in ["false", "null"] {
            assert!(!read(&format!(r#"{{"isError":{said}}}"#)).unwrap().failed, "{said}");
        }
        for said in ["true", r#""true""#, r#""false""#, "1", "0", "[]", "{}"] {
            assert!(read(&format!(r#"{{"isError":{said}}}"#)).unwrap().failed, "{said}");
        }
        for odd in ["1", "null", r#"{"content":{}}"#, r#"{"resultType":"input_required"}"#] {
            assert!(read(odd).unwrap().failed, "{odd}");
        }
        let error = |code| answer(Reply::Error(code, "no\u{1b}".to_owned()));
        assert!(error(-32602).unwrap().failed && error(-32000).unwrap().failed);
        let needs = "the server needs what no server is let ask a host for: sampling";
        assert_eq!(
            answer(Reply::Error(-32021, needs.to_owned())).unwrap_err(),
            CallFailure::NotSent(needs.to_owned())
        );
        assert_eq!(
            error(-32601).unwrap_err(),
            CallFailure::NotSent("the server answered with error -32601: no\\x1B".to_owned())
        );
    }

    #[test]
    fn what_goes_on_without_us_is_unknown() {
        for kind in [r#""task""#, "7"] {
            let read = read(&format!(r#"{{"resultType":{kind}}}"#));
            assert!(matches!(read, Err(CallFailure::Unknown(_))), "{kind}");
        }
    }
}
