//! A body that repeats the credential of its request: it is not handed out, since what it says ends up in records.

use zeroize::Zeroizing;

/// Looks for the forms of a secret in the pieces of a body, also where one lies across two of them, and where JSON spells
/// characters of it as `\u002B`: some encoders do that to `+` and others that keys have.
pub(crate) struct Echo {
    forms: Vec<Zeroizing<Vec<u8>>>,
    tail: Zeroizing<Vec<u8>>,
    /// The same with the escapes of JSON taken out.
    plain: Zeroizing<Vec<u8>>,
    /// The beginning of an escape, whose end has not come.
    escape: Zeroizing<Vec<u8>>,
}

impl Echo {
    /// Of these texts, each as it is and as JSON may spell its slashes; an empty one is none.
    pub(crate) fn of(texts: &[&str]) -> Self {
        let mut forms = Vec::new();
        for text in texts.iter().filter(|text| !text.is_empty()) {
            forms.push(Zeroizing::new(text.as_bytes().to_vec()));
            if text.contains('/') {
                forms.push(Zeroizing::new(text.replace('/', "\\/").into_bytes()));
            }
        }
        Self {
            forms,
            tail: Zeroizing::default(),
            plain: Zeroizing::default(),
            escape: Zeroizing::default(),
        }
    }

    /// Whether a text that is whole holds it.
    pub(crate) fn stands_in(&self, text: &[u8]) -> bool {
        self.forms.iter().any(|form| text.windows(form.len()).any(|part| part == form.as_slice()))
    }

    /// Whether it ends in this piece.
    pub(crate) fn is_in(&mut self, piece: &[u8]) -> bool {
        self.tail.extend_from_slice(piece);
        for byte in piece {
            self.unescape(*byte);
        }
        let found = self.stands_in(&self.tail) || self.stands_in(&self.plain);
        let longest = self.forms.iter().map(|form| form.len()).max().unwrap_or_default();
        for tail in [&mut self.tail, &mut self.plain] {
            let gone = tail.len().saturating_sub(longest.saturating_sub(1));
            tail.drain(..gone);
        }
        found
    }

    /// Takes one byte into what is without escapes. One that is none, or of no ASCII character, stays as it is.
    fn unescape(&mut self, byte: u8) {
        let begun = self.escape.len();
        self.escape.push(byte);
        let goes_on = match begun {
            0 => byte == b'\\',
            1 => byte == b'u',
            _ => byte.is_ascii_hexdigit(),
        };
        let plain = match begun {
            1 if matches!(byte, b'/' | b'\\' | b'"') => Some(byte),
            5 if goes_on => ascii(&self.escape),
            _ if goes_on => return,
            _ => None,
        };
        match plain {
            Some(byte) => self.plain.push(byte),
            // An escape may begin where another one breaks off.
            None if begun > 1 && byte == b'\\' => {
                self.escape.pop();
                self.plain.extend_from_slice(&self.escape);
                self.escape.clear();
                return self.escape.push(byte);
            }
            None => self.plain.extend_from_slice(&self.escape),
        }
        self.escape.clear();
    }
}

/// The ASCII character that `\uXXXX` stands for.
fn ascii(escape: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(escape.get(2..)?).ok()?;
    u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_seen_wherever_the_pieces_part() {
        let echo = || Echo::of(&["ab/cd+efgh", ""]);
        for body in [
            &b"error: ab/cd+efgh is unknown"[..],
            br#"{"error":"ab\/cd+efgh is unknown"}"#,
            br#"{"error":"ab/cd\u002Befgh is unknown"}"#,
            br#"{"error":"\u00\u0061b\u002fcd\u002befgh is unknown"}"#,
        ] {
            for at in 0..body.len() {
                let (first, second) = body.split_at(at);
                let mut echo = echo();
                let (early, late) = (echo.is_in(first), echo.is_in(second));
                assert!(early || late, "{at}");
                assert_eq!(early, first.windows(4).any(|part| part == b"efgh"), "{at}");
            }
        }
        let mut other = echo();
        assert!(!other.is_in(b"error: ab/cd+efg is unknown, "));
        assert!(!other.is_in(b"and so is h"));
        // A backslash that is escaped begins nothing.
        assert!(!other.is_in(br#"{"error":"ab/cd\\u002Befgh is unknown"}"#));
    }
}
