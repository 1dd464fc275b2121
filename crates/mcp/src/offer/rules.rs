//! What the operator lets hosts read of a server and get from it. What no rule names stays out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::advertised::{Offer, OfferKind};
use crate::pin::ServerName;
use crate::session::MAX_URI_BYTES;

/// Which resources may be read: one, or all below a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UriRule {
    /// The resource of exactly this URI.
    One(String),
    /// Those whose URI begins with this, which ends with `/`, `:` or `=`.
    Below(String),
}

/// A text that is no such rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a resource is named by its whole URI, such as `notes://today`, or by the beginning that many share, up to a `/`, `:` or \
     `=`, and a `*`, such as `notes://*`"
)]
pub struct UriRuleError;

impl FromStr for UriRule {
    type Err = UriRuleError;

    fn from_str(text: &str) -> Result<Self, UriRuleError> {
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        let letters = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        if !letters || !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(UriRuleError);
        }
        if text.len() > MAX_URI_BYTES || text.chars().any(char::is_control) {
            return Err(UriRuleError);
        }
        match text.strip_suffix('*') {
            Some(place) if place.contains('*') || !is_plain(place) => Err(UriRuleError),
            Some(place) if place.ends_with(['/', ':', '=']) => Ok(Self::Below(place.to_owned())),
            Some(_) => Err(UriRuleError),
            None if text.contains('*') => Err(UriRuleError),
            None => Ok(Self::One(text.to_owned())),
        }
    }
}

impl fmt::Display for UriRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(uri) => f.write_str(uri),
            Self::Below(place) => write!(f, "{place}*"),
        }
    }
}

impl UriRule {
    /// Whether it lets this be read. Texts are compared as they stand: another spelling is another resource. Below a place
    /// lies nothing that leads out of it, however it is written.
    #[must_use]
    pub fn allows(&self, uri: &str) -> bool {
        match self {
            Self::One(one) => one == uri,
            Self::Below(place) => {
                let rest = uri.strip_prefix(place.as_str()).filter(|_| uri.len() <= MAX_URI_BYTES);
                rest.is_some_and(|rest| goes_on(place, rest)) && is_plain(uri)
            }
        }
    }

    /// Whether each URI of a template is one that it lets be read, as far as the template's own text says.
    fn covers(&self, template: &str) -> bool {
        let fixed = template.split_once('{').map_or(template, |(fixed, _)| fixed);
        match self {
            Self::One(_) => false,
            Self::Below(place) => fixed.starts_with(place.as_str()),
        }
    }

    /// Whether something may be read by both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(one), other) | (other, Self::One(one)) => other.allows(one),
            (Self::Below(one), Self::Below(other)) => {
                one.starts_with(other.as_str()) || other.starts_with(one.as_str())
            }
        }
    }
}

/// How often percent signs are written over percent signs before nobody means anything good by it.
const MOST_READINGS: usize = 4;

/// Printable ASCII without what has a meaning elsewhere, and without a step upwards, also one that is written with percent
/// signs.
fn is_plain(uri: &str) -> bool {
    let printable = |b: u8| (0x21..=0x7e).contains(&b) && !br#"\"<>{}|^`"#.contains(&b);
    let climbs = |text: &[u8]| {
        let mut parts = text.split(|b| b"/\\?#&=;:".contains(b));
        parts.any(|part| matches!(part, b"." | b"..")) || text.iter().any(u8::is_ascii_control)
    };
    let readings = readings(uri).unwrap_or_default();
    uri.bytes().all(printable) && !readings.is_empty() && !readings.iter().any(|text| climbs(text))
}

/// Whether what stands behind a place goes on from there, under any reading: it begins no path of its own, no further field
/// behind a `=`, and no other host behind a `:`.
fn goes_on(place: &str, rest: &str) -> bool {
    let foreign: &[u8] = match place.as_bytes().last() {
        Some(b'=') => b"&;#",
        Some(b':') => b"@",
        _ => b"",
    };
    let leaves = |text: &[u8]| {
        text.first().is_some_and(|first| b"/\\".contains(first))
            || text.iter().any(|byte| foreign.contains(byte))
    };
    readings(rest).is_some_and(|readings| !readings.iter().any(|text| leaves(text)))
}

/// The text as it stands, and each time that its percent signs are read; nothing where they hide more than a few others.
fn readings(text: &str) -> Option<Vec<Vec<u8>>> {
    let mut readings = vec![text.as_bytes().to_vec()];
    while let Some(shorter) = readings.last().and_then(|text| decoded(text)) {
        if readings.len() > MOST_READINGS {
            return None;
        }
        readings.push(shorter);
    }
    Some(readings)
}

/// The text with its percent signs read once; nothing where there are none.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let byte = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match byte {
            Some((high, low)) => {
                out.push((high << 4) | low);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    (out.len() < text.len()).then_some(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// What hosts may have of one server beside its tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferRules {
    /// Which resources may be read; nothing said where the operator names none, not even an empty list.
    pub resources: Option<Vec<UriRule>>,
    /// Which prompts may be got, by the server's names.
    pub prompts: Option<BTreeSet<String>>,
    /// What hosts call a prompt, by the server's name of it, where that is not `server.prompt`.
    pub prompt_names: BTreeMap<String, String>,
    /// Whether the server may be asked how a value of theirs goes on while it is typed.
    pub completions: bool,
}

impl OfferRules {
    /// Whether the operator speaks of this kind, so that the server is asked for it.
    #[must_use]
    pub const fn names(&self, kind: OfferKind) -> bool {
        match kind {
            OfferKind::Resource | OfferKind::Template => self.resources.is_some(),
            OfferKind::Prompt => self.prompts.is_some(),
        }
    }

    /// The kinds that the operator speaks of.
    pub fn kinds(&self) -> impl Iterator<Item = OfferKind> + '_ {
        OfferKind::ALL.into_iter().filter(|kind| self.names(*kind))
    }

    /// Whether a host may have anything at all.
    #[must_use]
    pub fn lets_any_through(&self) -> bool {
        self.uris().next().is_some() || self.prompts.as_ref().is_some_and(|some| !some.is_empty())
    }

    /// Which resources may be read.
    pub fn uris(&self) -> impl Iterator<Item = &UriRule> {
        self.resources.iter().flatten()
    }

    /// Whether a resource may be read.
    #[must_use]
    pub fn reads(&self, uri: &str) -> bool {
        self.uris().any(|rule| rule.allows(uri))
    }

    /// Whether a prompt may be got.
    #[must_use]
    pub fn gets(&self, prompt: &str) -> bool {
        self.prompts.as_ref().is_some_and(|prompts| prompts.contains(prompt))
    }

    /// What hosts call a prompt of this server.
    #[must_use]
    pub fn prompt_name(&self, server: &ServerName, prompt: &str) -> String {
        let usual = || format!("{server}.{prompt}");
        self.prompt_names.get(prompt).cloned().unwrap_or_else(usual)
    }

    /// Whether a host may be shown this.
    #[must_use]
    pub fn allows(&self, offer: &Offer) -> bool {
        match offer.kind() {
            OfferKind::Resource => self.reads(offer.name()),
            OfferKind::Template => self.uris().any(|rule| rule.covers(offer.name())),
            OfferKind::Prompt => self.gets(offer.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> UriRule {
        text.parse().unwrap()
    }

    #[test]
    fn a_rule_is_a_whole_uri_or_the_beginning_of_many() {
        for text in
            ["notes://today", "notes://*", "notes://a/*", "urn:x:*", "n://q?id=*", "file:///a b"]
        {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("notes://a/*"), UriRule::Below("notes://a/".to_owned()));
        for odd in [
            "",
            "*",
            "notes",
            "/notes",
            "1:x",
            ":x",
            "no tes:x",
            "notes://a*",
            "notes://*/a",
            "notes://**",
            "notes://*a*",
            "notes://../*",
            "notes://%2e%2E/*",
            "notes://a b/*",
            "notes:\n",
        ] {
            assert_eq!(odd.parse::<UriRule>(), Err(UriRuleError), "{odd:?}");
        }
    }

    #[test]
    fn below_a_place_lies_nothing_that_leads_out_of_it() {
        let below = rule("notes://a/*");
        for uri in [
            "notes://a/",
            "notes://a/b",
            "notes://a/b/c?x=1#y",
            "notes://a/..b",
            "notes://a/b..",
            "notes://a/%41",
            "notes://a/100%",
        ] {
            assert!(below.allows(uri), "{uri}");
        }
        let long = format!("notes://a/{}", "b".repeat(MAX_URI_BYTES));
        for uri in [
            "",
            "notes://a",
            "notes://ab",
            "Notes://a/b",
            "notes://A/b",
            "notes:///a/b",
            "other://a/b",
            "notes://a/..",
            "notes://a/../b",
            "notes://a/./b",
            "notes://a/b/..",
            "notes://a/%2e%2e/b",
            "notes://a/.%2E/b",
            "notes://a/%252e%252e/b",
            "notes://a/%25252e%25252e%25252fb",
            "notes://a/..%2fb",
            "notes://a/..%5cb",
            "notes://a/b\\..\\c",
            "notes://a/b c",
            "notes://a/\u{e9}",
            "notes://a/b\n",
            "notes://a/%0a",
            "notes://a/%00",
            "notes://a/{x}",
            "notes://a/?path=../b",
            "notes://a/#..",
            "notes://a//etc/passwd",
            "notes://a/%2Fetc/passwd",
            "notes://a/%255cetc",
            "notes://a/%252525252e%252525252e/b",
            &long,
        ] {
            assert!(!below.allows(uri), "{uri:?}");
        }
        let field = rule("notes://q?id=*");
        assert!(field.allows("notes://q?id=7/8"));
        for uri in ["notes://q?id=1&path=x", "notes://q?id=1%26path=x", "notes://q?id=1#x"] {
            assert!(!field.allows(uri), "{uri}");
        }
        assert!(
            rule("n:*").allows("n:1") && !rule("https://host:*").allows("https://host:x@other/")
        );
        let one = rule("notes://a/../b c");
        assert!(one.allows("notes://a/../b c"), "the operator wrote it");
        assert!(!one.allows("notes://a/../b%20c") && !one.allows("notes://b c"));
    }

    #[test]
    fn a_template_is_covered_as_far_as_its_own_text_goes() {
        let offer = |template: &str| {
            let raw = portcullis_canon::Value::from(template);
            let mut object = portcullis_canon::Object::new();
            object.insert("uriTemplate", raw);
            Offer::read(OfferKind::Template, &portcullis_canon::Value::Object(object)).unwrap()
        };
        let rules = |rule: &str| OfferRules {
            resources: Some(vec![rule.parse().unwrap()]),
            ..OfferRules::default()
        };
        assert!(rules("n://a/*").allows(&offer("n://a/{x}")));
        assert!(rules("n://a/*").allows(&offer("n://a/b/{x}/{y}")));
        for other in ["n://{x}", "n://a{x}", "{x}", "n://ab/{x}"] {
            assert!(!rules("n://a/*").allows(&offer(other)), "{other}");
        }
        assert!(!rules("n://a/{x}").allows(&offer("n://a/{x}")), "one resource is no form of many");
        assert!(!OfferRules::default().allows(&offer("n://a/{x}")));
    }

    #[test]
    fn rules_that_meet_are_seen() {
        for (one, other, meet) in [
            ("n://a", "n://a", true),
            ("n://a", "n://b", false),
            ("n://a/*", "n://a/b", true),
            ("n://a/*", "n://b", false),
            ("n://a/*", "n://*", true),
            ("n://a/*", "n://ab/*", false),
            ("n://a/*", "m://a/*", false),
        ] {
            assert_eq!(rule(one).meets(&rule(other)), meet, "{one} {other}");
            assert_eq!(rule(other).meets(&rule(one)), meet, "{other} {one}");
        }
    }
}
