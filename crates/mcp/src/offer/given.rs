//! What a server gave for a resource, a prompt or a completion, as the result of a tool: canonical JSON within its bound.
//!
//! | of | member | |
//! |---|---|---|
//! | a resource | `resources` | as in the result of a tool; none is missing |
//! | a prompt | `messages` | of each: `role`, and `text`, `blobs`, `resources` or `links` as in the result of a tool |
//! | | `messages_left_out` | how many did not fit |
//! | a completion | `values`, `total`, `has_more` | the values that fit, at most 100 |

use portcullis_canon::{Object, Value};

use super::rules::OfferRules;
use crate::answer::result;
use crate::client::{block, resource};
use crate::session::{Answer, Block, Resource};

/// Why what was given is not used. One sentence, for the agent.
pub(super) type Unfit = &'static str;

/// The most values of a completion that the protocol knows.
const MAX_VALUES: usize = 100;

/// Room for what is said of what is missing, and for the names of members.
const RESERVE: usize = 64;

/// The most parts of a resource that are looked at.
const MAX_CONTENTS: usize = 1_000;

/// The most messages that are looked at.
const MAX_MESSAGES: usize = 1_000;

/// What a resource holds. Everything in it has to be of the resource that was asked for, or lie below it.
pub(super) fn contents(
    given: &Value,
    asked: &str,
    rules: &OfferRules,
    most: usize,
) -> Result<Object, Unfit> {
    let contents = given.get("contents").and_then(Value::as_array);
    let contents = contents.ok_or("the server answered with something that is no resource")?;
    if contents.len() > MAX_CONTENTS {
        return Err("the server answered with more parts than are looked at");
    }
    let read = |value: &Value| {
        resource(value).ok_or("the server answered with contents that cannot be read")
    };
    let read: Vec<Resource> = contents.iter().map(read).collect::<Result<_, _>>()?;
    let own = |uri: &str| uri == asked || (lies_below(uri, asked) && rules.reads(uri));
    if read.iter().any(|resource| !own(&resource.uri)) {
        return Err("the server answered with another resource than the one that was asked for");
    }
    let kept = result(&answer(read.into_iter().map(Block::Resource).collect()), most);
    let named = kept.get("resources").and_then(Value::as_array).map_or(0, <[Value]>::len);
    // A host could not be told that some are missing.
    match named == contents.len() {
        true => Ok(kept),
        false => Err("the server answered with more parts of a resource than are kept"),
    }
}

/// Whether a URI goes on where another one ends.
fn lies_below(uri: &str, place: &str) -> bool {
    let rest = uri.strip_prefix(place);
    rest.is_some_and(|rest| place.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

/// The messages of a prompt.
pub(super) fn messages(given: &Value, most: usize) -> Result<Object, Unfit> {
    let messages = given.get("messages").and_then(Value::as_array);
    let messages = messages.ok_or("the server answered with something that is no prompt")?;
    let (mut kept, mut room) = (Vec::new(), most.saturating_sub(RESERVE));
    for message in messages.iter().take(MAX_MESSAGES) {
        let Some(message) = self::message(message, room)? else { break };
        room = room.saturating_sub(message.to_canonical().len()).saturating_sub(1);
        kept.push(Value::Object(message));
    }
    let left_out = messages.len().saturating_sub(kept.len());
    let mut object = Object::new();
    object.insert("messages", kept);
    if left_out > 0 {
        object.insert("messages_left_out", left_out);
    }
    Ok(object)
}

/// One message; nothing where there is no room for it.
fn message(message: &Value, room: usize) -> Result<Option<Object>, Unfit> {
    let role = message.get("role").and_then(Value::as_str);
    let role = role.filter(|role| matches!(*role, "user" | "assistant"));
    let role = role.ok_or("the server answered with a message of nobody")?;
    let content =
        message.get("content").ok_or("the server answered with a message without content")?;
    let mut kept = result(&answer(vec![block(content)]), room.saturating_sub(RESERVE));
    if kept.is_empty() && content.get("text").and_then(Value::as_str) != Some("") {
        return Ok(None);
    }
    kept.insert("role", role);
    Ok(Some(kept))
}

/// How a value may go on.
pub(super) fn completion(given: &Value, most: usize) -> Result<Object, Unfit> {
    let unfit = "the server answered with something that is no completion";
    let given = given.get("completion").ok_or(unfit)?;
    let values = given.get("values").and_then(Value::as_array).ok_or(unfit)?;
    let values: Vec<&str> =
        values.iter().map(|value| value.as_str().ok_or(unfit)).collect::<Result<_, _>>()?;
    let (mut kept, mut room) = (Vec::new(), most.saturating_sub(RESERVE));
    for value in values.iter().take(MAX_VALUES) {
        let value = Value::from(*value);
        let size = value.to_canonical().len().saturating_add(1);
        let Some(left) = room.checked_sub(size) else { break };
        room = left;
        kept.push(value);
    }
    let cut = kept.len() < values.len();
    let mut object = Object::new();
    object.insert("values", kept);
    if let Some(total) = given.get("total").and_then(Value::as_u64) {
        object.insert("total", total.min(u64::from(u32::MAX)));
    }
    let more = given.get("hasMore").and_then(Value::as_bool);
    if cut || more.is_some() {
        object.insert("has_more", cut || more == Some(true));
    }
    Ok(object)
}

const fn answer(blocks: Vec<Block>) -> Answer {
    Answer { blocks, structured: None, failed: false }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn value(text: &str) -> Value {
        parse(text.as_bytes(), &Limits::BARE).unwrap()
    }

    fn text(object: Result<Object, Unfit>) -> String {
        Value::Object(object.unwrap()).to_canonical_string()
    }

    fn read(text: &str, most: usize) -> Result<Object, Unfit> {
        let rules =
            OfferRules { resources: Some(vec!["n://*".parse().unwrap()]), ..OfferRules::default() };
        contents(&value(text), "n://a", &rules, most)
    }

    #[test]
    fn a_resource_is_the_one_that_was_asked_for_or_lies_below_it() {
        let of = |uri: &str| {
            format!(
                r#"{{"contents":[{{"uri":"n://a","text":"hi"}},{{"uri":"{uri}","text":"x"}}]}}"#
            )
        };
        for own in ["n://a", "n://a/b", "n://a#b", "n://a?b"] {
            let kept = value(&text(read(&of(own), 4_096)));
            assert_eq!(kept.pointer("/resources/1/uri").and_then(Value::as_str), Some(own));
        }
        for other in ["n://b", "n://ab", "n://a/../b", "file:///etc/passwd", "n:///a"] {
            assert!(read(&of(other), 4_096).unwrap_err().contains("another resource"), "{other}");
        }
        for odd in [
            "{}",
            "[]",
            r#"{"contents":{}}"#,
            r#"{"contents":[7]}"#,
            r#"{"contents":[{"uri":"n://a"}]}"#,
            r#"{"contents":[{"text":"x"}]}"#,
        ] {
            assert!(read(odd, 4_096).is_err(), "{odd}");
        }
        assert_eq!(text(read(r#"{"contents":[]}"#, 4_096)), "{}");
    }

    #[test]
    fn what_a_resource_holds_is_bounded() {
        let huge =
            format!(r#"{{"contents":[{{"uri":"n://a","blob":"{}"}}]}}"#, "AAAA".repeat(100_000));
        let kept = value(&text(read(&huge, 1_000)));
        assert_eq!(kept.pointer("/resources/0/bytes").and_then(Value::as_u64), Some(300_000));
        assert_eq!(kept.pointer("/resources/0/base64"), None);
        let long =
            format!(r#"{{"contents":[{{"uri":"n://a","text":"{}"}}]}}"#, "x".repeat(100_000));
        let kept = text(read(&long, 1_000));
        assert!(kept.len() <= 1_000 && kept.contains("[cut]"), "{kept}");
        let many = vec![r#"{"uri":"n://a","text":"x"}"#; 100].join(",");
        let many = format!(r#"{{"contents":[{many}]}}"#);
        assert!(read(&many, 1_000).unwrap_err().contains("more parts"));
        assert!(read(&many, 100_000).is_ok(), "control");
    }

    #[test]
    fn messages_of_a_prompt_are_kept_in_order_and_counted() {
        let two = r#"{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi"}},{"role":"assistant","content":{"type":"resource","resource":{"uri":"n://a","text":"x"}}},{"role":"user","content":{"type":"text","text":""}}]}"#;
        let kept = text(messages(&value(two), 4_096));
        assert!(
            kept.starts_with(
                r#"{"messages":[{"role":"user","text":"hi"},{"resources":[{"bytes":1,"#
            ),
            "{kept}"
        );
        assert!(kept.ends_with(r#"{"role":"user"}]}"#), "{kept}");
        let one = format!(
            r#"{{"role":"user","content":{{"type":"text","text":"{}"}}}}"#,
            "x".repeat(300)
        );
        let many = format!(r#"{{"messages":[{}]}}"#, vec![one; 50].join(","));
        for most in [1_000, 2_000, 5_000] {
            let kept = text(messages(&value(&many), most));
            assert!(kept.len() <= most, "{most}: {}", kept.len());
            let kept = value(&kept);
            let there = kept.get("messages").unwrap().as_array().unwrap().len();
            let left_out = kept.get("messages_left_out").and_then(Value::as_u64).unwrap();
            assert_eq!(there as u64 + left_out, 50, "{most}");
        }
        for odd in [
            "{}",
            r#"{"messages":[7]}"#,
            r#"{"messages":[{"role":"system","content":{"type":"text","text":"x"}}]}"#,
            r#"{"messages":[{"role":"user"}]}"#,
        ] {
            assert!(messages(&value(odd), 4_096).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_completion_has_at_most_a_hundred_values_that_fit() {
        let some = r#"{"completion":{"values":["a","b"],"total":2,"hasMore":false}}"#;
        assert_eq!(
            text(completion(&value(some), 4_096)),
            r#"{"has_more":false,"total":2,"values":["a","b"]}"#
        );
        let many =
            format!(r#"{{"completion":{{"values":[{}]}}}}"#, vec!["\"value\""; 150].join(","));
        let kept = value(&text(completion(&value(&many), 100_000)));
        assert_eq!(kept.get("values").unwrap().as_array().unwrap().len(), 100);
        assert_eq!(kept.get("has_more"), Some(&Value::from(true)));
        assert!(text(completion(&value(&many), 256)).len() <= 256);
        for odd in ["{}", r#"{"completion":{}}"#, r#"{"completion":{"values":[7]}}"#] {
            assert!(completion(&value(odd), 4_096).is_err(), "{odd}");
        }
    }
}
