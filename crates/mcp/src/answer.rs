//! An answer as the result of a tool: canonical JSON within the tool's bound, or a failure that is known.
//!
//! | member | |
//! |---|---|
//! | `structured` | the structured content, whole |
//! | `structured_left_out` | its size in bytes, when it does not fit: it is never cut |
//! | `text` | all text, joined by line ends, links among it; cut at a character, with a mark, when it does not fit |
//! | `text_left_out` | how many bytes of it are missing |
//! | `blobs` | of each image, recording or file: `media_type`, `bytes`, `sha256`, and `base64` while it fits |
//! | `blobs_left_out` | how many of them are not even named |

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::ports::ToolFailure;
use sha2::{Digest as _, Sha256};

use crate::session::{Answer, Block};

/// What a text ends with that was cut.
const CUT: &str = "\n[cut]";

/// Room that structured content leaves for what is said of the rest.
const RESERVE: usize = 256;

/// What a member takes beside its name and its value: quotes, colon, comma, and the quotes or brackets of the value.
const MEMBER: usize = 6;

/// The digits of the largest count.
const NUMBER: usize = 20;

/// The longest media type that is kept.
const MAX_MEDIA_TYPE: usize = 128;

/// What a tool gives back for an answer: at most `max_bytes` of canonical JSON.
///
/// # Errors
/// [`ToolFailure::Failed`] with what the server said, within the same bound, when it says that the call failed. What the
/// call changed before it failed is not known from that.
pub fn outcome(answer: &Answer, max_bytes: u64) -> Result<Vec<u8>, ToolFailure> {
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    if answer.failed {
        return Err(ToolFailure::Failed { message: failure(answer, most) });
    }
    let object = result(answer, most);
    if object.is_empty() {
        // No bytes are an empty object.
        return Ok(Vec::new());
    }
    Ok(object.to_canonical())
}

/// What the server says of a failure: its text, else its structured content as text.
fn failure(answer: &Answer, most: usize) -> String {
    let mut said = text(&answer.blocks);
    if said.trim().is_empty() {
        let structured = answer.structured.as_ref().map(Value::to_canonical_string);
        said = structured.unwrap_or_else(|| "the server says that the call failed".to_owned());
    }
    if said.len() > most { sanitize::clip(&said, most) } else { said }
}

fn result(answer: &Answer, most: usize) -> Object {
    let mut object = Object::new();
    let structured = answer.structured.as_ref();
    let mut text = text(&answer.blocks);
    if let Some(structured) = structured {
        let size = structured.to_canonical().len();
        if size.saturating_add(RESERVE) <= most {
            object.insert("structured", structured.clone());
            if says_the_same(&text, structured) {
                text = String::new();
            }
        } else {
            object.insert("structured_left_out", size);
        }
    }
    let blobs: Vec<&Block> = answer.blocks.iter().filter(|block| is_blob(block)).collect();
    let mut headers = headers(&blobs, most.saturating_sub(len(&object)) / 2);
    let unnamed = blobs.len().saturating_sub(headers.len());
    if unnamed > 0 {
        object.insert("blobs_left_out", unnamed);
    }
    let named = headers.iter().map(|header| len(header).saturating_add(1)).sum::<usize>();
    let named = if headers.is_empty() { 0 } else { named.saturating_add(MEMBER + "blobs".len()) };
    write(&text, most.saturating_sub(named), &mut object);
    enclose(&blobs, most.saturating_sub(len(&object)).saturating_sub(named), &mut headers);
    if !headers.is_empty() {
        object.insert("blobs", headers.into_iter().map(Value::Object).collect::<Vec<_>>());
    }
    // A bound that holds not even what is missing.
    if len(&object) > most { Object::new() } else { object }
}

/// All text, and links as text.
fn text(blocks: &[Block]) -> String {
    let lines = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.clone()),
        Block::Link { uri, name } if name.is_empty() => Some(format!("[link] {uri}")),
        Block::Link { uri, name } => Some(format!("[link] {name}: {uri}")),
        Block::Blob { .. } => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Servers write structured content a second time as text, for clients that read no other.
fn says_the_same(text: &str, structured: &Value) -> bool {
    parse(text.as_bytes(), &Limits::ENVELOPE).is_ok_and(|value| value == *structured)
}

const fn is_blob(block: &Block) -> bool {
    matches!(block, Block::Blob { .. })
}

/// The names of as many blobs as have room.
fn headers(blobs: &[&Block], room: usize) -> Vec<Object> {
    let (mut headers, mut used) = (Vec::new(), 0_usize);
    for block in blobs {
        let Block::Blob { media_type, bytes } = block else { continue };
        let mut header = Object::new();
        header.insert("media_type", sanitize::clip(&sanitize::line(media_type), MAX_MEDIA_TYPE));
        header.insert("bytes", bytes.len());
        header.insert("sha256", hex(&Sha256::digest(bytes)));
        used = used.saturating_add(len(&header)).saturating_add(MEMBER);
        if used > room {
            break;
        }
        headers.push(header);
    }
    headers
}

/// Puts the bytes of blobs to their names while they fit.
fn enclose(blobs: &[&Block], mut room: usize, headers: &mut [Object]) {
    for (block, header) in blobs.iter().zip(headers) {
        let Block::Blob { bytes, .. } = block else { continue };
        let size = bytes.len().div_ceil(3).saturating_mul(4);
        let size = size.saturating_add(MEMBER + "base64".len());
        if size <= room {
            room = room.saturating_sub(size);
            header.insert("base64", STANDARD.encode(bytes));
        }
    }
}

/// Puts the text in, or its beginning with a mark, so that the whole is no longer than `most`.
fn write(text: &str, most: usize, object: &mut Object) {
    if text.is_empty() {
        return;
    }
    let room = most.saturating_sub(len(object)).saturating_sub(MEMBER + "text".len());
    if escaped(text) <= room {
        object.insert("text", text);
        return;
    }
    let mark = escaped(CUT).saturating_add(MEMBER + "text_left_out".len() + NUMBER);
    let kept = beginning(text, room.saturating_sub(mark));
    if !kept.is_empty() {
        object.insert("text", format!("{kept}{CUT}"));
    }
    object.insert("text_left_out", text.len().saturating_sub(kept.len()));
}

/// The longest beginning that takes at most `room` bytes between quotes.
fn beginning(text: &str, room: usize) -> &str {
    let mut used = 0_usize;
    let end = text.char_indices().find(|(_, character)| {
        used = used.saturating_add(escaped_char(*character));
        used > room
    });
    end.map_or(text, |(at, _)| text.get(..at).unwrap_or_default())
}

/// How many bytes a text takes in canonical JSON, between its quotes.
fn escaped(text: &str) -> usize {
    text.chars().map(escaped_char).sum()
}

const fn escaped_char(character: char) -> usize {
    match character {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

fn len(object: &Object) -> usize {
    object.to_canonical().len()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(blocks: Vec<Block>, structured: Option<&str>) -> Answer {
        let structured = structured.map(|text| parse(text.as_bytes(), &Limits::BARE).unwrap());
        Answer { blocks, structured, failed: false }
    }

    fn words(text: &str) -> Block {
        Block::Text(text.to_owned())
    }

    fn blob(bytes: &[u8]) -> Block {
        Block::Blob { media_type: "image/png".to_owned(), bytes: bytes.to_vec() }
    }

    #[track_caller]
    fn check(answer: &Answer, most: u64, expected: &str) {
        let bytes = outcome(answer, most).unwrap();
        assert!(bytes.len() as u64 <= most);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn everything_that_fits_is_there() {
        let link = Block::Link { uri: "file:///a".to_owned(), name: "a".to_owned() };
        let all =
            answer(vec![words("one"), blob(b"abc"), link, words("two")], Some(r#"{"n":1.50}"#));
        check(
            &all,
            4_096,
            concat!(
                r#"{"blobs":[{"base64":"YWJj","bytes":3,"media_type":"image/png","#,
                r#""sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}],"#,
                r#""structured":{"n":1.5},"text":"one\n[link] a: file:///a\ntwo"}"#,
            ),
        );
        check(&answer(vec![], None), 4_096, "");
        check(
            &answer(vec![words("{\"b\": 1, \"a\": 2}")], Some(r#"{"a":2,"b":1}"#)),
            4_096,
            r#"{"structured":{"a":2,"b":1}}"#,
        );
        check(&answer(vec![words("1")], Some("2")), 4_096, r#"{"structured":2,"text":"1"}"#);
    }

    #[test]
    fn structured_content_is_whole_or_left_out_with_its_size() {
        let long = format!("\"{}\"", "x".repeat(998));
        let both = answer(vec![words("in words")], Some(&long));
        check(&both, 1_200, r#"{"structured_left_out":1000,"text":"in words"}"#);
        let whole = outcome(&both, 1_000 + RESERVE as u64).unwrap();
        let whole = parse(&whole, &Limits::BARE).unwrap();
        assert_eq!(whole.get("structured").unwrap().to_canonical().len(), 1_000);
    }

    #[test]
    fn a_text_is_cut_between_characters_and_says_how_much_is_missing() {
        let text = "é\"\u{1}\n".repeat(100);
        let long = answer(vec![words(&text)], None);
        for most in 60..700_u64 {
            let bytes = outcome(&long, most).unwrap();
            assert!(bytes.len() as u64 <= most, "{most}");
            let value = parse(&bytes, &Limits::BARE).unwrap();
            let kept = value.get("text").and_then(Value::as_str).unwrap_or_default();
            let kept = kept.strip_suffix(CUT).unwrap_or(kept);
            let missing = value.get("text_left_out").and_then(Value::as_u64).unwrap();
            assert_eq!(kept.len() as u64 + missing, text.len() as u64, "{most}");
            assert!(text.starts_with(kept), "{most}");
            // No more is missing than the marks take.
            assert!(bytes.len() as u64 + 40 > most, "{most}: {}", bytes.len());
        }
        let whole = outcome(&long, text.len() as u64 * 6).unwrap();
        assert_eq!(
            parse(&whole, &Limits::BARE).unwrap().get("text").unwrap().as_str(),
            Some(text.as_str())
        );
    }

    #[test]
    fn blobs_are_named_first_and_enclosed_while_they_fit() {
        let many = answer((0..100).map(|n| blob(&[n; 300])).chain([words("text")]).collect(), None);
        for most in [200_u64, 1_000, 5_000, 20_000, 60_000] {
            let bytes = outcome(&many, most).unwrap();
            assert!(bytes.len() as u64 <= most, "{most}: {}", bytes.len());
            let value = parse(&bytes, &Limits::BARE).unwrap();
            let named = value.get("blobs").and_then(Value::as_array).unwrap_or_default();
            let left_out = value.get("blobs_left_out").and_then(Value::as_u64).unwrap_or(0);
            assert_eq!(named.len() as u64 + left_out, 100, "{most}");
            assert_eq!(value.get("text").unwrap().as_str(), Some("text"), "{most}");
            let enclosed = named.iter().filter(|blob| blob.get("base64").is_some()).count();
            assert_eq!(enclosed == 100, most == 60_000, "{most}: {enclosed}");
        }
    }

    #[test]
    fn no_bound_is_too_small() {
        let all = answer(vec![words("text"), blob(b"x")], Some(r#"{"a":1}"#));
        for most in 1..60 {
            assert!(outcome(&all, most).unwrap().len() as u64 <= most, "{most}");
        }
    }

    #[test]
    fn what_the_server_calls_a_failure_is_one_that_is_known() {
        let failed = |blocks, structured, most| match outcome(
            &Answer { failed: true, ..answer(blocks, structured) },
            most,
        ) {
            Err(ToolFailure::Failed { message }) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed(vec![words("no\nmoney")], None, 100), "no\nmoney");
        assert_eq!(failed(vec![words(" ")], Some(r#"{"code":7}"#), 100), r#"{"code":7}"#);
        assert_eq!(failed(vec![blob(b"x")], None, 100), "the server says that the call failed");
        assert_eq!(failed(vec![words(&"é".repeat(100))], None, 10), "ééé…");
    }
}
