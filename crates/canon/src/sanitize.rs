//! Text from strangers, made safe to print on a terminal.
//!
//! What could move the cursor, change direction, hide, or pretend to be our own layout is
//! written out as an escape. The result is for eyes only: it is not reversible (text that
//! already contained `\x1b` looks the same), and nothing is ever decided on it.

use std::borrow::Cow;
use unicode_normalization::char::is_combining_mark;

/// How many combining marks in a row are shown before the rest is cut.
pub const MAX_COMBINING_MARKS: usize = 4;

/// What [`clip`] ends a shortened text with.
pub const CLIP_MARKER: &str = "…";

/// One line of text, safe to print.
///
/// Newline and carriage return become a space; other control characters `\xHH`; invisible and
/// direction-changing characters `\u{XXXX}`; of more than four combining marks in a row, those
/// after the fourth become a count. Applying it again changes nothing.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut marks = 0_usize;
    for c in text.chars() {
        // A hidden mark is still hidden, so that is asked first.
        if !is_hidden(c) && is_combining_mark(c) {
            marks += 1;
            if marks <= MAX_COMBINING_MARKS {
                out.push(c);
            }
            continue;
        }
        push_cut(&mut out, marks);
        marks = 0;
        match c {
            '\n' | '\r' => out.push(' '),
            c if c.is_control() => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            c if is_hidden(c) => out.push_str(&format!("\\u{{{:04X}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    push_cut(&mut out, marks);
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

/// As [`line()`], for bytes: each invalid sequence becomes U+FFFD first.
#[must_use]
pub fn line_bytes(bytes: &[u8]) -> String {
    line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// At most `max_bytes` of `text`, cut between characters, with `…` where something is missing.
///
/// The marker counts: the result is never longer than `max_bytes`. Where the cap is too small
/// for the marker, full stops stand in for it.
#[must_use]
pub fn clip(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let Some(room) = max_bytes.checked_sub(CLIP_MARKER.len()) else {
        return ".".repeat(max_bytes);
    };
    let mut out = String::with_capacity(max_bytes);
    out.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
    out.push_str(CLIP_MARKER);
    out
}

fn push_cut(out: &mut String, marks: usize) {
    if let Some(cut) = marks.checked_sub(MAX_COMBINING_MARKS)
        && cut > 0
    {
        out.push_str("[+");
        out.push_str(&cut.to_string());
        out.push_str(" marks]");
    }
}

/// Characters that take no visible room, or that change the direction of others.
///
/// Emoji presentation selectors (U+FE00 to U+FE0F) are not among them: they are combining marks
/// and fall under that rule.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        // Soft hyphen, grapheme joiner, Arabic letter mark, Hangul fillers, Khmer inherent vowels.
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        // Mongolian vowel separator and free variation selectors.
        | '\u{180B}'..='\u{180F}'
        // Zero-width characters, marks, separators, embeddings, overrides, isolates, operators.
        | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        // Fillers, byte order mark, interlinear annotation.
        | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
        // Shorthand and musical format characters.
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
        // Tags, variation selectors supplement, and the rest of the ignorable block.
        | '\u{E0000}'..='\u{E0FFF}'
    )
}
