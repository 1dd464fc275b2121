//! Text for the terminal.

use crate::oracle::forbidden_on_a_line;
use crate::vectors::{rows, text};
use portcullis_canon::sanitize::{clip, line, line_bytes};
use std::borrow::Cow;

#[test]
fn each_class() {
    for row in rows("sanitize.jsonl", 70) {
        let (name, input) = (text(&row, "name"), text(&row, "input"));
        let out = line(input);
        assert_eq!(out, text(&row, "line"), "{name}");
        assert_eq!(line(&out), out, "{name}: again");
        assert_eq!(line_bytes(input.as_bytes()), out, "{name}: as bytes");
        assert_eq!(matches!(out, Cow::Borrowed(_)), out == input, "{name}: copied for nothing");
    }
}

/// Every character there is, between two letters.
#[test]
fn no_character_slips_through() {
    let mut escaped = 0;
    for c in (0..=0x10_FFFF).filter_map(char::from_u32) {
        let input = format!("a{c}b");
        let out = line(&input);
        assert!(!out.chars().any(forbidden_on_a_line), "{:04X}: {out:?}", u32::from(c));
        if forbidden_on_a_line(c) {
            assert_ne!(out, input, "{:04X}", u32::from(c));
            escaped += 1;
        }
    }
    assert!(escaped > 4_000, "{escaped}");
}

#[test]
fn bytes_that_are_no_text() {
    assert_eq!(line_bytes(b"a\xFFb"), "a\u{FFFD}b");
    assert_eq!(line_bytes(b"\xC2"), "\u{FFFD}");
    assert_eq!(line_bytes(b"\xED\xA0\x80"), "\u{FFFD}\u{FFFD}\u{FFFD}");
    // A C1 control as one raw byte is no UTF-8, hence no control either.
    assert_eq!(line_bytes(b"\x9B31m"), "\u{FFFD}31m");
    assert_eq!(line_bytes(b"\xC2\x9B31m\n"), "\\x9B31m ");
}

#[test]
fn clipping_never_exceeds_the_cap() {
    for text in ["", "a", "abcdef", "héllo wörld", "日本語のテキスト", "😀😀😀", "a\u{301}\u{301}"]
    {
        for max in 0..=text.len() + 2 {
            let out = clip(text, max);
            assert!(out.len() <= max, "{text:?} {max}: {out:?}");
            if text.len() <= max {
                assert_eq!(out, text);
            } else if let Some(kept) = out.strip_suffix('…') {
                assert!(text.starts_with(kept));
            } else {
                assert_eq!(out, "..".get(..max).unwrap());
            }
        }
    }
    assert_eq!(clip("abcdef", 5), "ab…");
    assert_eq!(clip("日本語", 8), "日…");
    assert_eq!(clip("日本語", 6), "日…");
    assert_eq!(clip("日本語", 5), "…");
}
