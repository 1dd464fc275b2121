//! The token that lets a host in.

use std::fmt;

use portcullis_canon::{Digest, Kind};
use portcullis_domain::ports::Entropy;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The fewest bytes of a token.
const MIN_BYTES: usize = 32;

/// The most bytes of a token.
const MAX_BYTES: usize = 256;

/// A text that cannot be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is 32 to 256 letters, digits and `-._~+/=`, alone on one line")]
pub struct TokenError;

/// What a host has to show with each request. The text itself is not kept, so that nothing can say it.
#[derive(Clone)]
pub struct Token(Digest);

impl Token {
    /// The token that stands in a file, which may end its line.
    ///
    /// # Errors
    /// [`TokenError`] for what no header could carry, or what could be guessed.
    pub fn read(file: &str) -> Result<Self, TokenError> {
        let text = file.strip_suffix('\n').unwrap_or(file);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
        match (MIN_BYTES..=MAX_BYTES).contains(&text.len()) && text.bytes().all(plain) {
            true => Ok(Self::of(text.as_bytes())),
            false => Err(TokenError),
        }
    }

    /// The text of a new token, for a file that only its owner reads.
    #[must_use]
    pub fn draw(entropy: &dyn Entropy) -> Zeroizing<String> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut drawn = Zeroizing::new([0_u8; 32]);
        entropy.fill(drawn.as_mut_slice());
        let halves = drawn.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
        // A half byte is one of sixteen.
        let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or(b'0');
        Zeroizing::new(halves.map(|half| char::from(digit(half))).collect())
    }

    /// Whether this is it. How long that takes says nothing of how much of it is right.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let Self(given) = Self::of(given);
        bool::from(self.0.as_bytes().ct_eq(given.as_bytes()))
    }

    /// What proves ids of sessions. It says nothing of the token.
    pub(super) fn for_sessions(&self) -> Digest {
        self.following(b"sessions")
    }

    /// The conversation of whoever has it, where no other one is named. It says nothing of the token.
    pub(super) fn conversation(&self) -> String {
        self.following(b"conversation").hex()
    }

    fn of(text: &[u8]) -> Self {
        Self(Digest::of_parts(Kind::HostToken, &[b"token", text]))
    }

    fn following(&self, purpose: &[u8]) -> Digest {
        Digest::of_parts(Kind::HostToken, &[purpose, self.0.as_bytes()])
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use portcullis_testkit::ports::SeededEntropy;

    use super::*;

    #[test]
    fn a_drawn_token_is_the_one_that_is_read() {
        let entropy = SeededEntropy::new(5);
        let (one, other) = (Token::draw(&entropy), Token::draw(&entropy));
        assert_eq!((one.len(), one == other), (64, false));
        let token = Token::read(&format!("{}\n", *one)).unwrap();
        assert!(token.is(one.as_bytes()));
        assert!(!token.is(other.as_bytes()) && !token.is(b"") && !token.is(&one.as_bytes()[1..]));
        assert!(!format!("{token:?}").contains(one.get(..8).unwrap()));
    }

    #[test]
    fn what_could_be_guessed_or_no_header_carries_is_no_token() {
        let good = "a".repeat(MIN_BYTES);
        assert!(Token::read(&good).is_ok() && Token::read(&"a".repeat(MAX_BYTES)).is_ok());
        let (long, spaced, lines) =
            ("a".repeat(MAX_BYTES + 1), format!("{good} b"), format!("{good}\n{good}"));
        for odd in ["", "\n", good.get(1..).unwrap(), &long, &spaced, &lines, &"ä".repeat(20)] {
            assert_eq!(Token::read(odd).unwrap_err(), TokenError, "{odd}");
        }
    }

    #[test]
    fn what_follows_from_two_tokens_differs_and_is_not_what_is_compared() {
        let [a, b] = ["a", "b"].map(|c| Token::read(&c.repeat(40)).unwrap());
        assert_ne!(a.for_sessions(), b.for_sessions());
        assert_ne!(a.conversation(), b.conversation());
        assert_ne!(a.for_sessions(), a.0);
        assert_ne!(a.conversation(), a.0.hex());
    }
}
