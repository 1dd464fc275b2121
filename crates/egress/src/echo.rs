//! A body that repeats the credential of its request: it is not handed out, since what it says ends up in records.

use zeroize::Zeroizing;

/// Looks for the forms of a secret in the pieces of a body, also where one lies across two of them.
pub(crate) struct Echo {
    forms: Vec<Zeroizing<Vec<u8>>>,
    tail: Zeroizing<Vec<u8>>,
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
        Self { forms, tail: Zeroizing::default() }
    }

    /// Whether a text that is whole holds it.
    pub(crate) fn stands_in(&self, text: &[u8]) -> bool {
        self.forms.iter().any(|form| text.windows(form.len()).any(|part| part == form.as_slice()))
    }

    /// Whether it ends in this piece.
    pub(crate) fn is_in(&mut self, piece: &[u8]) -> bool {
        self.tail.extend_from_slice(piece);
        let found = self.stands_in(&self.tail);
        let longest = self.forms.iter().map(|form| form.len()).max().unwrap_or_default();
        let gone = self.tail.len().saturating_sub(longest.saturating_sub(1));
        self.tail.drain(..gone);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_seen_wherever_the_pieces_part() {
        let echo = || Echo::of(&["ab/cd+efgh", ""]);
        for body in [&b"error: ab/cd+efgh is unknown"[..], br#"{"error":"ab\/cd+efgh is unknown"}"#]
        {
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
    }
}
