//! A body that repeats the credential of its request: it is not handed out, since what it says ends up in records.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::secret::Secret;

/// Looks for a secret in the pieces of a body, also where it lies across two of them.
pub(crate) struct Echo {
    secret: Arc<Secret>,
    tail: Zeroizing<Vec<u8>>,
}

impl Echo {
    pub(crate) fn of(secret: Arc<Secret>) -> Self {
        Self { secret, tail: Zeroizing::default() }
    }

    /// Whether the secret ends in this piece, as it is or as JSON may spell its slashes.
    pub(crate) fn is_in(&mut self, piece: &[u8]) -> bool {
        let plain = self.secret.expose().as_bytes();
        let escaped = Zeroizing::new(self.secret.expose().replace('/', "\\/"));
        let longest = escaped.len().max(plain.len());
        self.tail.extend_from_slice(piece);
        let holds = |needle: &[u8]| self.tail.windows(needle.len()).any(|part| part == needle);
        let found = holds(plain) || (escaped.len() > plain.len() && holds(escaped.as_bytes()));
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
        let echo = || Echo::of(Arc::new(Secret::new("ab/cd+efgh".to_owned()).expect("a secret")));
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
