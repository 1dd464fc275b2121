//! `files.search`: lines that hold a text, in the text files beneath a folder.

use std::ops::ControlFlow;

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::{RelPath, Root, WalkLimits};
use serde::Deserialize;

use super::encoding::text_of;
use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.search";

/// The most lines of one answer.
pub const MAX_MATCHES: usize = 200;

/// The most bytes of one line that are shown.
pub(super) const MAX_LINE: usize = 300;
/// What is shown of a longer line in front of the match.
const LEAD: usize = 80;
/// Paths and lines of one answer together, in bytes, before JSON escapes some of them.
pub(super) const MAX_TEXT: usize = 256 * 1024;
/// Six bytes for each of [`MAX_TEXT`], and what stands around them.
const MAX_RESULT: u64 = 2 * 1024 * 1024;
/// The most characters of the text that is looked for.
const MAX_NEEDLE: u64 = 1_000;

/// Bounds of one search: what a cold disk can give well within the deadline.
pub(super) const LIMITS: WalkLimits = WalkLimits {
    max_files: 5_000,
    max_entries: 50_000,
    max_total_bytes: 64 * 1024 * 1024,
    max_file_bytes: 4 * 1024 * 1024,
    max_depth: 32,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    text: String,
    #[serde(default = "arguments::here")]
    path: String,
    #[serde(default)]
    ignore_case: bool,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: format!(
            "Finds lines that hold a text, which is taken literally, in the text files beneath a folder: path, line \
             number from 1, and the line, shortened around the match. At most {MAX_MATCHES} lines; files over 4 MiB, \
             binary files and links are skipped and counted; `cut` says that not everything was searched."
        ),
        input_schema: schema::object(
            [
                ("text", schema::text("what to find, within one line", 1, MAX_NEEDLE)),
                ("path", schema::folder_path("the folder to search")),
                ("ignore_case", schema::flag("true to take upper and lower case as the same")),
            ],
            &["text"],
        ),
        effect: EffectClass::ReadOnly,
        source: true,
        sink: false,
        authority: vec!["/path".to_owned()],
        deadline_ms: 30_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: MAX_RESULT,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

pub(super) fn call(root: &Root, arguments: &Object) -> Result<ToolOutput, ToolFailure> {
    let Arguments { text, path, ignore_case } = arguments::read(arguments)?;
    if text.is_empty() {
        return Err(failure::refused("`text` is empty"));
    }
    let path = arguments::folder(&path)?;
    let mut search = Search::new(Needle::new(&text, ignore_case));
    let walked = root
        .walk(&path, LIMITS, |file, _| search.visit(root, file))
        .map_err(|error| failure::of_look(&error))?;
    let skipped = Object::from_iter([
        ("binary", Value::from(search.binary)),
        ("too_large", Value::from(walked.too_large)),
        ("not_plain", Value::from(walked.not_plain)),
        ("unreadable", Value::from(walked.unreachable.saturating_add(search.unreadable))),
    ]);
    Ok(output::found(Object::from_iter([
        ("matches", Value::Array(search.matches)),
        ("searched", Value::from(search.searched)),
        ("skipped", Value::Object(skipped)),
        ("cut", Value::from(walked.cut || search.cut)),
    ])))
}

/// What has been found so far.
struct Search {
    needle: Needle,
    matches: Vec<Value>,
    text: usize,
    searched: usize,
    binary: usize,
    unreadable: usize,
    cut: bool,
}

impl Search {
    fn new(needle: Needle) -> Self {
        let matches = Vec::new();
        Self { needle, matches, text: 0, searched: 0, binary: 0, unreadable: 0, cut: false }
    }

    fn visit(&mut self, root: &Root, file: &RelPath) -> ControlFlow<()> {
        let Ok(bytes) = root.read(file, LIMITS.max_file_bytes) else {
            self.unreadable += 1;
            return ControlFlow::Continue(());
        };
        let Some(text) = text_of(&bytes) else {
            self.binary += 1;
            return ControlFlow::Continue(());
        };
        self.searched += 1;
        for (index, line) in text.lines().enumerate() {
            if let Some(at) = self.needle.find(line) {
                self.keep(file, index + 1, excerpt(line, at))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn keep(&mut self, file: &RelPath, number: usize, line: String) -> ControlFlow<()> {
        let text = self.text.saturating_add(file.as_str().len()).saturating_add(line.len());
        if self.matches.len() >= MAX_MATCHES || text > MAX_TEXT {
            self.cut = true;
            return ControlFlow::Break(());
        }
        self.text = text;
        self.matches.push(Value::Object(Object::from_iter([
            ("path", Value::from(file.as_str())),
            ("line", Value::from(number)),
            ("text", Value::from(line)),
        ])));
        ControlFlow::Continue(())
    }
}

/// The text that is looked for.
enum Needle {
    Exact(String),
    Folded(String),
}

impl Needle {
    fn new(text: &str, ignore_case: bool) -> Self {
        if ignore_case { Self::Folded(folded(text)) } else { Self::Exact(text.to_owned()) }
    }

    /// The offset of the first match in a line. Linear in the line, whatever both hold.
    fn find(&self, line: &str) -> Option<usize> {
        match self {
            Self::Exact(text) => line.find(text.as_str()),
            Self::Folded(text) => {
                let at = folded(line).find(text.as_str())?;
                let mut seen = 0;
                let mut characters = line.char_indices();
                characters.find_map(|(index, character)| {
                    seen += character.to_lowercase().map(char::len_utf8).sum::<usize>();
                    (seen > at).then_some(index)
                })
            }
        }
    }
}

/// Lower case, character by character, so that offsets can be found again.
fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// A line, or the part of a long one around the match, with `…` where something is missing.
fn excerpt(line: &str, at: usize) -> String {
    if line.len() <= MAX_LINE {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(LEAD));
    let end = line.floor_char_boundary(start.saturating_add(MAX_LINE));
    let part = line.get(start..end).unwrap_or_default();
    let (before, after) = (start > 0, end < line.len());
    format!("{}{part}{}", if before { "…" } else { "" }, if after { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_ignored_only_when_asked() {
        assert_eq!(Needle::new("Ab", false).find("xAb"), Some(1));
        assert_eq!(Needle::new("Ab", false).find("xab"), None);
        assert_eq!(Needle::new("Ab", true).find("xaB"), Some(1));
        assert_eq!(Needle::new("ÉTÉ", true).find("en été"), Some(3));
        // Its lower case is longer than it is; offsets are still those of the line.
        assert_eq!(Needle::new("z", true).find("İİZ"), Some(4));
    }

    #[test]
    fn a_long_line_is_shown_around_the_match() {
        let line = format!("{}needle{}", "é".repeat(1_000), "x".repeat(1_000));
        let shown = excerpt(&line, 2_000);
        assert!(shown.contains("needle") && shown.starts_with('…') && shown.ends_with('…'));
        assert!(shown.len() <= MAX_LINE + 6, "{}", shown.len());
        assert_eq!(excerpt("short", 2), "short");
    }
}
