//! An answer as the result of a tool: canonical JSON within the tool's bound, or a failure that is known.
//!
//! | member | |
//! |---|---|
//! | `structured` | the structured content, whole |
//! | `structured_left_out` | its size in bytes, when it does not fit: it is never cut |
//! | `text` | all text, joined by line ends; cut at a character, with a mark, when it does not fit |
//! | `text_left_out` | how many bytes of it are missing |
//! | `blobs` | of each image or recording: `media_type`, `bytes`, `sha256`, and `base64` while it fits |
//! | `resources` | of each resource that the answer holds: `uri`, `media_type`, `bytes`, `sha256`, and `base64` while it fits, or `text`, cut as above |
//! | `links` | of each link to one: `uri`, `name`, and `title`, `description`, `media_type`, `size` where they are said |
//! | `blobs_left_out`, `resources_left_out`, `links_left_out` | how many of them are not even named |

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::ports::ToolFailure;
use sha2::{Digest as _, Sha256};

use crate::session::{Answer, Block, Body, Link, Resource};

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

/// The longest name or title of a link that is kept.
const MAX_NAME: usize = 256;

/// The longest description of a link that is kept.
const MAX_DESCRIPTION: usize = 1_024;

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

/// What is kept of an answer, in at most so many bytes; empty where they hold not even what is missing.
pub(crate) fn result(answer: &Answer, most: usize) -> Object {
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
    let all: Vec<Named<'_>> = answer.blocks.iter().filter_map(Named::of).collect();
    let mut kept = named_within(all, most.saturating_sub(len(&object)) / 2, &mut object);
    let named = kept.iter().map(|named| len(&named.header).saturating_add(1)).sum::<usize>();
    let named = GROUPS
        .iter()
        .filter(|group| kept.iter().any(|kept| kept.group == **group))
        .fold(named, |sum, group| sum.saturating_add(MEMBER + group.len()));
    write(&text, most.saturating_sub(named), &mut object);
    let mut room = most.saturating_sub(len(&object)).saturating_sub(named);
    for named in &mut kept {
        named.enclose(&mut room);
    }
    for group in GROUPS {
        let (of_group, rest): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|named| named.group == group);
        kept = rest;
        if !of_group.is_empty() {
            let headers = of_group.into_iter().map(|named| Value::Object(named.header));
            object.insert(group, headers.collect::<Vec<_>>());
        }
    }
    // A bound that holds not even what is missing.
    if len(&object) > most { Object::new() } else { object }
}

/// All text.
fn text(blocks: &[Block]) -> String {
    let lines = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        Block::Blob { .. } | Block::Resource(_) | Block::Link(_) => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Servers write structured content a second time as text, for clients that read no other.
fn says_the_same(text: &str, structured: &Value) -> bool {
    parse(text.as_bytes(), &Limits::ENVELOPE).is_ok_and(|value| value == *structured)
}

/// The members of a result that hold what has a name of its own.
const GROUPS: [&str; 3] = ["blobs", "resources", "links"];

/// What has a name of its own in a result: the name, and what is enclosed while it fits.
struct Named<'a> {
    group: &'static str,
    header: Object,
    load: Load<'a>,
}

enum Load<'a> {
    Nothing,
    Bytes(&'a [u8]),
    Text(&'a str),
}

impl<'a> Named<'a> {
    fn of(block: &'a Block) -> Option<Self> {
        match block {
            Block::Text(_) => None,
            Block::Blob { media_type, bytes } => Some(Self::blob(media_type, bytes)),
            Block::Resource(resource) => Some(Self::resource(resource)),
            Block::Link(link) => Some(Self::link(link)),
        }
    }

    fn blob(media_type: &str, bytes: &'a [u8]) -> Self {
        let mut header = held(bytes);
        header.insert("media_type", kept_type(media_type));
        Self { group: "blobs", header, load: Load::Bytes(bytes) }
    }

    fn resource(resource: &'a Resource) -> Self {
        let (mut header, load) = match &resource.body {
            Body::Text(text) => (held(text.as_bytes()), Load::Text(text)),
            Body::Bytes(bytes) => (held(bytes), Load::Bytes(bytes)),
        };
        header.insert("uri", resource.uri.as_str());
        if let Some(media_type) = &resource.media_type {
            header.insert("media_type", kept_type(media_type));
        }
        Self { group: "resources", header, load }
    }

    fn link(link: &Link) -> Self {
        let mut header = Object::new();
        header.insert("uri", link.uri.as_str());
        header.insert("name", sanitize::clip(&link.name, MAX_NAME));
        let said =
            [("title", &link.title, MAX_NAME), ("description", &link.description, MAX_DESCRIPTION)];
        for (member, said, most) in said {
            if let Some(said) = said {
                header.insert(member, sanitize::clip(said, most));
            }
        }
        if let Some(media_type) = &link.media_type {
            header.insert("media_type", kept_type(media_type));
        }
        if let Some(size) = link.size {
            header.insert("size", size);
        }
        Self { group: "links", header, load: Load::Nothing }
    }

    /// Puts what it holds to its name while there is room: bytes whole or not at all, a text or its beginning.
    fn enclose(&mut self, room: &mut usize) {
        let before = len(&self.header);
        match self.load {
            Load::Nothing => {}
            Load::Bytes(bytes) => {
                let size = bytes.len().div_ceil(3).saturating_mul(4);
                if size.saturating_add(MEMBER + "base64".len()) <= *room {
                    self.header.insert("base64", STANDARD.encode(bytes));
                }
            }
            Load::Text("") => {
                if MEMBER + "text".len() <= *room {
                    self.header.insert("text", "");
                }
            }
            // Where not even the mark fits, the size that stands there says what is missing.
            Load::Text(text) if marks() <= *room => {
                write(text, before.saturating_add(*room), &mut self.header);
            }
            Load::Text(_) => {}
        }
        *room = room.saturating_sub(len(&self.header).saturating_sub(before));
    }
}

/// The size and the digest of what is held.
fn held(bytes: &[u8]) -> Object {
    let mut header = Object::new();
    header.insert("bytes", bytes.len());
    header.insert("sha256", hex(&Sha256::digest(bytes)));
    header
}

fn kept_type(media_type: &str) -> String {
    sanitize::clip(&sanitize::line(media_type), MAX_MEDIA_TYPE)
}

/// As many as have room for their names. How many have none is said in the object.
fn named_within<'a>(mut all: Vec<Named<'a>>, room: usize, object: &mut Object) -> Vec<Named<'a>> {
    let mut used = 0_usize;
    let fitting = all.iter().take_while(|named| {
        used = used.saturating_add(len(&named.header)).saturating_add(MEMBER);
        used <= room
    });
    let unnamed = all.split_off(fitting.count());
    for group in GROUPS {
        let missing = unnamed.iter().filter(|named| named.group == group).count();
        if missing > 0 {
            object.insert(format!("{group}_left_out"), missing);
        }
    }
    all
}

/// What a text takes of which nothing is left but the mark and the number of what is missing.
fn marks() -> usize {
    let text = MEMBER.saturating_add("text".len()).saturating_add(escaped(CUT));
    text.saturating_add(MEMBER).saturating_add("text_left_out".len()).saturating_add(NUMBER)
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

    fn link(uri: &str) -> Link {
        let uri = uri.to_owned();
        let (title, description, media_type) = (None, None, None);
        Link { uri, name: "a".to_owned(), title, description, media_type, size: None }
    }

    fn resource(uri: &str, bytes: &[u8]) -> Block {
        let (uri, media_type) = (uri.to_owned(), Some("a/b".to_owned()));
        Block::Resource(Resource { uri, media_type, body: Body::Bytes(bytes.to_vec()) })
    }

    fn note(uri: &str, text: &str) -> Block {
        let body = Body::Text(text.to_owned());
        Block::Resource(Resource { uri: uri.to_owned(), media_type: None, body })
    }

    #[track_caller]
    fn check(answer: &Answer, most: u64, expected: &str) {
        let bytes = outcome(answer, most).unwrap();
        assert!(bytes.len() as u64 <= most);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn everything_that_fits_is_there() {
        let link = Block::Link(link("file:///a"));
        let texts = [words("one"), blob(b"abc"), link, resource("u:1", b"abc"), words("two")];
        let all = answer([texts.to_vec(), vec![note("u:2", "hi")]].concat(), Some(r#"{"n":1.50}"#));
        check(
            &all,
            4_096,
            concat!(
                r#"{"blobs":[{"base64":"YWJj","bytes":3,"media_type":"image/png","#,
                r#""sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}],"#,
                r#""links":[{"name":"a","uri":"file:///a"}],"#,
                r#""resources":[{"base64":"YWJj","bytes":3,"media_type":"a/b","#,
                r#""sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","uri":"u:1"},"#,
                r#"{"bytes":2,"#,
                r#""sha256":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4","text":"hi","uri":"u:2"}],"#,
                r#""structured":{"n":1.5},"text":"one\ntwo"}"#,
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
    fn the_text_of_a_resource_is_cut_with_a_mark_and_its_bytes_never_are() {
        let long = "é\"\n".repeat(200);
        let both = answer(vec![note("u:1", &long), resource("u:2", &[7; 600])], None);
        for most in 400..3_000_u64 {
            let bytes = outcome(&both, most).unwrap();
            assert!(bytes.len() as u64 <= most, "{most}: {}", bytes.len());
            let value = parse(&bytes, &Limits::BARE).unwrap();
            let named = value.get("resources").and_then(Value::as_array).unwrap_or_default();
            let left_out = value.get("resources_left_out").and_then(Value::as_u64).unwrap_or(0);
            assert_eq!(named.len() as u64 + left_out, 2, "{most}");
            for named in named {
                let size = named.get("bytes").and_then(Value::as_u64).unwrap();
                assert_eq!(named.get("sha256").unwrap().as_str().unwrap().len(), 64);
                let text = named.get("text").and_then(Value::as_str).unwrap_or_default();
                let missing = named.get("text_left_out").and_then(Value::as_u64);
                match (named.get("base64"), missing) {
                    (Some(whole), None) => {
                        assert_eq!((size, whole.as_str().unwrap().len()), (600, 800))
                    }
                    (None, Some(missing)) => {
                        let kept = text.strip_suffix(CUT).unwrap_or(text);
                        assert_eq!(kept.len() as u64 + missing, size, "{most}");
                        assert!(long.starts_with(kept), "{most}");
                    }
                    (None, None) => assert!(text.is_empty() || text == long, "{most}"),
                    both => panic!("{most}: {both:?}"),
                }
            }
        }
        let whole = outcome(&both, 3_000).unwrap();
        let whole = parse(&whole, &Limits::BARE).unwrap();
        assert_eq!(whole.pointer("/resources/0/text").unwrap().as_str(), Some(long.as_str()));
        assert!(whole.pointer("/resources/1/base64").is_some());
    }

    #[test]
    fn more_links_than_fit_are_counted() {
        let many = answer((0..1_000).map(|_| Block::Link(link("file:///a"))).collect(), None);
        for most in [100, 1_000, 10_000] {
            let bytes = outcome(&many, most).unwrap();
            assert!(bytes.len() as u64 <= most, "{most}: {}", bytes.len());
            let value = parse(&bytes, &Limits::BARE).unwrap();
            let named = value.get("links").and_then(Value::as_array).unwrap_or_default().len();
            let left_out = value.get("links_left_out").and_then(Value::as_u64).unwrap();
            assert_eq!(named as u64 + left_out, 1_000, "{most}");
        }
    }

    #[test]
    fn no_bound_is_too_small() {
        let blocks = vec![words("text"), blob(b"x"), note("u:1", "y"), Block::Link(link("u:2"))];
        let all = answer(blocks, Some(r#"{"a":1}"#));
        for most in 1..600 {
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
