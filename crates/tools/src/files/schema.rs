//! The pieces of input schemas that only the file tools need: paths, and digests of files.

use portcullis_canon::Value;

use super::arguments::HERE;
use crate::schema::described;
pub(super) use crate::schema::{content, encoding, flag, integer, object, text};

/// The most characters of a path.
const MAX_PATH_CHARS: u64 = 4096;

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
