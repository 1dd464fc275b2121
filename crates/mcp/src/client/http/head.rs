//! What a message of ours is, and the headers that its request gets for that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_canon::{Limits, Value, parse};
use portcullis_egress::{HeaderFault, Request};

/// The member in which a request of a stateless revision says which one it is.
const REVISION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";

/// What marks a value that is no plain text.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// One message of ours.
#[derive(Debug)]
pub(super) struct Message(Value);

impl Message {
    /// Reads what was written a moment ago. `None` when it cannot be read, which would be a fault of the program.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let limits = Limits::ENVELOPE.with_max_bytes(portcullis_egress::MAX_REQUEST_BODY);
        parse(line, &limits).ok().map(Self)
    }

    /// What it asks or tells; empty for an answer of ours.
    pub(super) fn method(&self) -> &str {
        self.0.get("method").and_then(Value::as_str).unwrap_or_default()
    }

    /// The revision that it says for itself: one that knows no sessions.
    pub(super) fn revision(&self) -> Option<&str> {
        self.0.pointer(REVISION).and_then(Value::as_str)
    }

    /// The tool that it calls.
    pub(super) fn tool(&self) -> Option<&str> {
        let called = self.method() == "tools/call";
        self.0.pointer("/params/name").and_then(Value::as_str).filter(|_| called)
    }

    /// What it names: the tool that is called, the prompt that is asked for, the resource that is read.
    fn named(&self) -> Option<&str> {
        let member = match self.method() {
            "tools/call" | "prompts/get" => "/params/name",
            "resources/read" => "/params/uri",
            _ => return None,
        };
        self.0.pointer(member).and_then(Value::as_str)
    }

    /// The arguments of a call.
    pub(super) fn arguments(&self) -> Option<&Value> {
        self.0.pointer("/params/arguments")
    }

    /// The request that it gives up.
    pub(super) fn gives_up(&self) -> Option<i64> {
        let told = self.method() == "notifications/cancelled";
        self.0.pointer("/params/requestId").and_then(Value::as_i64).filter(|_| told)
    }

    /// The headers by which a stateless request can be routed without reading it.
    pub(super) fn route(&self, mut request: Request) -> Result<Request, HeaderFault> {
        request = request.header("mcp-method", self.method())?;
        match self.named() {
            Some(name) => request.header("mcp-name", &encoded(name)),
            None => Ok(request),
        }
    }
}

/// A text as a header carries it: as it stands where that says the same to everybody, else in base64 with marks.
pub(super) fn encoded(text: &str) -> String {
    let plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let edged = text.starts_with(' ') || text.ends_with(' ');
    let marked = text.starts_with(ENCODED.0) && text.ends_with(ENCODED.1);
    if plain && !edged && !marked {
        return text.to_owned();
    }
    format!("{}{}{}", ENCODED.0, STANDARD.encode(text), ENCODED.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_it_is() {
        let call = Message::read(
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"a":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        )
        .unwrap();
        assert_eq!((call.method(), call.tool()), ("tools/call", Some("pay")));
        assert_eq!(call.revision(), Some("2026-07-28"));
        assert_eq!(call.arguments().unwrap().to_canonical_string(), r#"{"a":1}"#);
        for (asked, name) in [
            (r#"{"method":"prompts/get","params":{"name":"p"}}"#, Some("p")),
            (r#"{"method":"resources/read","params":{"uri":"u:1"}}"#, Some("u:1")),
            (r#"{"method":"completion/complete","params":{"name":"p"}}"#, None),
        ] {
            let asked = Message::read(asked.as_bytes()).unwrap();
            assert_eq!((asked.named(), asked.tool()), (name, None));
        }
        let told = Message::read(
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        )
        .unwrap();
        assert_eq!((told.gives_up(), told.revision(), told.tool()), (Some(7), None, None));
        assert_eq!(Message::read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap().method(), "");
    }

    #[test]
    fn a_value_that_a_header_cannot_carry_is_encoded() {
        for plain in ["us-west1", "a b", "", "=?base64?", "~"] {
            assert_eq!(encoded(plain), plain);
        }
        for (text, expected) in [
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encoded(text), expected);
        }
        assert!(encoded("a\tb").starts_with(ENCODED.0) && encoded("\u{7f}").starts_with(ENCODED.0));
    }
}
