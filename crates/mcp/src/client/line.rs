//! One line of a server: bounded before it is read, and what it is.

use portcullis_canon::{Limits, Object, Value, parse};

use super::ledger::{Fault, Reply};
use crate::needs::{self, Needs};

/// The longest line from a server, in bytes, without its line end.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// The most values in one line. A value takes some fifty bytes in memory whatever its text.
pub(super) const MAX_VALUES: usize = 500_000;

/// The longest text that a server may use as the number of a request of its own.
const MAX_ID_BYTES: usize = 256;

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A notice.
    Notice {
        /// What it is about.
        method: String,
        /// The whole message.
        message: Value,
    },
    /// The server asks something.
    Question {
        /// Its number, to be given back.
        id: Value,
        /// What it asks.
        method: String,
    },
    /// An answer, to a number when it has one of ours.
    Answer {
        /// Which request it answers.
        id: Option<i64>,
        /// The answer.
        reply: Reply,
        /// The whole message.
        message: Value,
    },
    /// Nothing between two line ends.
    Empty,
    /// No message of the protocol.
    Noise,
}

/// Reads one line. What does not begin as an object is noise, since programs print; what does has to be one.
pub(super) fn read(line: &[u8]) -> Result<Line, Fault> {
    let line = line.trim_ascii();
    match line.first() {
        None => return Ok(Line::Empty),
        Some(b'{') => {}
        Some(_) => return Ok(Line::Noise),
    }
    if has_too_many_values(line) {
        return Err(Fault::ManyValues);
    }
    let limits = Limits::ENVELOPE.with_max_bytes(MAX_LINE_BYTES);
    let message = parse(line, &limits).map_err(|error| Fault::NotJson(error.to_string()))?;
    let Some(object) = message.as_object() else { return Ok(Line::Noise) };
    Ok(meaning(object).map_or(Line::Noise, |meaning| match meaning {
        Meaning::Notice(method) => Line::Notice { method, message },
        Meaning::Question(id, method) => Line::Question { id, method },
        Meaning::Answer(id, reply) => Line::Answer { id, reply, message },
    }))
}

enum Meaning {
    Notice(String),
    Question(Value, String),
    Answer(Option<i64>, Reply),
}

/// `None` for an object that is no message.
fn meaning(object: &Object) -> Option<Meaning> {
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return None;
    }
    let id = object.get("id").filter(|id| !id.is_null());
    let (result, error) = (object.get("result"), object.get("error"));
    match (object.get("method"), result, error) {
        (Some(method), None, None) => {
            let method = method.as_str()?.to_owned();
            match id {
                None => Some(Meaning::Notice(method)),
                Some(id) => Some(Meaning::Question(usable(id)?, method)),
            }
        }
        (None, Some(result), None) => {
            Some(Meaning::Answer(id.and_then(Value::as_i64), Reply::Result(result.clone())))
        }
        (None, None, Some(error)) => {
            let code = error.get("code").and_then(Value::as_i64)?;
            let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
            let needs = Needs::of_error(error).filter(|_| code == i64::from(needs::CODE));
            let reply = needs.map_or_else(|| Reply::Error(code, message.to_owned()), Reply::Needs);
            Some(Meaning::Answer(id.and_then(Value::as_i64), reply))
        }
        _ => None,
    }
}

fn usable(id: &Value) -> Option<Value> {
    let text = id.as_str().is_some_and(|text| text.len() <= MAX_ID_BYTES);
    (text || id.as_i64().is_some()).then(|| id.clone())
}

/// Counts what separates values, outside of strings, without reading any.
fn has_too_many_values(line: &[u8]) -> bool {
    let (mut count, mut inside, mut escaped) = (0_usize, false, false);
    for byte in line {
        match (inside, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => inside = !inside,
            (false, b',' | b'[' | b'{') => count = count.saturating_add(1),
            _ => {}
        }
    }
    count > MAX_VALUES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let read = |text: &str| read(text.as_bytes()).unwrap();
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#),
            Line::Notice { method, .. } if method == "notifications/x"
        ));
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#),
            Line::Question { id: Value::from("a"), method: "ping".to_owned() }
        );
        assert!(matches!(
            read(" {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1.50}\r"),
            Line::Answer { id: Some(7), reply: Reply::Result(_), .. }
        ));
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#),
            Line::Answer { id: Some(7), reply: Reply::Error(-1, text), .. } if text == "no"
        ));
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}}"#),
            Line::Answer { reply: Reply::Needs(needs), .. } if needs.names() == "roots"
        ));
        for other in [
            r#"{"code":-32021,"message":"no"}"#,
            r#"{"code":-32000,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}"#,
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,"error":{other}}}"#);
            assert!(
                matches!(read(&text), Line::Answer { reply: Reply::Error(_, no), .. } if no == "no"),
                "{other}"
            );
        }
        for odd in [r#"{"jsonrpc":"2.0","id":"7","result":1}"#, r#"{"jsonrpc":"2.0","result":1}"#] {
            assert!(matches!(read(odd), Line::Answer { id: None, .. }), "{odd}");
        }
        assert_eq!(read("  \r"), Line::Empty);
        for noise in [
            "Listening",
            "[1]",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"result":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
            r#"{"jsonrpc":"2.0","method":1}"#,
        ] {
            assert_eq!(read(noise), Line::Noise, "{noise}");
        }
    }

    #[test]
    fn what_begins_as_an_object_has_to_be_strict() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(300), "]".repeat(300));
        for bad in [
            &b"{"[..],
            b"{\"a\":\"\xff\"}",
            b"{\"a\":1,\"a\":2}",
            b"{\"a\":1}{\"b\":2}",
            deep.as_bytes(),
        ] {
            assert!(matches!(read(bad), Err(Fault::NotJson(_))), "{bad:?}");
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        let many = |n: usize| format!("{{\"a\":[{}1]}}", "1,".repeat(n));
        assert_eq!(read(many(MAX_VALUES).as_bytes()), Err(Fault::ManyValues));
        assert_eq!(read(many(MAX_VALUES - 2).as_bytes()), Ok(Line::Noise), "control");
        let text =
            format!("{{\"a\":\"{}\\\"{}\"}}", ",".repeat(MAX_VALUES), "[".repeat(MAX_VALUES));
        assert_eq!(read(text.as_bytes()), Ok(Line::Noise), "control: one string");
    }
}
