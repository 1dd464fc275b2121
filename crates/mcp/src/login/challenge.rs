//! What a server says when it refuses for want of a token: `WWW-Authenticate`, of which the scheme `Bearer` counts.

use std::sync::{Arc, Mutex, PoisonError};

use portcullis_egress::Headers;

use super::scope::Scopes;

/// The longest header that is looked at, in bytes.
const MAX_HEADER_BYTES: usize = 8 * 1024;

/// A refusal for want of a token, or of one that may do more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    wants_more: bool,
    metadata: Option<String>,
    pub(super) scopes: Scopes,
}

impl Challenge {
    /// What stands in the headers of an answer with this status, 401 or 403. A server may say nothing.
    #[must_use]
    pub(crate) fn read(status: u16, headers: &Headers) -> Self {
        let values = headers.iter().filter(|(name, _)| *name == "www-authenticate");
        let all: Vec<Read> = values.map(|(_, value)| challenges(value)).collect();
        let mut schemes = all.iter().flat_map(|read| &read.schemes);
        let bearer = schemes.find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
        let param = |name| bearer.and_then(|bearer| bearer.param(name));
        let scopes = match bearer.map_or(Said::Nothing, |bearer| bearer.said("scope")) {
            Said::Once(text) => Scopes::read(text),
            Said::Again => Scopes::Odd,
            // They may stand in what could not be read.
            Said::Nothing if all.iter().any(|read| !read.whole) => Scopes::Odd,
            Said::Nothing => Scopes::Unsaid,
        };
        // Other refusals with 403 are none that a login mends. Servers say it by the word, by scopes, or by both.
        let insufficient = param("error") == Some("insufficient_scope");
        let wants_scopes = bearer.is_some() && scopes != Scopes::Unsaid;
        let wants_more = status == 403 && (insufficient || wants_scopes);
        Self { wants_more, metadata: param("resource_metadata").map(str::to_owned), scopes }
    }

    /// Where the server says that its metadata are.
    pub(super) fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }

    /// The scopes that the server asks for, with spaces between.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.scopes.words()
    }

    /// Whether it took the token, and wants one that may do more.
    #[must_use]
    pub const fn wants_more(&self) -> bool {
        self.wants_more
    }

    /// The scopes as they may stand in a line for a shell; nothing where one of them has an unusual character.
    #[must_use]
    pub fn plain_scope(&self) -> Option<&str> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ._:/-".contains(&byte);
        self.scope().filter(|text| text.len() <= 200 && text.bytes().all(plain))
    }
}

/// Where a session notes the last refusal, for who may log in. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Challenges(Arc<Mutex<Option<Challenge>>>);

impl Challenges {
    /// The last refusal since it was last taken.
    #[must_use]
    pub fn take(&self) -> Option<Challenge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn note(&self, challenge: Challenge) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(challenge);
    }
}

/// One challenge of RFC 9110, section 11.6.1.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scheme {
    scheme: String,
    params: Vec<(String, String)>,
}

impl Scheme {
    fn said(&self, name: &str) -> Said<'_> {
        let mut all = self.params.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        match (all.next(), all.next()) {
            (None, _) => Said::Nothing,
            (Some((_, value)), None) => Said::Once(value),
            (Some(_), Some(_)) => Said::Again,
        }
    }

    /// A parameter that stands there once.
    fn param(&self, name: &str) -> Option<&str> {
        match self.said(name) {
            Said::Once(value) => Some(value),
            Said::Nothing | Said::Again => None,
        }
    }
}

/// How a parameter is said.
enum Said<'a> {
    Nothing,
    Once(&'a str),
    Again,
}

/// The challenges of one header, and whether those are all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    schemes: Vec<Scheme>,
    whole: bool,
}

/// What follows something that cannot be read is not looked at, and the header is not whole.
fn challenges(header: &[u8]) -> Read {
    match std::str::from_utf8(header) {
        Ok(header) if header.len() <= MAX_HEADER_BYTES => {
            let (schemes, rest) = split(header);
            Read { schemes, whole: rest.is_empty() }
        }
        _ => Read::default(),
    }
}

/// The challenges that can be read, and what stands behind them.
fn split(header: &str) -> (Vec<Scheme>, &str) {
    let (mut all, mut rest) = (Vec::<Scheme>::new(), header);
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (name, after) = split_token(rest);
        if name.is_empty() {
            return (all, rest);
        }
        let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        let value = value.map(|value| value.trim_start_matches([' ', '\t']));
        match (value.and_then(split_value), value, all.last_mut()) {
            (Some((value, after)), _, Some(challenge)) => {
                challenge.params.push((name.to_owned(), value));
                rest = after;
            }
            // A scheme's bare token, which ends in signs of equality.
            (None, Some(value), Some(_)) => rest = value.trim_start_matches('='),
            (_, Some(_), None) => return (all, rest),
            (_, None, _) => {
                all.push(Scheme { scheme: name.to_owned(), params: Vec::new() });
                rest = after;
            }
        }
    }
}

fn split_token(text: &str) -> (&str, &str) {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte);
    let end = text.bytes().position(|byte| !is_token(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// A token or a quoted text, and what follows it.
fn split_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = split_token(text);
        return (!token.is_empty()).then(|| (token.to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(chars.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(header: &str) -> Vec<String> {
        let one = |challenge: &Scheme| {
            let params = challenge.params.iter().map(|(name, value)| format!(" {name}={value}"));
            format!("{}{}", challenge.scheme, params.collect::<String>())
        };
        split(header).0.iter().map(one).collect()
    }

    #[test]
    fn challenges_are_read_as_the_standard_has_them() {
        for (header, expected) in [
            ("Bearer", vec!["Bearer"]),
            (
                "Bearer scope=\"a b\", resource_metadata=\"https://a.example/x\"",
                vec!["Bearer scope=a b resource_metadata=https://a.example/x"],
            ),
            (
                "Basic realm=\"x, y\", bearer error = insufficient_scope",
                vec!["Basic realm=x, y", "bearer error=insufficient_scope"],
            ),
            ("Negotiate YWJj==, Bearer scope=\"q\\\"q\"", vec!["Negotiate", "Bearer scope=q\"q"]),
            ("Bearer scope=\"never ends", vec!["Bearer"]),
            ("=x", vec![]),
            ("x=y", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(shown(header), expected, "{header}");
        }
    }

    #[test]
    fn a_parameter_that_stands_there_twice_is_none() {
        let all = split("Bearer scope=a, scope=b, x=1").0;
        assert_eq!((all[0].param("scope"), all[0].param("X")), (None, Some("1")));
    }

    #[test]
    fn a_header_that_cannot_be_read_to_its_end_is_not_whole() {
        for whole in ["", "Bearer", "Negotiate YWJj==, Bearer scope=\"q\"", "Bearer a=\"b, c\","] {
            assert!(challenges(whole.as_bytes()).whole, "{whole}");
        }
        for odd in ["Bearer scope=\"never ends", "=x", "x=y", "Bearer scope=\u{e9}"] {
            assert!(!challenges(odd.as_bytes()).whole, "{odd}");
        }
        let long = format!("Bearer scope=\"{}\"", "x".repeat(MAX_HEADER_BYTES));
        assert_eq!(challenges(long.as_bytes()), Read::default());
        assert_eq!(challenges(b"Bearer scope=\xff"), Read::default());
    }

    #[test]
    fn scopes_for_a_shell_are_plain() {
        let with = |scope: &str| Challenge {
            wants_more: true,
            metadata: None,
            scopes: Scopes::read(scope),
        };
        assert_eq!(with("files:read b/c").plain_scope(), Some("files:read b/c"));
        for odd in ["a;b", "$(x)", "a'b", "`x`", &"x".repeat(201)] {
            assert_eq!(with(odd).plain_scope(), None, "{odd}");
        }
    }
}
