//! Names of tools as providers take them: letters, digits, `_` and `-`, at most 64, and no two tools with one.

use portcullis_canon::{Digest, Kind};

const MAX_NAME: usize = 64;

/// The name of a tool on the wire. A function of the name alone, so that what was rendered stays right when tools come
/// and go. Dots become `__`; whatever cannot be told apart that way ends in `___` and sixteen digits of its digest.
#[must_use]
pub fn wire_name(tool: &str) -> String {
    let plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
            && !part.starts_with('_')
            && !part.ends_with('_')
            && !part.contains("__")
    };
    let parts: Vec<&str> = tool.split('.').collect();
    let joined = parts.join("__");
    if joined.len() <= MAX_NAME && parts.iter().all(|part| plain(part)) {
        return joined;
    }
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let start: String = tool.chars().take(40).map(kept).collect();
    let digest: String =
        Digest::of(Kind::ToolSpec, tool.as_bytes()).hex().chars().take(16).collect();
    format!("{start}___{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_stay_readable() {
        assert_eq!(wire_name("files.read"), "files__read");
        assert_eq!(wire_name("make_folder"), "make_folder");
        assert_eq!(wire_name("a.b-c.d"), "a__b-c__d");
        assert!(wire_name("lies nicht").starts_with("lies-nicht___"));
        assert_ne!(wire_name("files__read"), wire_name("files.read"));
        assert_ne!(wire_name("a_.b"), wire_name("a._b"));
    }

    proptest! {
        #[test]
        fn no_two_tools_share_a_name(a in "[a_.\\-é]{0,6}", b in "[a_.\\-é]{0,6}") {
            prop_assert_eq!(wire_name(&a) == wire_name(&b), a == b);
        }

        #[test]
        fn every_name_is_one_that_providers_take(tool in "\\PC{0,100}") {
            let name = wire_name(&tool);
            prop_assert!((1..=MAX_NAME).contains(&name.len()));
            prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')));
        }
    }
}
