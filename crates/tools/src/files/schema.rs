//! The pieces that the verbs' input schemas are made of.

use portcullis_canon::{Object, Value};

use super::arguments::HERE;
use super::encoding::Encoding;

/// The most characters of `content`: as many as fit into one proposal.
const MAX_CONTENT_CHARS: u64 = 1024 * 1024;
/// The most characters of a path.
const MAX_PATH_CHARS: u64 = 4096;

/// An object schema that admits these properties and no other.
pub(super) fn object<const N: usize>(
    properties: [(&'static str, Value); N],
    required: &[&'static str],
) -> Value {
    let required: Value = required.iter().copied().collect();
    described([
        ("type", Value::from("object")),
        ("properties", Value::Object(Object::from_iter(properties))),
        ("required", required),
        ("additionalProperties", Value::from(false)),
    ])
}

/// One part of a path, made of characters of `class`: not empty, not `.` and not `..`. Written without look-around,
/// which not every validator has.
fn part(class: &str) -> String {
    let first = class.replacen("[^", "[^.", 1);
    format!("(?:{first}{class}*|\\.{first}{class}*|\\.\\.{class}+)")
}

/// Any character but a slash and zero.
const ANY: &str = "[^/\\x00]";
/// Any character but a slash and control characters.
const PLAIN: &str = "[^/\\x00-\\x1f\\x7f-\\x9f]";

/// A path of something that is there.
pub(super) fn existing_path(what: &str) -> Value {
    path(what, format!("^{part}(?:/{part})*$", part = part(ANY)))
}

/// A path of something that is to be made.
pub(super) fn new_path(what: &str) -> Value {
    path(what, format!("^{part}(?:/{part})*$", part = part(PLAIN)))
}

fn path(what: &str, pattern: String) -> Value {
    let note = "relative to the folder, parts separated by `/`, without `.`, `..` or a leading `/`";
    described([
        ("type", Value::from("string")),
        ("description", Value::from(format!("{what}: {note}"))),
        ("minLength", Value::from(1_u64)),
        ("maxLength", Value::from(MAX_PATH_CHARS)),
        ("pattern", Value::from(pattern)),
    ])
}

/// A path of a folder, by default the whole.
pub(super) fn folder_path(what: &str) -> Value {
    let pattern = format!("^(?:\\.|{part}(?:/{part})*)?$", part = part(ANY));
    described([
        ("type", Value::from("string")),
        ("description", Value::from(format!("{what}: relative to the folder; `.` is the whole"))),
        ("maxLength", Value::from(MAX_PATH_CHARS)),
        ("pattern", Value::from(pattern)),
        ("default", Value::from(HERE)),
    ])
}

/// The digest of a file's present content.
pub(super) fn digest(what: &str) -> Value {
    described([
        ("type", Value::from("string")),
        ("description", Value::from(what)),
        ("pattern", Value::from("^sha256:[0-9a-f]{64}$")),
    ])
}

/// New content, as text or as base64.
pub(super) fn content() -> Value {
    described([
        ("type", Value::from("string")),
        ("description", Value::from("the whole new content, written as `encoding` says")),
        ("maxLength", Value::from(MAX_CONTENT_CHARS)),
    ])
}

/// How `content` is written.
pub(super) fn encoding() -> Value {
    let names: Value =
        [Encoding::Utf8, Encoding::Base64].map(Encoding::as_str).into_iter().collect();
    described([
        ("enum", names),
        ("description", Value::from("`utf8` for text, `base64` for anything else")),
        ("default", Value::from(Encoding::default().as_str())),
    ])
}

/// A whole number with bounds and a default.
pub(super) fn integer(what: &str, least: u64, most: u64, default: u64) -> Value {
    described([
        ("type", Value::from("integer")),
        ("description", Value::from(what)),
        ("minimum", Value::from(least)),
        ("maximum", Value::from(most)),
        ("default", Value::from(default)),
    ])
}

/// Text of bounded length.
pub(super) fn text(what: &str, least: u64, most: u64) -> Value {
    described([
        ("type", Value::from("string")),
        ("description", Value::from(what)),
        ("minLength", Value::from(least)),
        ("maxLength", Value::from(most)),
    ])
}

/// Yes or no, by default no.
pub(super) fn flag(what: &str) -> Value {
    described([
        ("type", Value::from("boolean")),
        ("description", Value::from(what)),
        ("default", Value::from(false)),
    ])
}

fn described<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Value::Object(Object::from_iter(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_canon::Schema;
    use portcullis_sandbox::confined::RelPath;

    fn admits(schema: &Value, text: &str) -> bool {
        Schema::compile(schema).unwrap().check(&Value::from(text)).is_ok()
    }

    #[test]
    fn the_pattern_and_the_path_type_agree() {
        let (existing, new, folder) = (existing_path("x"), new_path("x"), folder_path("x"));
        for text in ["a", "a/b.txt", "...", ".hidden", "..a", "a/.b/..c/....", "a b", "é/日本"] {
            assert!(RelPath::parse(text).is_ok(), "{text}");
            assert!(
                admits(&existing, text) && admits(&new, text) && admits(&folder, text),
                "{text}"
            );
        }
        for text in
            ["/", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b", "a/./b", "./a", "a\0b"]
        {
            assert!(RelPath::parse(text).is_err(), "{text:?}");
            assert!(!admits(&existing, text) && !admits(&new, text), "{text:?}");
            assert!(!admits(&folder, text), "{text:?}");
        }
        for text in ["", "."] {
            assert!(
                !admits(&existing, text) && !admits(&new, text) && admits(&folder, text),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_control_character_can_be_named_but_not_made() {
        for text in ["a\n", "a\u{1b}[2J", "a\u{9b}/b", "\u{7f}"] {
            assert!(admits(&existing_path("x"), text), "{text:?}");
            assert!(!admits(&new_path("x"), text), "{text:?}");
        }
    }
}
