//! What came back: as much of it as the operator takes, as JSON, labelled with the host that said it.

use portcullis_canon::{Object, Value, sanitize};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::ports::ToolOutput;
use portcullis_egress::{EgressError, Incoming};

use super::rules::{HttpPlace, HttpRules};
use crate::encoding::{Encoding, base64, text_of};

/// How much longer the gate waits than the client, so that it is the client that says what was slow.
const MARGIN_MS: u64 = 5_000;

/// The longest value of a header that is handed out, in bytes.
const MAX_HEADER: usize = 1_024;

/// The most bytes that one byte of content can become in JSON, as an escape.
const ESCAPED: u64 = 6;

/// What stands around the content and the headers.
const AROUND: u64 = 4 * 1_024;

/// How long the gate waits for one call.
pub(super) fn deadline_ms(rules: &HttpRules) -> u64 {
    u64::try_from(rules.whole().as_millis()).unwrap_or(u64::MAX).saturating_add(MARGIN_MS)
}

/// The largest result under these rules.
pub(super) fn max_result(rules: &HttpRules) -> u64 {
    // Each header has a name of at most 64 bytes and what JSON puts around it.
    let header = u64::try_from(MAX_HEADER).unwrap_or(u64::MAX).saturating_mul(ESCAPED) + 80;
    let headers = u64::try_from(rules.handed_out()).unwrap_or(u64::MAX).saturating_mul(header);
    rules.content().saturating_mul(ESCAPED).saturating_add(headers).saturating_add(AROUND)
}

/// An answer whose body was read as far as it is handed out.
pub(super) struct Answer {
    status: u16,
    headers: Object,
    body: Vec<u8>,
    cut: bool,
}

/// Reads an answer. What is more than the rules take is not waited for: dropping the rest closes the connection.
pub(super) async fn collect(
    mut incoming: Incoming,
    rules: &HttpRules,
) -> Result<Answer, EgressError> {
    let most = usize::try_from(rules.content()).unwrap_or(usize::MAX);
    let (mut body, mut cut) = (Vec::new(), false);
    while let Some(piece) = incoming.piece().await? {
        let room = most.saturating_sub(body.len());
        cut = piece.len() > room;
        body.extend(piece.into_iter().take(room));
        if cut {
            break;
        }
    }
    Ok(Answer { status: incoming.status, headers: headers(&incoming, rules), body, cut })
}

/// Those of the headers that are handed out and that are text, the first of each name.
fn headers(incoming: &Incoming, rules: &HttpRules) -> Object {
    let mut kept = Object::new();
    for (name, value) in incoming.headers.iter().filter(|(name, _)| rules.hands_out(name)) {
        if let (Ok(text), false) = (std::str::from_utf8(value), kept.contains_key(name)) {
            kept.insert(name, sanitize::clip(text, MAX_HEADER));
        }
    }
    kept
}

impl Answer {
    /// The result. All of it is the host's word, the status included.
    pub(super) fn output(self, place: &HttpPlace) -> ToolOutput {
        let body = if self.cut { whole_characters(&self.body) } else { &self.body };
        let (encoding, content) = match text_of(body) {
            Some(text) => (Encoding::Utf8, text.to_owned()),
            None => (Encoding::Base64, base64(&self.body)),
        };
        let mut result = Object::from_iter([
            ("status", Value::from(u64::from(self.status))),
            ("headers", Value::Object(self.headers)),
            ("encoding", Value::from(encoding.as_str())),
            ("content", Value::from(content)),
        ]);
        if self.cut {
            result.insert("cut", true);
        }
        let labels = Labels::of(Origin::external(place.host()));
        ToolOutput { content: Value::Object(result).to_canonical(), labels: Some(labels) }
    }
}

/// Bytes that were cut, without the beginning of a character whose rest is not there.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        // Only an end that is missing has no length.
        Err(error) if error.error_len().is_none() => {
            bytes.get(..error.valid_up_to()).unwrap_or(bytes)
        }
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_whole_characters_and_bytes_as_they_are() {
        assert_eq!(whole_characters("aé".as_bytes()), "aé".as_bytes());
        assert_eq!(whole_characters(b"a\xc3"), b"a");
        assert_eq!(whole_characters(b"a\xe6\x97"), b"a");
        assert_eq!(whole_characters(b"a\xff"), b"a\xff");
        assert_eq!(whole_characters(b""), b"");
    }
}
