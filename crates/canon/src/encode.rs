//! Writing canonical bytes (RFC 8785, with exact numbers).
//!
//! No space, keys in the order of [`Object`](crate::Object), the short escapes for quote,
//! backslash and `\b \t \n \f \r`, lower-case `\u00xx` for the other controls, all else raw.

use crate::object::{self, Object};
use crate::scan::plain_run;
use crate::value::Value;

/// What is still to be written of one container.
enum Open<'a> {
    Array(std::slice::Iter<'a, Value>),
    Object(object::Iter<'a>),
}

/// Appends the canonical text of `value`. Does not recurse, whatever the depth.
pub(crate) fn write_value(out: &mut String, value: &Value) {
    let mut open: Vec<Open<'_>> = Vec::new();
    begin(out, &mut open, value);
    write_rest(out, open);
}

/// Appends the canonical text of an object.
pub(crate) fn write_object(out: &mut String, object: &Object) {
    out.push('{');
    write_rest(out, vec![Open::Object(object.iter())]);
}

fn write_rest<'a>(out: &mut String, mut open: Vec<Open<'a>>) {
    while let Some(container) = open.last_mut() {
        let first = matches!(out.as_bytes().last(), Some(b'[' | b'{'));
        let next = match container {
            Open::Array(items) => items.next().map(|item| (None, item)),
            Open::Object(entries) => entries.next().map(|(key, item)| (Some(key), item)),
        };
        match (next, &*container) {
            (Some((key, item)), _) => {
                // The last byte tells whether an item precedes: `[` and `{` end no item.
                if !first {
                    out.push(',');
                }
                if let Some(key) = key {
                    write_string(out, key);
                    out.push(':');
                }
                begin(out, &mut open, item);
            }
            (None, Open::Array(_)) => {
                out.push(']');
                open.pop();
            }
            (None, Open::Object(_)) => {
                out.push('}');
                open.pop();
            }
        }
    }
}

/// Writes a scalar, or opens a container.
fn begin<'a>(out: &mut String, open: &mut Vec<Open<'a>>, value: &'a Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => number.write_to(out),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            open.push(Open::Array(items.iter()));
        }
        Value::Object(object) => {
            out.push('{');
            open.push(Open::Object(object.iter()));
        }
    }
}

/// Appends `text` quoted and escaped.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    write_escaped(out, text);
    out.push('"');
}

/// Appends `text` escaped, as it stands between quotes.
pub(crate) fn write_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    loop {
        let (plain, tail) = rest.split_at_checked(plain_run(rest.as_bytes())).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut chars = tail.chars();
        let Some(special) = chars.next() else { break };
        match special {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control => {
                out.push_str("\\u00");
                let code = u32::from(control);
                out.extend([code >> 4, code & 0xF].iter().filter_map(|d| char::from_digit(*d, 16)));
            }
        }
        rest = chars.as_str();
    }
}
