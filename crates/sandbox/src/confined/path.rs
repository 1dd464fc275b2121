//! Relative paths: text that names something beneath a root, and can name nothing else.

use std::fmt;

use thiserror::Error;

/// The longest path, in bytes. Linux accepts no longer one in a single call.
pub const MAX_PATH: usize = 4096;
/// The longest part of a path, in bytes. Linux file systems hold no longer name.
pub const MAX_PART: usize = 255;
/// The most parts of a path.
pub const MAX_DEPTH: usize = 64;
/// Names that start so are unfinished work of this crate: never listed, never named by a caller. After 32 random
/// hexadecimal digits a claimed name goes on with `-` and its file's inode; see [`Root::sweep`](super::Root::sweep).
pub const TEMP_PREFIX: &str = ".portcullis-tmp-";

/// Why a text is no relative path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// Nothing at all.
    #[error("the path is empty")]
    Empty,
    /// Starts with a slash.
    #[error("the path is absolute; name it relative to the root")]
    Absolute,
    /// Two slashes in a row, or one at the end.
    #[error("the path has an empty part")]
    EmptyPart,
    /// `.` or `..`.
    #[error("the path has a `.` or `..` part")]
    DotPart,
    /// A zero byte.
    #[error("the path has a zero byte")]
    Nul,
    /// Over [`MAX_PATH`].
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
    /// Over [`MAX_PART`].
    #[error("a part of the path is longer than {MAX_PART} bytes")]
    PartTooLong,
    /// Over [`MAX_DEPTH`].
    #[error("the path has more than {MAX_DEPTH} parts")]
    TooDeep,
    /// A part starts with [`TEMP_PREFIX`].
    #[error("the path names an unfinished change")]
    Reserved,
}

/// A path beneath a root: between 1 and 64 parts, none of them empty, `.` or `..`; or the root itself.
///
/// Its display form escapes control characters, quotes and marks of text direction.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(String);

impl RelPath {
    /// The root itself. Only listing, walking and looking up accept it.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Reads a path from text.
    ///
    /// # Errors
    /// Everything that is not plainly a name beneath the root; nothing is corrected or normalised.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        if text.as_bytes().contains(&0) {
            return Err(PathError::Nul);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        for (index, part) in text.split('/').enumerate() {
            if index >= MAX_DEPTH {
                return Err(PathError::TooDeep);
            }
            check_part(part)?;
        }
        Ok(Self(text.to_owned()))
    }

    /// The path of an entry in this directory.
    ///
    /// # Errors
    /// As [`RelPath::parse`], for the name and for the whole.
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        if name.contains('/') {
            return Err(PathError::EmptyPart);
        }
        if self.is_root() { Self::parse(name) } else { Self::parse(&format!("{}/{name}", self.0)) }
    }

    /// True for the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path as it was given; empty for the root. Not fit for a terminal.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True when `other` is this path or lies beneath it, by text.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.is_root()
            || other
                .0
                .strip_prefix(&self.0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The directory's part (empty: the root) and the name. None for the root itself.
    pub(super) fn split(&self) -> Option<(&str, &str)> {
        if self.is_root() {
            return None;
        }
        Some(self.0.rsplit_once('/').unwrap_or(("", &self.0)))
    }

    /// What the kernel resolves against the held directory.
    pub(super) fn lookup(&self) -> &str {
        if self.is_root() { "." } else { &self.0 }
    }
}

/// True when a new file may carry this name: no control characters, and none that reorder or hide text.
pub(super) fn may_create(name: &str) -> bool {
    !name.is_empty()
        && !name.chars().any(|c| {
            c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                    | '\u{061c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
        })
}

fn check_part(part: &str) -> Result<(), PathError> {
    match part {
        "" => Err(PathError::EmptyPart),
        "." | ".." => Err(PathError::DotPart),
        _ if part.len() > MAX_PART => Err(PathError::PartTooLong),
        _ if part.starts_with(TEMP_PREFIX) => Err(PathError::Reserved),
        _ => Ok(()),
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str(".") } else { write!(f, "{}", self.0.escape_debug()) }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({:?})", self.0)
    }
}

impl std::str::FromStr for RelPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(), PathError>) {
        assert_eq!(RelPath::parse(text).map(|_| ()), expected, "{text:?}");
    }

    #[test]
    fn plain_names_pass_and_keep_their_text() {
        for text in ["a", "a/b.txt", "...", ".hidden", "a b", "-x", "a\\b", "é/ü", "a\u{1b}[31m"]
        {
            check(text, Ok(()));
            assert_eq!(RelPath::parse(text).unwrap().as_str(), text);
        }
        check(&vec!["d"; MAX_DEPTH].join("/"), Ok(()));
        check(&"n".repeat(MAX_PART), Ok(()));
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        check("", Err(PathError::Empty));
        check("/", Err(PathError::Absolute));
        check("/etc/passwd", Err(PathError::Absolute));
        for text in ["a//b", "a/", "a/b/"] {
            check(text, Err(PathError::EmptyPart));
        }
        for text in [".", "..", "../a", "a/..", "a/../b", "a/./b"] {
            check(text, Err(PathError::DotPart));
        }
        check("a\0b", Err(PathError::Nul));
        check(&"n".repeat(MAX_PART + 1), Err(PathError::PartTooLong));
        check(&vec!["d"; MAX_DEPTH + 1].join("/"), Err(PathError::TooDeep));
        check(&"é/".repeat(MAX_PATH), Err(PathError::TooLong));
        check("a/.portcullis-tmp-1", Err(PathError::Reserved));
    }

    #[test]
    fn the_display_form_is_one_harmless_line() {
        let path = RelPath::parse("a\n\u{1b}[2J\u{202e}b").unwrap();
        assert_eq!(path.to_string(), "a\\n\\u{1b}[2J\\u{202e}b");
        assert_eq!(RelPath::root().to_string(), ".");
    }

    #[test]
    fn containment_is_by_whole_parts() {
        let p = |s: &str| RelPath::parse(s).unwrap();
        assert!(
            p("a").contains(&p("a"))
                && p("a").contains(&p("a/b"))
                && RelPath::root().contains(&p("a"))
        );
        assert!(!p("a").contains(&p("ab")) && !p("a/b").contains(&p("a")));
    }

    #[test]
    fn names_that_hide_or_reorder_text_may_not_be_created() {
        for name in
            ["", "a\n", "a\u{7f}", "a\u{9b}", "a\u{202e}b", "a\u{200b}", "\u{feff}a", "\u{2066}x"]
        {
            assert!(!may_create(name), "{name:?}");
        }
        for name in ["a", "a b", "naïve.txt", "日本"] {
            assert!(may_create(name), "{name:?}");
        }
    }
}
