//! Texts of arguments at the bounds of what is read at all: what no value can hold has to be bytes.

use portcullis_canon::{Limits, MAX_NUMBER_BYTES, Value};

/// Whether `canon::parse` takes the bytes, under [`Limits::BARE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// They are JSON; the schema may still refuse the value.
    Taken,
    /// They are refused before any schema sees them.
    Refused,
}

/// Bytes, what is special about them, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// What is special.
    pub name: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What becomes of them.
    pub reads: Reads,
}

/// What stands between the quotes of a text.
const STRINGS: [(&str, &[u8], Reads); 14] = [
    ("a lone high surrogate", b"\\ud800", Reads::Refused),
    ("a lone low surrogate", b"\\udfff", Reads::Refused),
    ("two high surrogates", b"\\ud800\\ud800", Reads::Refused),
    ("a pair of surrogates", b"\\ud83d\\udd11", Reads::Taken),
    ("a surrogate in bytes", b"\xed\xa0\x80", Reads::Refused),
    ("an overlong slash", b"\xc0\xaf", Reads::Refused),
    ("a byte that is never one", b"\xff", Reads::Refused),
    ("a cut character", b"\xf0\x9f\x94", Reads::Refused),
    ("a bare control character", b"\x01", Reads::Refused),
    ("a bare line end", b"\n", Reads::Refused),
    ("an escaped zero", b"\\u0000", Reads::Taken),
    ("an escaped escape", b"\\u001b[2J", Reads::Taken),
    ("a change of direction", "\u{202e}".as_bytes(), Reads::Taken),
    ("an unknown escape", b"\\x41", Reads::Refused),
];

/// What stands where a number does.
const NUMBERS: [(&str, &str, Reads); 7] = [
    ("the largest whole number of a machine", "18446744073709551615", Reads::Taken),
    // The schema refuses it, by the rule `number`.
    ("a number that no machine holds", "18446744073709551616.5", Reads::Taken),
    ("the largest exponent", "1e10000", Reads::Taken),
    ("an exponent too large", "1e10001", Reads::Refused),
    ("a zero before a number", "01", Reads::Refused),
    ("a plus", "+1", Reads::Refused),
    ("a bare point", "1.", Reads::Refused),
];

/// Whole texts.
const WHOLE: [(&str, &[u8], Reads); 8] = [
    ("nothing", b"", Reads::Refused),
    ("a byte order mark", b"\xef\xbb\xbf{}", Reads::Refused),
    ("a name twice", br#"{"a":1,"a":2}"#, Reads::Refused),
    ("a name twice in two spellings", br#"{"a":1,"\u0061":2}"#, Reads::Refused),
    ("no number", b"{\"a\":NaN}", Reads::Refused),
    ("a comma too many", b"{\"a\":1,}", Reads::Refused),
    ("a comment", b"{/**/}", Reads::Refused),
    ("a second value", b"{}{}", Reads::Refused),
];

/// Texts from valid values: each with every bad text in the place of its first one, and those that stand alone.
pub(super) fn texts(valid: &[Value]) -> Vec<Raw> {
    let mut all: Vec<Raw> = WHOLE
        .iter()
        .map(|(name, bytes, reads)| Raw { name, bytes: bytes.to_vec(), reads: *reads })
        .collect();
    let host = valid.iter().map(Value::to_canonical_string).find(|text| hole(text).is_some());
    let host = host.unwrap_or_else(|| r#"{"text":""}"#.to_owned());
    if let Some((before, after)) = hole(&host) {
        for (name, inside, reads) in STRINGS {
            let bytes = [before.as_bytes(), inside, after.as_bytes()].concat();
            all.push(Raw { name, bytes, reads });
        }
    }
    for (name, number, reads) in NUMBERS {
        all.push(Raw { name, bytes: format!("{{\"a\":{number}}}").into_bytes(), reads });
    }
    for (name, digits, reads) in [
        ("the longest number", MAX_NUMBER_BYTES, Reads::Taken),
        ("a number of one digit too many", MAX_NUMBER_BYTES.saturating_add(1), Reads::Refused),
    ] {
        let text = format!("{{\"a\":{}}}", "7".repeat(digits));
        all.push(Raw { name, bytes: text.into_bytes(), reads });
    }
    let depth = usize::try_from(Limits::BARE.max_depth).unwrap_or(0);
    for (name, depth, reads) in [
        ("the deepest nesting", depth, Reads::Taken),
        ("one level too deep", depth.saturating_add(1), Reads::Refused),
    ] {
        let inner = depth.saturating_sub(1);
        let text = format!("{{\"a\":{}{}}}", "[".repeat(inner), "]".repeat(inner));
        all.push(Raw { name, bytes: text.into_bytes(), reads });
    }
    all
}

/// A text around the inside of the first string value that needs no escape.
fn hole(text: &str) -> Option<(&str, &str)> {
    let (before, rest) = text.split_once(":\"")?;
    let (inside, _) = rest.split_once('"')?;
    let start = before.len().checked_add(2)?;
    let end = start.checked_add(inside.len())?;
    (!inside.contains('\\')).then_some(())?;
    text.get(..start).zip(text.get(end..))
}
