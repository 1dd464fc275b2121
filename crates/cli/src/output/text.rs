//! Foreign text as rows of a bounded size, each safe on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

use portcullis_canon::sanitize;

/// A string longer than this is shown by its beginning and its end.
pub(crate) const MAX_FIELD_BYTES: usize = 2_000;

/// A string of more lines than this is shown by its beginning and its end.
const MAX_FIELD_LINES: usize = 40;

/// What is shown of the beginning of a long string.
const HEAD: Part = Part { bytes: 1_000, lines: 20 };

/// What is shown of its end.
const TAIL: Part = Part { bytes: 500, lines: 10 };

#[derive(Clone, Copy)]
struct Part {
    bytes: usize,
    lines: usize,
}

/// One line of at most `max` bytes, for a cell or a sentence.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let kept = text.get(..text.floor_char_boundary(max)).unwrap_or_default();
    let mut line = sanitize::line(kept).into_owned();
    if kept.len() < text.len() {
        line.push_str(sanitize::CLIP_MARKER);
    }
    sanitize::clip(&line, max)
}

/// As [`one_line`], for stored bytes.
pub(crate) fn one_line_bytes(bytes: &[u8], max: usize) -> String {
    let kept = bytes.get(..max.saturating_add(4)).unwrap_or(bytes);
    one_line(&String::from_utf8_lossy(kept), max)
}

/// JSON whose strings hold nothing that a terminal obeys: such characters are written as escapes, so that a
/// parser reads the same value.
pub(crate) fn json(json: &str) -> Cow<'_, str> {
    if json.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len().saturating_add(16));
    for c in json.chars() {
        // More marks than the sanitiser shows in a row are escaped too, though one of them is harmless.
        let mut utf8 = [0_u8; 4];
        let many = c.encode_utf8(&mut utf8).repeat(sanitize::MAX_COMBINING_MARKS.saturating_add(1));
        if c.is_ascii_graphic() || c == ' ' || sanitize::line(&many) == many {
            out.push(c);
            continue;
        }
        let mut utf16 = [0_u16; 2];
        for unit in c.encode_utf16(&mut utf16) {
            let _ = write!(out, "\\u{unit:04x}"); // writing to a string does not fail
        }
    }
    Cow::Owned(out)
}

/// Foreign text as rows of at most `width` columns. A row that begins a line of the text begins with `" `, a
/// row that goes on with one begins with `+ `, and only a row of our own begins with `= `.
///
/// Also says how many bytes are not shown.
pub(crate) fn quote(text: &str, width: usize) -> (Vec<String>, usize) {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
    let mut rows = Vec::new();
    if text.len() <= MAX_FIELD_BYTES && lines <= MAX_FIELD_LINES {
        push_rows(&mut rows, text, width);
        return (rows, 0);
    }
    let head = head(text);
    let rest = text.get(head.len()..).unwrap_or_default();
    let tail = tail(rest);
    let hidden = rest.len().saturating_sub(tail.len());
    push_rows(&mut rows, head, width);
    if hidden > 0 {
        rows.push(format!(
            "= {} of {} bytes are not shown here",
            number(hidden),
            number(text.len())
        ));
    }
    push_rows(&mut rows, tail, width);
    (rows, hidden)
}

fn head(text: &str) -> &str {
    let kept = text.get(..text.floor_char_boundary(HEAD.bytes)).unwrap_or_default();
    let last = kept.match_indices('\n').nth(HEAD.lines.saturating_sub(1));
    kept.get(..last.map_or(kept.len(), |(at, _)| at.saturating_add(1))).unwrap_or(kept)
}

fn tail(text: &str) -> &str {
    let begin = text.ceil_char_boundary(text.len().saturating_sub(TAIL.bytes));
    let kept = text.get(begin..).unwrap_or_default();
    let ended = kept.strip_suffix('\n').unwrap_or(kept);
    let before = ended.rmatch_indices('\n').nth(TAIL.lines.saturating_sub(1));
    kept.get(before.map_or(0, |(at, _)| at.saturating_add(1))..).unwrap_or(kept)
}

fn push_rows(rows: &mut Vec<String>, text: &str, width: usize) {
    let text = text.strip_suffix('\n').unwrap_or(text);
    for line in text.split('\n') {
        let mut first = true;
        for piece in wrap(&sanitize::line(line), width.saturating_sub(2)) {
            rows.push(format!("{} {piece}", if first { '"' } else { '+' }));
            first = false;
        }
    }
}

/// Cuts safe text into pieces that fit into `width` columns on every terminal: whatever is not ASCII counts
/// as two. There is at least one piece.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<&str> {
    let width = width.max(8);
    let mut pieces = Vec::new();
    let (mut begin, mut columns) = (0_usize, 0_usize);
    for (at, c) in text.char_indices() {
        let wide = columns_of(c);
        if columns.saturating_add(wide) > width {
            pieces.push(text.get(begin..at).unwrap_or_default());
            (begin, columns) = (at, 0);
        }
        columns = columns.saturating_add(wide);
    }
    pieces.push(text.get(begin..).unwrap_or_default());
    pieces
}

/// The columns that safe text takes at most.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

const fn columns_of(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// A count with its thousands apart.
pub(crate) fn number(count: usize) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len().saturating_add(8));
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 byte`, `5,300 bytes`.
pub(crate) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {one}s", number(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_safe_and_bounded() {
        assert_eq!(one_line("a\nb\u{1b}[2J", 60), "a b\\x1B[2J");
        assert_eq!(one_line(&"x".repeat(70), 60).len(), 60);
        assert_eq!(one_line("é".repeat(40).as_str(), 5), "é…");
        let escapes = one_line(&"\u{202e}".repeat(100), 60);
        assert!(escapes.len() <= 60 && escapes.is_char_boundary(escapes.len()), "{escapes}");
    }

    #[test]
    fn json_keeps_its_value_and_loses_its_teeth() {
        let value = portcullis_canon::Value::from("a\u{9b}\u{202e}\u{7f}é\u{e0041}e\u{301}");
        let safe = json(&value.to_canonical_string()).into_owned();
        assert_eq!(safe, "\"a\\u009b\\u202e\\u007fé\\udb40\\udc41e\\u0301\"");
        let read = portcullis_canon::parse(safe.as_bytes(), &portcullis_canon::Limits::BARE);
        assert_eq!(read, Ok(value));
    }

    #[test]
    fn rows_of_a_quote_are_marked_and_narrow() {
        let (rows, hidden) = quote("one\ntwo three four", 12);
        assert_eq!((rows.join("|").as_str(), hidden), ("\" one|\" two three |+ four", 0));
        assert_eq!(quote("", 40).0, ["\" "]);
        for text in ["漢".repeat(50), "\u{1b}[2J".repeat(50), "e\u{301}".repeat(50)] {
            let (rows, _) = quote(&text, 20);
            assert!(rows.iter().all(|row| row.chars().count() <= 20), "{rows:?}");
        }
    }

    #[test]
    fn long_strings_keep_their_beginning_and_their_end() {
        let text = format!("BEGIN{}END", "x".repeat(10 << 20));
        let (rows, hidden) = quote(&text, 80);
        assert_eq!(hidden, text.len() - 1_500);
        assert!(rows.len() < 40);
        assert!(rows.first().is_some_and(|row| row.starts_with("\" BEGIN")));
        assert!(rows.last().is_some_and(|row| row.ends_with("END")));
        let note = format!("= {} of 10,485,768 bytes are not shown here", number(hidden));
        assert!(rows.contains(&note));
    }

    #[test]
    fn many_short_lines_do_not_fill_the_screen() {
        let text = (0..1_000).map(|n| format!("{n}\n")).collect::<String>();
        let (rows, hidden) = quote(&text, 80);
        assert_eq!(rows.len(), 20 + 1 + 10, "{rows:?}");
        assert!(hidden > 0);
        assert_eq!(rows.first().map(String::as_str), Some("\" 0"));
        assert_eq!(rows.last().map(String::as_str), Some("\" 999"));
    }

    #[test]
    fn counts() {
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(counted(1, "byte"), "1 byte");
        assert_eq!(counted(5_300, "byte"), "5,300 bytes");
    }
}
