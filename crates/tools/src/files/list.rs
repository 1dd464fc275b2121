//! `files.list`: what lies in a folder.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::{Entry, Kind, Root};
use serde::Deserialize;

use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.list";

/// The most entries of one answer.
pub const MAX_ENTRIES: usize = 1_000;

/// A thousand names of 255 bytes, each byte written as an escape of six, and what stands around them.
const MAX_RESULT: u64 = 2 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default = "arguments::here")]
    path: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: format!(
            "Lists a folder: name, kind and size in bytes of each entry, by name, at most {MAX_ENTRIES}; `cut` says \
             that there are more. Links are listed and never followed. An entry marked `unreadable_name` cannot be \
             addressed, and one marked `hard_linked` can be neither read nor changed."
        ),
        input_schema: schema::object([("path", schema::folder_path("the folder to list"))], &[]),
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
    let Arguments { path } = arguments::read(arguments)?;
    let path = arguments::folder(&path)?;
    let listing = root.list(&path, MAX_ENTRIES).map_err(|error| failure::of_look(&error))?;
    let entries: Value = listing.entries.iter().map(described).collect();
    let mut result = Object::from_iter([
        ("path", Value::from(if path.is_root() { arguments::HERE } else { path.as_str() })),
        ("entries", entries),
        ("cut", Value::from(listing.cut)),
    ]);
    if listing.leftovers > 0 {
        // They keep a folder from being empty, so hiding them altogether would puzzle.
        result.insert("unfinished_changes", listing.leftovers);
    }
    Ok(output::found(result))
}

fn described(entry: &Entry) -> Value {
    let mut object = Object::from_iter([("kind", Value::from(entry.stat.kind.word()))]);
    match entry.name.to_str() {
        Some(name) => object.insert("name", name),
        None => {
            object.insert("unreadable_name", true);
            object.insert("name", escaped(&entry.name))
        }
    };
    if entry.stat.kind == Kind::File {
        object.insert("size", entry.stat.size);
        if entry.stat.links > 1 {
            object.insert("hard_linked", true);
        }
    }
    Value::Object(object)
}

/// A name that is no UTF-8, for eyes: bytes that are no text as `\xHH`, a backslash doubled.
fn escaped(name: &OsStr) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_name_is_spelled_out() {
        assert_eq!(escaped(OsStr::from_bytes(b"a\\\xff\xfe.txt")), "a\\\\\\xff\\xfe.txt");
    }
}
