//! What a server says when it refuses for want of a token: `WWW-Authenticate`, of which the scheme `Bearer` counts.

use std::sync::{Arc, Mutex, PoisonError};

use portcullis_egress::Headers;

use super::scope;

/// The longest header that is looked at, in bytes, and the most of them.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 8;

/// A refusal for want of a token, or of one that may do more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    wants_more: bool,
    metadata: Option<String>,
    scope: Option<String>,
}

impl Challenge {
    /// What stands in the headers of an answer with this status, 401 or 403. A server may say nothing.
    #[must_use]
    pub(crate) fn read(status: u16, headers: &Headers) -> Self {
        let values = headers.iter().filter(|(name, _)| *name == "www-authenticate");
        let values =
            values.take(MAX_HEADERS).filter_map(|(_, value)| std::str::from_utf8(value).ok());
        let mut challenges =
            values.filter(|value| value.len() <= MAX_HEADER_BYTES).flat_map(challenges);
        let bearer = challenges.find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
        let param = |name| bearer.as_ref().and_then(|bearer| bearer.param(name));
        let scope = param("scope").and_then(scope::read);
        // Other refusals with 403 are none that a login mends. Servers say it by the word, by scopes, or by both.
        let insufficient = param("error") == Some("insufficient_scope");
        let wants_more = status == 403 && (insufficient || scope.is_some());
        Self { wants_more, metadata: param("resource_metadata").map(str::to_owned), scope }
    }

    /// Where the server says that its metadata are.
    pub(super) fn metadata(&self) -> Option<&str> {
        self.metadata.as_deref()
    }

    /// The scopes that the server asks for, with spaces between.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
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
    /// A parameter that stands there once.
    fn param(&self, name: &str) -> Option<&str> {
        let mut all = self.params.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        match (all.next(), all.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }
}

/// All challenges of one header. What follows something that cannot be read is not looked at.
fn challenges(header: &str) -> Vec<Scheme> {
    let (mut all, mut rest) = (Vec::<Scheme>::new(), header);
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (name, after) = split_token(rest);
        if name.is_empty() {
            return all;
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
            (_, Some(_), None) => return all,
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
        challenges(header).iter().map(one).collect()
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
        let all = challenges("Bearer scope=a, scope=b, x=1");
        assert_eq!((all[0].param("scope"), all[0].param("X")), (None, Some("1")));
    }

    #[test]
    fn scopes_for_a_shell_are_plain() {
        let with =
            |scope: &str| Challenge { wants_more: true, metadata: None, scope: scope::read(scope) };
        assert_eq!(with("files:read b/c").plain_scope(), Some("files:read b/c"));
        for odd in ["a;b", "$(x)", "a'b", "`x`", &"x".repeat(201)] {
            assert_eq!(with(odd).plain_scope(), None, "{odd}");
        }
    }
}
