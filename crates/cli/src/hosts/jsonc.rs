//! JSON with comments, as text: where a member of the outermost object stands, so that it alone is replaced.
//!
//! Hosts allow comments in some of their files, and people write them. A file is therefore never written anew from what was
//! read: the bytes of one member are exchanged, and all others stay as they are. Nothing is believed of the scan by itself:
//! whoever edits compares the whole before and after.

use std::ops::Range;

use portcullis_canon::{Limits, Object, Value, parse};

/// The deepest nesting.
const MAX_DEPTH: usize = 128;

/// Why a text cannot be edited: one sentence.
pub(super) type Unfit = String;

/// The outermost object of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// The byte behind the opening bracket.
    pub(super) inside: usize,
    /// Its members in order: name, and where the value stands.
    pub(super) members: Vec<(String, Range<usize>)>,
}

/// A walk over the bytes of a text.
struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Skips blanks and comments.
    fn blanks(&mut self) -> Result<(), Unfit> {
        loop {
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let end = rest.get(2..).and_then(|rest| rest.find("*/"));
                self.at += end.ok_or("a comment does not end")? + 4;
            } else if self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
                self.at += 1;
            } else {
                return Ok(());
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Unfit> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(format!("`{}` is missing at byte {}", char::from(byte), self.at))
    }

    /// A text between quotes, as it stands.
    fn quoted(&mut self) -> Result<Range<usize>, Unfit> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek() {
                None => return Err("a text does not end".to_owned()),
                Some(b'\\') => self.at += 2,
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at);
                }
                Some(_) => self.at += 1,
            }
        }
    }

    /// A value of any kind, as it stands.
    fn value(&mut self) -> Result<Range<usize>, Unfit> {
        let start = self.at;
        let mut open = Vec::new();
        loop {
            self.blanks()?;
            match self.peek() {
                None => return Err("a value does not end".to_owned()),
                Some(b'"') => {
                    self.quoted()?;
                }
                Some(byte @ (b'{' | b'[')) => {
                    open.push(if byte == b'{' { b'}' } else { b']' });
                    self.at += 1;
                    if open.len() > MAX_DEPTH {
                        return Err("it is nested too deep".to_owned());
                    }
                }
                Some(byte @ (b'}' | b']')) => {
                    if open.pop() != Some(byte) {
                        return Err(format!("a bracket at byte {} closes nothing", self.at));
                    }
                    self.at += 1;
                }
                Some(_) => self.at += self.rest().chars().next().map_or(1, char::len_utf8),
            }
            let ends = self.peek().is_none_or(|byte| b",}] \t\r\n/".contains(&byte));
            if open.is_empty() && ends {
                return Ok(start..self.at);
            }
        }
    }
}

/// The members of the object that the text is, comments and a comma behind the last of them allowed.
pub(super) fn outline(text: &str) -> Result<Outline, Unfit> {
    let mut walk = Walk { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 } };
    walk.blanks()?;
    walk.expect(b'{')?;
    let mut outline = Outline { inside: walk.at, members: Vec::new() };
    loop {
        walk.blanks()?;
        if walk.peek() == Some(b'}') {
            walk.at += 1;
            break;
        }
        let name = walk.quoted()?;
        let name = plain(text.get(name).unwrap_or(""))?;
        walk.blanks()?;
        walk.expect(b':')?;
        walk.blanks()?;
        let value = walk.value()?;
        if outline.members.iter().any(|(known, _)| *known == name) {
            return Err(format!("`{name}` stands in it twice"));
        }
        outline.members.push((name, value));
        walk.blanks()?;
        match walk.peek() {
            Some(b',') => walk.at += 1,
            Some(b'}') => {}
            _ => return Err(format!("a comma is missing at byte {}", walk.at)),
        }
    }
    walk.blanks()?;
    if walk.at == text.len() { Ok(outline) } else { Err("something follows its end".to_owned()) }
}

fn plain(quoted: &str) -> Result<String, Unfit> {
    match parse(quoted.as_bytes(), &Limits::BARE) {
        Ok(Value::String(name)) => Ok(name),
        _ => Err("a name in it is not a text".to_owned()),
    }
}

/// True when the text, which may be a part of one, holds a comment.
pub(super) fn has_comments(text: &str) -> bool {
    without_comments(text).is_none_or(|plain| plain != text)
}

/// The whole as a value. Comments and a comma before a closing bracket are left out; everything else has to be strict.
pub(super) fn read(text: &str) -> Result<Object, Unfit> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let plain = without_comments(text).ok_or("a comment or a text does not end")?;
    let plain = without_last_commas(&plain);
    match parse(plain.as_bytes(), &Limits::BARE) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is not an object".to_owned()),
        Err(error) => Err(format!("it is not strict JSON: {error}")),
    }
}

fn without_comments(text: &str) -> Option<String> {
    let mut walk = Walk { text, at: 0 };
    let mut plain = String::with_capacity(text.len());
    while let Some(byte) = walk.peek() {
        let start = walk.at;
        match byte {
            b'"' => plain.push_str(text.get(walk.quoted().ok()?)?),
            b'/' => {
                walk.blanks().ok()?;
                // A stroke that begins no comment stays, and is no JSON.
                if walk.at == start {
                    plain.push('/');
                    walk.at += 1;
                } else {
                    plain.push(' ');
                }
            }
            _ => {
                walk.at += walk.rest().chars().next().map_or(1, char::len_utf8);
                plain.push_str(text.get(start..walk.at)?);
            }
        }
    }
    Some(plain)
}

/// Without a comma that only blanks keep from a closing bracket.
fn without_last_commas(text: &str) -> String {
    let mut walk = Walk { text, at: 0 };
    let mut plain = String::with_capacity(text.len());
    while let Some(byte) = walk.peek() {
        let start = walk.at;
        if byte == b'"' && walk.quoted().is_ok() {
            plain.push_str(text.get(start..walk.at).unwrap_or(""));
            continue;
        }
        walk.at = start + walk.rest().chars().next().map_or(1, char::len_utf8);
        let last = byte == b',' && walk.rest().trim_start().starts_with(['}', ']']);
        if !last {
            plain.push_str(text.get(start..walk.at).unwrap_or(""));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Vec<(String, String)> {
        let found = outline(text).unwrap().members;
        found.into_iter().map(|(name, at)| (name, text.get(at).unwrap().to_owned())).collect()
    }

    #[test]
    fn members_are_found_with_comments_and_odd_texts_around_them() {
        let text = "\u{feff}// one {\n{ /* \"x\": */ \"a\" : {\"b\":[1,2,{\"c\":\"}\\\"\"}]} , // }\n \"s\\u0061\":\"//\",\"n\":-1.5e3/*,*/,\"t\":true,}\n// end\n";
        let expected = [
            ("a", "{\"b\":[1,2,{\"c\":\"}\\\"\"}]}"),
            ("sa", "\"//\""),
            ("n", "-1.5e3"),
            ("t", "true"),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(members(text), expected);
        assert_eq!(members("{}"), []);
        let read = read(text).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a", "n", "sa", "t"]);
        assert_eq!(read.get("sa").unwrap().as_str(), Some("//"));
    }

    #[test]
    fn what_is_no_object_or_not_whole_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            "{\"a\":1",
            "{\"a\":1}x",
            "{\"a\":1 \"b\":2}",
            "{\"a\":{]}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,\"a\":2}",
            "{\"a\":\"",
            "/*",
            "/*/{}",
            "{\"a\":1}/*",
        ] {
            assert!(outline(text).is_err(), "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        assert!(outline(&deep).is_err());
    }

    #[test]
    fn comments_are_seen_where_they_are() {
        assert!(has_comments("{} // a") && has_comments("/* */") && has_comments("\"a\" /*"));
        assert!(!has_comments("{\"a\":\"// no\"}"));
    }
}
