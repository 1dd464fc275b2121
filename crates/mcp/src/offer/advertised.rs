//! One resource, template or prompt as a server advertises it: what a host may be shown of it, and nothing else.

use std::collections::BTreeSet;

use portcullis_canon::{Digest, Kind, Object, Value, sanitize};

use crate::pin::words;
use crate::session::MAX_URI_BYTES;

/// The most that one server may advertise of each kind.
pub const MAX_OFFERS: usize = 1_000;

/// How much of a name goes into a sentence.
const QUOTED_BYTES: usize = 80;

/// What kind of thing is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// Something that can be read by its URI.
    Resource,
    /// A form of URIs that can be read.
    Template,
    /// Messages to begin with.
    Prompt,
}

impl OfferKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Resource, Self::Template, Self::Prompt];

    /// The member by which one is told from the next.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
            Self::Prompt => "name",
        }
    }

    /// The member of a listing, and of a manifest.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
            Self::Prompt => "prompts",
        }
    }

    /// One of them, in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::Template => "resource template",
            Self::Prompt => "prompt",
        }
    }

    /// Several of them, in a sentence.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Resource => "resources",
            Self::Template => "resource templates",
            Self::Prompt => "prompts",
        }
    }

    /// The members that are shown, beside the arguments of a prompt. Icons are addresses that a host would ask, and sizes
    /// and annotations change with what is held.
    const fn texts(self) -> &'static [&'static str] {
        match self {
            Self::Resource => &["uri", "name", "title", "description", "mimeType"],
            Self::Template => &["uriTemplate", "name", "title", "description", "mimeType"],
            Self::Prompt => &["name", "title", "description"],
        }
    }
}

/// One of them: what a host is shown, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    kind: OfferKind,
    name: String,
    shown: Object,
}

/// Why a listing is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// One has no name, or one that is too long.
    #[error(
        "the server lists a {} that is no object with a `{}` of 1 to {MAX_URI_BYTES} bytes: none of them is used",
        .0.words(), .0.key()
    )]
    Shape(OfferKind),
    /// One name stands twice, on one page or on two.
    #[error("the server lists the {kind} `{1}` twice: none of them is used", kind = .0.words())]
    Repeated(OfferKind, String),
    /// More than [`MAX_OFFERS`].
    #[error("the server lists more than {MAX_OFFERS} {}: none of them is used", .0.plural())]
    TooMany(OfferKind),
}

impl Offer {
    /// Reads one entry of a listing. Members of another type than the protocol gives them are not shown.
    ///
    /// # Errors
    /// [`OfferError::Shape`] when it has no name.
    pub fn read(kind: OfferKind, raw: &Value) -> Result<Self, OfferError> {
        let name = raw.get(kind.key()).and_then(Value::as_str);
        let name = name.filter(|name| (1..=MAX_URI_BYTES).contains(&name.len()));
        let name = name.ok_or(OfferError::Shape(kind))?.to_owned();
        let mut shown = texts(raw, kind.texts());
        // The protocol asks for one, and a name says nothing of its own then.
        if !shown.contains_key("name") {
            shown.insert("name", name.as_str());
        }
        if kind == OfferKind::Prompt
            && let Some(arguments) = arguments(raw)
        {
            shown.insert("arguments", arguments);
        }
        Ok(Self { kind, name, shown })
    }

    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> OfferKind {
        self.kind
    }

    /// Its URI, its template or its name, as the server spells it: not safe to print.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entry that a host is shown.
    #[must_use]
    pub const fn shown(&self) -> &Object {
        &self.shown
    }

    /// The digest of all that is shown.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let parts: [&[u8]; 2] = [self.kind.member().as_bytes(), &self.shown.to_canonical()];
        Digest::of_parts(Kind::Pin, &parts)
    }

    /// The kind and the name, safe to print.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} `{}`", self.kind.words(), words::name(&self.name))
    }

    /// One line about it, safe to print: the kind, the name, and the beginning of its description.
    #[must_use]
    pub fn line(&self) -> String {
        let said = self.shown.get("description").and_then(Value::as_str);
        let said = said.map_or("no description".to_owned(), words::text);
        format!("{}: {said}", self.words())
    }
}

/// The members that are texts.
fn texts(raw: &Value, members: &[&str]) -> Object {
    let mut kept = Object::new();
    for member in members {
        if let Some(text) = raw.get(member).and_then(Value::as_str) {
            kept.insert(*member, text);
        }
    }
    kept
}

/// The arguments of a prompt; none where one of them has no name.
fn arguments(raw: &Value) -> Option<Vec<Value>> {
    let argument = |raw: &Value| {
        let mut kept = texts(raw, &["name", "title", "description"]);
        if let Some(required) = raw.get("required").and_then(Value::as_bool) {
            kept.insert("required", required);
        }
        kept.contains_key("name").then_some(Value::Object(kept))
    };
    raw.get("arguments")?.as_array()?.iter().map(argument).collect()
}

/// A whole listing of one kind: each name once, at most [`MAX_OFFERS`].
pub(crate) fn checked(kind: OfferKind, entries: &[Value]) -> Result<Vec<Offer>, OfferError> {
    if entries.len() > MAX_OFFERS {
        return Err(OfferError::TooMany(kind));
    }
    let offers: Vec<Offer> =
        entries.iter().map(|raw| Offer::read(kind, raw)).collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    if let Some(again) = offers.iter().find(|offer| !seen.insert(offer.name())) {
        let name = sanitize::clip(&sanitize::line(again.name()), QUOTED_BYTES);
        return Err(OfferError::Repeated(kind, name));
    }
    Ok(offers)
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn raw(text: &str) -> Value {
        parse(text.as_bytes(), &Limits::BARE).unwrap()
    }

    #[track_caller]
    fn check(kind: OfferKind, text: &str, shown: &str) {
        let offer = Offer::read(kind, &raw(text)).unwrap();
        assert_eq!(Value::Object(offer.shown().clone()).to_canonical_string(), shown);
        let again = Offer::read(kind, &Value::Object(offer.shown().clone())).unwrap();
        assert_eq!(again, offer, "what is shown reads as the same");
    }

    #[test]
    fn what_is_shown_is_what_the_protocol_knows_of_and_nothing_else() {
        check(
            OfferKind::Resource,
            r#"{"uri":"u:1","name":"n","description":"d","mimeType":"a/b","size":7,"icons":[{"src":"https://x"}],"_meta":{"a":1},"x":1}"#,
            r#"{"description":"d","mimeType":"a/b","name":"n","uri":"u:1"}"#,
        );
        check(
            OfferKind::Template,
            r#"{"uriTemplate":"u:{n}","description":7,"title":null}"#,
            r#"{"name":"u:{n}","uriTemplate":"u:{n}"}"#,
        );
        check(
            OfferKind::Prompt,
            r#"{"name":"p","arguments":[{"name":"a","required":true,"x":1},{"name":"b","required":"yes"}]}"#,
            r#"{"arguments":[{"name":"a","required":true},{"name":"b"}],"name":"p"}"#,
        );
        check(OfferKind::Prompt, r#"{"name":"p","arguments":[{}]}"#, r#"{"name":"p"}"#);
    }

    #[test]
    fn each_word_that_is_shown_is_in_the_digest() {
        let of = |text: &str| Offer::read(OfferKind::Prompt, &raw(text)).unwrap().digest();
        let plain = of(r#"{"name":"p"}"#);
        assert_eq!(plain, of(r#"{"name":"p","x":1}"#));
        for other in [r#"{"name":"p","description":""}"#, r#"{"name":"p","arguments":[]}"#] {
            assert_ne!(plain, of(other), "{other}");
        }
        let resource = Offer::read(OfferKind::Resource, &raw(r#"{"uri":"p","name":"p"}"#)).unwrap();
        assert_ne!(plain, resource.digest());
    }

    #[test]
    fn a_listing_has_each_name_once_and_an_end() {
        let kind = OfferKind::Resource;
        let many =
            |n: usize| (0..n).map(|n| raw(&format!(r#"{{"uri":"u:{n}"}}"#))).collect::<Vec<_>>();
        assert_eq!(checked(kind, &many(MAX_OFFERS)).unwrap().len(), MAX_OFFERS);
        assert_eq!(checked(kind, &many(MAX_OFFERS + 1)), Err(OfferError::TooMany(kind)));
        let twice = [raw(r#"{"uri":"u:1"}"#), raw(r#"{"uri":"u:1","name":"other"}"#)];
        assert_eq!(checked(kind, &twice), Err(OfferError::Repeated(kind, "u:1".to_owned())));
        let long = format!(r#"{{"uri":"{}"}}"#, "u".repeat(MAX_URI_BYTES + 1));
        for odd in ["7", "{}", r#"{"uri":""}"#, r#"{"uri":7}"#, &long] {
            assert_eq!(checked(kind, &[raw(odd)]), Err(OfferError::Shape(kind)), "{odd}");
        }
    }
}
