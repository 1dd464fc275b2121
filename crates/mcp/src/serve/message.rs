//! One message of a host, read by the strict parser. What cannot be read has an answer.

use std::sync::Arc;

use portcullis_canon::{Limits, Object, Value, from_value, parse};
use rmcp::model::{ClientJsonRpcMessage, Extensions, GetExtensions as _, JsonRpcMessage};

use super::MAX_MESSAGE_BYTES;
use super::open::OpenCall;

/// The protocol's number for what is no JSON.
const PARSE_ERROR: i64 = -32_700;

/// The protocol's number for what is no message.
const INVALID_REQUEST: i64 = -32_600;

/// What a request holds, a call's arguments with the digits in which they were sent: rides with the request to whoever performs
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct RawCall {
    pub(super) arguments: Value,
    pub(super) meta: Object,
    /// The conversation that the transport stands for, where it is not the connection itself.
    pub(super) connection: Option<String>,
    /// By which the host says that it does not wait any more, where the library does not hear it.
    pub(super) open: Option<Arc<OpenCall>>,
}

impl RawCall {
    /// What rides with a request: directly over lines, in the head of the request over HTTP.
    pub(super) fn of(extensions: &Extensions) -> Option<&Self> {
        let in_head = || extensions.get::<http::request::Parts>()?.extensions.get();
        extensions.get().or_else(in_head)
    }
}

/// What a host said.
#[derive(Debug)]
pub(super) struct Message {
    /// All of it but the arguments of a call.
    pub(super) envelope: Value,
    /// The same in the types of the library, which keep fewer digits.
    pub(super) decoded: ClientJsonRpcMessage,
    pub(super) raw: RawCall,
}

impl Message {
    /// Reads one message.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Misread> {
        let limits = Limits::ENVELOPE.with_max_bytes(MAX_MESSAGE_BYTES);
        let mut envelope = parse(bytes, &limits).map_err(|error| {
            Misread::new(PARSE_ERROR, &format!("the message is not strict JSON: {}", error.fault))
        })?;
        let raw = raw_call(&mut envelope);
        match from_value(&envelope) {
            Ok(decoded) => Ok(Self { envelope, decoded, raw }),
            Err(_) => Err(Misread {
                id: id(&envelope).cloned().unwrap_or_default(),
                ..Misread::new(INVALID_REQUEST, "this is no message of the protocol")
            }),
        }
    }

    /// The name of what is asked or told.
    pub(super) fn method(&self) -> Option<&str> {
        self.envelope.get("method").and_then(Value::as_str)
    }

    /// The number or text by which the host knows its request.
    pub(super) fn id(&self) -> Option<&Value> {
        id(&self.envelope)
    }

    /// Puts some arguments of a call back into the envelope, for the library to see.
    pub(super) fn put_arguments(&mut self, arguments: Object) {
        if let Value::Object(message) = &mut self.envelope
            && let Some(Value::Object(params)) = message.get_mut("params")
        {
            params.insert("arguments", arguments);
        }
    }

    /// As the library takes it, with what a call holds beside it.
    pub(super) fn into_decoded(mut self) -> ClientJsonRpcMessage {
        if let JsonRpcMessage::Request(request) = &mut self.decoded {
            request.request.extensions_mut().insert(self.raw);
        }
        self.decoded
    }
}

fn id(message: &Value) -> Option<&Value> {
    message.get("id").filter(|id| id.as_str().is_some() || id.as_i64().is_some())
}

/// Takes what a call holds out of its message, before the rest is decoded into types that keep fewer digits.
fn raw_call(message: &mut Value) -> RawCall {
    let params = match message {
        Value::Object(message) => message.get_mut("params"),
        _ => None,
    };
    let Some(Value::Object(params)) = params else { return RawCall::default() };
    let meta = params.get("_meta").and_then(Value::as_object).cloned().unwrap_or_default();
    let arguments = params.remove("arguments").unwrap_or_else(|| Value::Object(Object::new()));
    RawCall { arguments, meta, connection: None, open: None }
}

/// What cannot be read, and what the host is told of it.
#[derive(Debug)]
pub(super) struct Misread {
    id: Value,
    code: i64,
    message: String,
}

impl Misread {
    pub(super) fn new(code: i64, message: &str) -> Self {
        Self { id: Value::Null, code, message: message.to_owned() }
    }

    /// More bytes than a message may have.
    pub(super) fn too_long() -> Self {
        Self::new(PARSE_ERROR, "the message is longer than 4 MiB")
    }

    /// The answer of the protocol.
    pub(super) fn answer(&self) -> Vec<u8> {
        let mut error = Object::new();
        error.insert("code", self.code);
        error.insert("message", self.message.as_str());
        let mut object = Object::new();
        object.insert("jsonrpc", "2.0");
        object.insert("id", self.id.clone());
        object.insert("error", error);
        object.to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ClientRequest;

    use super::*;

    #[test]
    fn arguments_keep_every_digit() {
        let text = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pay","arguments":{"n":123456789012345678901},"_meta":{"k":"v"}}}"#;
        let message = Message::read(text).unwrap().into_decoded();
        let JsonRpcMessage::Request(request) = message else { panic!("no request") };
        let ClientRequest::CallToolRequest(call) = request.request else { panic!("no call") };
        let raw = RawCall::of(call.extensions()).unwrap();
        assert_eq!(raw.arguments.to_canonical_string(), r#"{"n":123456789012345678901}"#);
        assert_eq!(raw.meta.get("k").and_then(Value::as_str), Some("v"));
    }

    #[test]
    fn what_is_no_strict_message_has_a_reason_and_its_id() {
        for (text, code, id) in [
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, PARSE_ERROR, Value::Null),
            ("{", PARSE_ERROR, Value::Null),
            (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, INVALID_REQUEST, Value::from(3_i64)),
            ("[]", INVALID_REQUEST, Value::Null),
        ] {
            let misread = Message::read(text.as_bytes()).unwrap_err();
            assert_eq!((misread.code, misread.id), (code, id), "{text}");
        }
        let read = Message::read(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).unwrap();
        assert_eq!((read.method(), read.id()), (Some("ping"), Some(&Value::from(1_i64))));
    }
}
