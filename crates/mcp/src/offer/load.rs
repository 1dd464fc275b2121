//! From what is pinned, the operator's rules and what a server offers now to what a host is shown.

use std::collections::BTreeMap;
use std::fmt;

use portcullis_canon::{Object, Value};

use super::advertised::{Offer, OfferKind};
use super::rules::OfferRules;
use crate::pin::words;

/// What became of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferFate {
    /// Hosts are shown it.
    Shown,
    /// It says something else than when it was pinned: what, in words that are safe to print.
    Changed(String),
    /// It is pinned and not offered any more.
    Gone,
    /// It is offered and not pinned.
    Unpinned,
    /// No rule lets it through.
    Unruled,
}

impl OfferFate {
    /// The stable name.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Changed(_) => "changed",
            Self::Gone => "gone",
            Self::Unpinned => "unpinned",
            Self::Unruled => "unruled",
        }
    }
}

/// One resource, template or prompt of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferLine {
    /// What it is.
    pub kind: OfferKind,
    /// Its URI, template or name as the server spells it: not safe to print.
    pub name: String,
    /// What became of it.
    pub fate: OfferFate,
}

/// One line, safe to print.
impl fmt::Display for OfferLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}` ", self.kind.words(), words::name(&self.name))?;
        match &self.fate {
            OfferFate::Shown => f.write_str("is shown to hosts"),
            OfferFate::Changed(how) => write!(f, "is refused: it changed: {how}"),
            OfferFate::Gone => f.write_str("is refused: the server does not offer it any more"),
            OfferFate::Unpinned => f.write_str("is not shown: it is not pinned"),
            OfferFate::Unruled => f.write_str("stays out: no rule names it"),
        }
    }
}

impl OfferLine {
    /// The line for programs: `kind`, `name` as the server spells it, `fate`, and `message` where the fate has more to say.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut object = Object::new();
        object.insert("kind", self.kind.member());
        object.insert("name", self.name.as_str());
        object.insert("fate", self.fate.as_str());
        if let OfferFate::Changed(how) = &self.fate {
            object.insert("message", how.as_str());
        }
        Value::Object(object)
    }
}

/// What a host is shown, by kind and name, and a line for everything that is pinned or offered.
pub(super) fn load(
    rules: &OfferRules,
    pinned: &[Offer],
    live: &[Offer],
) -> (Vec<Offer>, Vec<OfferLine>) {
    let by_name = |offers: &[Offer]| -> BTreeMap<(OfferKind, String), Offer> {
        offers
            .iter()
            .map(|offer| ((offer.kind(), offer.name().to_owned()), offer.clone()))
            .collect()
    };
    let (pinned, live) = (by_name(pinned), by_name(live));
    let (mut shown, mut lines) = (Vec::new(), Vec::new());
    let mut all: Vec<&(OfferKind, String)> = pinned.keys().chain(live.keys()).collect();
    all.sort();
    all.dedup();
    for key in all {
        let fate = fate(rules, pinned.get(key), live.get(key));
        if fate == OfferFate::Shown {
            shown.extend(pinned.get(key).cloned());
        }
        let (kind, name) = (key.0, key.1.clone());
        lines.push(OfferLine { kind, name, fate });
    }
    (shown, lines)
}

fn fate(rules: &OfferRules, pinned: Option<&Offer>, live: Option<&Offer>) -> OfferFate {
    match (pinned, live) {
        (Some(offer), _) | (None, Some(offer)) if !rules.allows(offer) => OfferFate::Unruled,
        (Some(pinned), Some(live)) if pinned.digest() == live.digest() => OfferFate::Shown,
        (Some(pinned), Some(live)) => OfferFate::Changed(differs(pinned, live)),
        (Some(_), None) => OfferFate::Gone,
        (None, _) => OfferFate::Unpinned,
    }
}

/// How what is shown differs, in words.
pub(crate) fn differs(old: &Offer, new: &Offer) -> String {
    let value = |offer: &Offer| Value::Object(offer.shown().clone());
    words::part(Some(&value(old)), Some(&value(new)))
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn prompt(text: &str) -> Offer {
        Offer::read(OfferKind::Prompt, &parse(text.as_bytes(), &Limits::BARE).unwrap()).unwrap()
    }

    #[test]
    fn what_is_pinned_allowed_and_the_same_is_shown_and_nothing_else() {
        let offers = |texts: &[&str]| texts.iter().map(|text| prompt(text)).collect::<Vec<_>>();
        let pinned = offers(&[
            r#"{"name":"changed","description":"Reads."}"#,
            r#"{"name":"gone"}"#,
            r#"{"name":"same","description":"Sums up."}"#,
            r#"{"name":"unruled"}"#,
        ]);
        let live = offers(&[
            r#"{"name":"changed","description":"Reads all."}"#,
            r#"{"name":"new"}"#,
            r#"{"name":"same","description":"Sums up.","icons":[]}"#,
            r#"{"name":"unruled"}"#,
        ]);
        let names = ["changed", "gone", "same", "new"].map(str::to_owned);
        let rules = OfferRules { prompts: Some(names.into()), ..OfferRules::default() };
        let (shown, lines) = load(&rules, &pinned, &live);
        assert_eq!(shown, offers(&[r#"{"name":"same","description":"Sums up."}"#]));
        let fates: Vec<_> =
            lines.iter().map(|line| (line.name.as_str(), line.fate.as_str())).collect();
        assert_eq!(
            fates,
            [
                ("changed", "changed"),
                ("gone", "gone"),
                ("new", "unpinned"),
                ("same", "shown"),
                ("unruled", "unruled")
            ]
        );
        assert!(lines[0].to_string().contains("Reads all."), "{}", lines[0]);
        assert_eq!(load(&OfferRules::default(), &pinned, &live).0, []);
    }
}
