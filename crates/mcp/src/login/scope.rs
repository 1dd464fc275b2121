//! Scopes: words of RFC 6749, section 3.3, and which of them are asked for.

use super::LoginTerms;
use super::challenge::Challenge;
use super::error::LoginError;
use super::issuer::Issuer;
use super::resource::Resource;

/// The most words, and the most bytes of all of them.
const MAX_WORDS: usize = 64;
const MAX_BYTES: usize = 2_048;

/// The scope by which an issuer is asked for a token that gets others.
const OFFLINE: &str = "offline_access";

/// What somebody says of the scopes that there are to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Scopes {
    /// Nothing.
    #[default]
    Unsaid,
    /// These, each once, with spaces between.
    Words(String),
    /// What is none, or is too much. It is told, because fewer scopes than were meant, or all of them, are another request.
    Odd,
}

impl Scopes {
    /// A text as scopes. One without words says nothing.
    pub(super) fn read(text: &str) -> Self {
        Self::join(text.split(' ').filter(|word| !word.is_empty()))
    }

    /// Words as one text.
    pub(super) fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<&str> = Vec::new();
        for word in words {
            if !is_word(word) {
                return Self::Odd;
            }
            if !all.contains(&word) {
                all.push(word);
            }
            if all.len() > MAX_WORDS {
                return Self::Odd;
            }
        }
        let text = all.join(" ");
        match text.len() {
            0 => Self::Unsaid,
            1..=MAX_BYTES => Self::Words(text),
            _ => Self::Odd,
        }
    }

    /// The words, where these are some.
    pub(super) fn words(&self) -> Option<&str> {
        match self {
            Self::Words(words) => Some(words),
            Self::Unsaid | Self::Odd => None,
        }
    }

    /// The same, else what the next one says.
    fn or<'a>(&'a self, next: &'a Self) -> &'a Self {
        if *self == Self::Unsaid { next } else { self }
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// What is asked for: what the operator says, else what the server said when it refused, which the authorization pages of MCP
/// have clients take as it stands, else what it says in its metadata; what was asked for before, where this login is for
/// more (a step-up joins the two); and a token that gets others, where the issuer has a scope for that.
///
/// # Errors
/// [`LoginError::Scopes`] when what would be asked for is not scopes, or is too much.
pub(super) fn choose(
    terms: &LoginTerms,
    challenge: &Challenge,
    resource: &Resource,
    issuer: &Issuer,
) -> Result<Option<String>, LoginError> {
    let said = terms.scope.as_deref().map(Scopes::read).unwrap_or_default();
    let former = terms.former_scope.as_deref().map(Scopes::read).unwrap_or_default();
    let wanted = said.or(&challenge.scopes).or(&resource.scopes);
    if [wanted, &former].contains(&&Scopes::Odd) {
        return Err(LoginError::Scopes);
    }
    let words = [wanted, &former].into_iter().filter_map(Scopes::words);
    let words: Vec<&str> = words.flat_map(|words| words.split(' ')).collect();
    // Where no scope is asked for, the issuer chooses them all, and this one alone would be fewer.
    let offline = issuer.scopes.iter().any(|scope| scope == OFFLINE) && !words.is_empty();
    match Scopes::join(words.into_iter().chain(offline.then_some(OFFLINE))) {
        Scopes::Unsaid => Ok(None),
        Scopes::Words(words) => Ok(Some(words)),
        Scopes::Odd => Err(LoginError::Scopes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_words_each_once() {
        let read = Scopes::read;
        assert_eq!(read("a b:c  a").words(), Some("a b:c"));
        assert_eq!(read("https://x.example/y").words(), Some("https://x.example/y"));
        assert_eq!(read(&"x ".repeat(65)).words(), Some("x"));
        for nothing in ["", " "] {
            assert_eq!(read(nothing), Scopes::Unsaid, "{nothing:?}");
        }
        for odd in ["a\"b", "a\\b", "a\tb", "\u{e9}", "good b\tad"] {
            assert_eq!(read(odd), Scopes::Odd, "{odd:?}");
        }
        assert_eq!(Scopes::join(["a", ""]), Scopes::Odd);
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        assert_eq!(read(&many.join(" ")), Scopes::Odd);
        assert_eq!(read(&"x".repeat(MAX_BYTES + 1)), Scopes::Odd);
        assert_eq!(read(&"x".repeat(MAX_BYTES)).words().map(str::len), Some(MAX_BYTES));
    }
}
