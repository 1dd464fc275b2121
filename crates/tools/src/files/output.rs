//! What a call gives back, and where it comes from.

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::ports::ToolOutput;

/// The largest receipt of a change: two paths of 4,096 bytes, each byte written as an escape of six, and more.
pub(super) const MAX_RECEIPT: u64 = 64 * 1024;

/// Names and content that lie in the folder: from outside, whoever wrote them.
pub(super) fn found(result: Object) -> ToolOutput {
    ToolOutput { content: Value::Object(result).to_canonical(), labels: None }
}

/// The receipt of a change: it says nothing but what the agent said, and numbers made from that.
pub(super) fn done(result: Object) -> ToolOutput {
    let labels = Some(Labels::of(Origin::Agent));
    ToolOutput { content: Value::Object(result).to_canonical(), labels }
}

/// The receipt of a file that was written: where, how long, and the digest that `files.replace` asks for.
pub(super) fn written(path: &str, bytes: &[u8]) -> ToolOutput {
    done(Object::from_iter([
        ("path", Value::from(path)),
        ("size", Value::from(bytes.len())),
        ("digest", Value::from(Digest::of(Kind::File, bytes).to_string())),
    ]))
}
