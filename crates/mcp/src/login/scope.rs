//! Scopes: words of RFC 6749, section 3.3, and which of them are asked for.

use super::LoginTerms;
use super::challenge::Challenge;
use super::issuer::Issuer;
use super::resource::Resource;

/// The most words, and the most bytes of all of them.
const MAX_WORDS: usize = 64;
const MAX_BYTES: usize = 2_048;

/// The scope by which an issuer is asked for a token that gets others.
const OFFLINE: &str = "offline_access";

/// A text as scopes; nothing when it has none, or what is none.
pub(super) fn read(text: &str) -> Option<String> {
    join(text.split(' ').filter(|word| !word.is_empty()))
}

/// Words as one text, each once.
pub(super) fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    for word in words {
        if !is_word(word) {
            return None;
        }
        if !all.contains(&word) {
            all.push(word);
        }
        if all.len() > MAX_WORDS {
            return None;
        }
    }
    Some(all.join(" ")).filter(|text| (1..=MAX_BYTES).contains(&text.len()))
}

fn is_word(word: &str) -> bool {
    word.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// What is asked for: what the operator says, else what the server said when it refused, else what it says in its
/// metadata; what was asked for before; and a token that gets others, where the issuer has a scope for that.
pub(super) fn choose(
    terms: &LoginTerms,
    challenge: &Challenge,
    resource: &Resource,
    issuer: &Issuer,
) -> Option<String> {
    let wanted = terms.scope.as_deref().or(challenge.scope()).or(resource.scope.as_deref());
    let former = terms.former_scope.as_deref().unwrap_or_default();
    let words = wanted.unwrap_or_default().split(' ').chain(former.split(' '));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    // Where no scope is asked for, the issuer chooses them all, and this one alone would be fewer.
    let offline = issuer.scopes.iter().any(|scope| scope == OFFLINE) && !words.is_empty();
    join(words.into_iter().chain(offline.then_some(OFFLINE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_words_each_once() {
        assert_eq!(read("a b:c  a").as_deref(), Some("a b:c"));
        assert_eq!(read("https://x.example/y").as_deref(), Some("https://x.example/y"));
        for none in ["", " ", "a\"b", "a\\b", "a\tb", "\u{e9}"] {
            assert_eq!(read(none), None, "{none:?}");
        }
        assert_eq!(read(&"x ".repeat(65)).as_deref(), Some("x"));
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        assert_eq!(read(&many.join(" ")), None);
        assert_eq!(read(&"x".repeat(MAX_BYTES + 1)), None);
    }
}
