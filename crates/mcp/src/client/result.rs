//! The answer to a call: what came, as our own types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_canon::{Value, sanitize};

use super::ledger::{Fault, Reply};
use super::request::{Lost, Why};
use crate::session::{Answer, Block, Body, CallFailure, Link, MAX_URI_BYTES, Resource};

/// How much of a server's error goes into a sentence.
const QUOTED_BYTES: usize = 2_000;

/// The type of bytes of which the server says none.
const UNSAID: &str = "application/octet-stream";

/// Errors by which a server says that it did not take the request up: no such method, no request, no JSON, a revision
/// or a capability that it asks for. That arguments are wrong is not among them: tools say so half-way, too.
const NOT_TAKEN_UP: [i64; 6] = [-32601, -32600, -32700, -32020, -32021, -32022];

/// Errors by which a server says that it has no resource of that URI: of the revisions with sessions, and of the one without.
const NO_RESOURCE: [i64; 2] = [-32002, -32602];

/// What an answer to a call that came says.
pub(super) fn answer(reply: Reply) -> Result<Answer, CallFailure> {
    match settled(reply) {
        Ok(result) => Ok(complete(&result)),
        Err(CallFailure::Failed(sentence)) => Ok(failed(sentence)),
        Err(failure) => Err(failure),
    }
}

/// What an answer to the reading of a resource says.
pub(super) fn read(reply: Reply) -> Result<Value, CallFailure> {
    match reply {
        Reply::Error(code, _) if NO_RESOURCE.contains(&code) => Err(CallFailure::NoSuchResource),
        reply => settled(reply),
    }
}

/// The result of a request, where the server says that it is whole.
pub(super) fn settled(reply: Reply) -> Result<Value, CallFailure> {
    match reply {
        Reply::Needs(needs) => Err(CallFailure::Needs(needs)),
        Reply::Error(code, message) => {
            let message = sanitize::clip(&sanitize::line(&message), QUOTED_BYTES);
            let sentence = format!("the server answered with error {code}: {message}");
            Err(match NOT_TAKEN_UP.contains(&code) {
                true => CallFailure::NotSent(sentence),
                false => CallFailure::Failed(sentence),
            })
        }
        Reply::Result(result) => match result.get("resultType").map(|kind| kind.as_str()) {
            None | Some(Some("complete")) => Ok(result),
            Some(Some("input_required")) => Err(CallFailure::Failed(
                "the server asks for more input, which is not offered".to_owned(),
            )),
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

/// One block, by its kind. What cannot be read leaves a word behind.
pub(crate) fn block(block: &Value) -> Block {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or_default();
    let read = match kind {
        "text" => text("text").map(|text| Block::Text(text.to_owned())),
        "image" | "audio" => bytes(text("data")).map(|bytes| Block::Blob {
            media_type: text("mimeType").unwrap_or(UNSAID).to_owned(),
            bytes,
        }),
        "resource_link" => link(block).map(Block::Link),
        "resource" => block.get("resource").and_then(resource).map(Block::Resource),
        _ => None,
    };
    read.unwrap_or_else(|| {
        let kind = sanitize::clip(&sanitize::line(kind), 40);
        Block::Text(format!("[a block of type `{kind}` that cannot be read was left out]"))
    })
}

/// The contents of a resource: text, or bytes.
pub(crate) fn resource(value: &Value) -> Option<Resource> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let body = match text("text") {
        Some(text) => Body::Text(text.to_owned()),
        None => Body::Bytes(bytes(text("blob"))?),
    };
    Some(Resource { uri: uri(value)?, media_type: text("mimeType").map(str::to_owned), body })
}

fn link(value: &Value) -> Option<Link> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(Link {
        uri: uri(value)?,
        name: text("name").unwrap_or_default(),
        title: text("title"),
        description: text("description"),
        media_type: text("mimeType"),
        size: value.get("size").and_then(Value::as_u64),
    })
}

fn uri(value: &Value) -> Option<String> {
    let uri = value.get("uri").and_then(Value::as_str)?;
    (1..=MAX_URI_BYTES).contains(&uri.len()).then(|| uri.to_owned())
}

fn bytes(data: Option<&str>) -> Option<Vec<u8>> {
    STANDARD.decode(data?).ok()
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
    use crate::needs::Needs;
    use crate::session::NO_SUCH_RESOURCE;

    fn read(text: &str) -> Result<Answer, CallFailure> {
        answer(Reply::Result(parse(text.as_bytes(), &Limits::default()).unwrap()))
    }

    #[test]
    fn blocks_are_read_by_their_kind() {
        let read = read(
            r#"{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AQI="},
            {"type":"audio","data":"AQ=="},{"type":"resource_link","uri":"file:///x","name":"x","title":"X","mimeType":"a/b","size":3},
            {"type":"resource","resource":{"uri":"u","text":"t"}},
            {"type":"resource","resource":{"uri":"u","mimeType":"a/b","blob":"Aw=="}},
            {"type":"resource","resource":{"text":"of nobody knows what"}},
            {"type":"resource","resource":{"uri":"u","blob":"!"}},
            {"type":"resource_link","name":"nowhere"},
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
        let held = |uri: &str, media_type: Option<&str>, body| {
            let media_type = media_type.map(str::to_owned);
            Block::Resource(Resource { uri: uri.into(), media_type, body })
        };
        assert_eq!(
            answer.blocks,
            [
                Block::Text("a".into()),
                blob("image/png", &[1, 2]),
                blob("application/octet-stream", &[1]),
                Block::Link(Link {
                    uri: "file:///x".into(),
                    name: "x".into(),
                    title: Some("X".into()),
                    description: None,
                    media_type: Some("a/b".into()),
                    size: Some(3),
                }),
                held("u", None, Body::Text("t".into())),
                held("u", Some("a/b"), Body::Bytes(vec![3])),
                left_out("resource"),
                left_out("resource"),
                left_out("resource_link"),
                left_out("image"),
                left_out("new"),
                left_out(""),
            ]
        );
    }

    #[test]
    fn a_uri_that_is_too_long_is_none() {
        let held = |length: usize| {
            let uri = "u".repeat(length);
            resource(
                &parse(format!(r#"{{"uri":"{uri}","text":""}}"#).as_bytes(), &Limits::BARE)
                    .unwrap(),
            )
        };
        assert!(held(MAX_URI_BYTES).is_some());
        assert!(held(MAX_URI_BYTES + 1).is_none() && held(0).is_none());
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
        for code in NO_RESOURCE {
            let missing = super::read(Reply::Error(code, "in its words".to_owned())).unwrap_err();
            assert_eq!(missing, CallFailure::NoSuchResource);
        }
        assert_eq!(
            error(-32601).unwrap_err(),
            CallFailure::NotSent("the server answered with error -32601: no\\x1B".to_owned())
        );
    }

    #[test]
    fn what_a_server_needs_is_known_from_its_error_and_never_from_its_words() {
        let data = r#"{"data":{"requiredCapabilities":{"sampling":{}}}}"#;
        let needs = Needs::of_error(&parse(data.as_bytes(), &Limits::BARE).unwrap()).unwrap();
        let sentence = needs.to_string();
        assert_eq!(
            answer(Reply::Needs(needs.clone())).unwrap_err(),
            CallFailure::Needs(needs),
            "control"
        );
        for ours in [sentence.as_str(), NO_SUCH_RESOURCE] {
            let said = answer(Reply::Error(-32000, ours.to_owned())).unwrap();
            let whole = format!("the server answered with error -32000: {ours}");
            assert_eq!(
                (said.failed, said.blocks),
                (true, vec![Block::Text(whole)]),
                "it may have changed something"
            );
            let said = settled(Reply::Error(-32601, ours.to_owned())).unwrap_err();
            assert!(matches!(said, CallFailure::NotSent(said) if said != ours), "{ours}");
        }
    }

    #[test]
    fn what_goes_on_without_us_is_unknown() {
        for kind in [r#""task""#, "7"] {
            let read = read(&format!(r#"{{"resultType":{kind}}}"#));
            assert!(matches!(read, Err(CallFailure::Unknown(_))), "{kind}");
        }
    }
}
