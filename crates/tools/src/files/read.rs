//! `files.read`: a file's content, and the digest of the whole.

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::Root;
use serde::Deserialize;

use super::encoding::{Encoding, base64, text_of};
use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.read";

/// The largest file that is read, in bytes: all of it is hashed for its digest, whatever part is asked for.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The most bytes of content in one answer, and the default.
pub const MAX_READ_BYTES: u64 = 1024 * 1024;

/// A mebibyte of control characters, each written as an escape of six bytes, and what stands around it.
const MAX_RESULT: u64 = 8 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    #[serde(default)]
    offset: u64,
    #[serde(default = "whole")]
    limit: u64,
}

const fn whole() -> u64 {
    MAX_READ_BYTES
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Reads a file of at most 16 MiB, 1 MiB at a time. Text comes as text with `encoding` utf8, \
                      anything else as base64. `size` and `digest` are those of the whole file; `files.replace` asks \
                      for the digest. `next_offset` is there when the file goes on."
            .to_owned(),
        input_schema: schema::object(
            [
                ("path", schema::existing_path("the file to read")),
                ("offset", schema::integer("first byte to give", 0, MAX_FILE_BYTES, 0)),
                ("limit", schema::integer("bytes to give at most", 1, MAX_READ_BYTES, whole())),
            ],
            &["path"],
        ),
        effect: EffectClass::ReadOnly,
        source: true,
        sink: false,
        authority: vec!["/path".to_owned()],
        deadline_ms: 10_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: MAX_RESULT,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

pub(super) fn call(root: &Root, arguments: &Object) -> Result<ToolOutput, ToolFailure> {
    let Arguments { path, offset, limit } = arguments::read(arguments)?;
    let path = arguments::path(&path)?;
    let bytes = root.read(&path, MAX_FILE_BYTES).map_err(|error| failure::of_look(&error))?;
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let room = usize::try_from(limit.min(MAX_READ_BYTES)).unwrap_or(usize::MAX);
    let part = Part::of(&bytes, start, room);
    let mut result = Object::from_iter([
        ("path", Value::from(path.as_str())),
        ("size", Value::from(bytes.len())),
        ("digest", Value::from(Digest::of(Kind::File, &bytes).to_string())),
        ("encoding", Value::from(part.encoding.as_str())),
        ("offset", Value::from(part.start)),
        ("content", Value::from(part.content)),
    ]);
    if part.end < bytes.len() {
        result.insert("next_offset", part.end);
    }
    Ok(output::found(result))
}

/// The part of a file that one answer holds.
struct Part {
    encoding: Encoding,
    start: usize,
    end: usize,
    content: String,
}

impl Part {
    /// At most `room` bytes from `start`. Text is cut between characters: the start moves back to one, and an end
    /// that would leave nothing moves on behind one, so that reading on always gets further.
    fn of(bytes: &[u8], start: usize, room: usize) -> Self {
        let end = start.saturating_add(room).min(bytes.len());
        let Some(text) = text_of(bytes) else {
            let content = base64(bytes.get(start..end).unwrap_or_default());
            return Self { encoding: Encoding::Base64, start, end, content };
        };
        let start = text.floor_char_boundary(start);
        let floor = text.floor_char_boundary(end);
        let end = if floor > start { floor } else { text.ceil_char_boundary(end) };
        let content = text.get(start..end).unwrap_or_default().to_owned();
        Self { encoding: Encoding::Utf8, start, end, content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], start: usize, room: usize, expected: (usize, usize, &str)) {
        let part = Part::of(bytes, start, room);
        assert_eq!((part.start, part.end, part.content.as_str()), expected);
    }

    #[test]
    fn text_is_cut_between_characters_and_always_gets_further() {
        let text = "aé日z".as_bytes();
        check(text, 0, 100, (0, 7, "aé日z"));
        check(text, 0, 2, (0, 1, "a"));
        check(text, 1, 1, (1, 3, "é"));
        check(text, 2, 1, (1, 3, "é"));
        check(text, 3, 1, (3, 6, "日"));
        check(text, 6, 1, (6, 7, "z"));
        check(text, 7, 1, (7, 7, ""));
        check(b"", 0, 1, (0, 0, ""));
    }

    #[test]
    fn bytes_are_cut_anywhere() {
        check(b"\xff\x00\x01", 1, 1, (1, 2, "AA=="));
        check(b"\xff", 1, 5, (1, 1, ""));
    }
}
