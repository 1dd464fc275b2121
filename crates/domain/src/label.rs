//! Labels: where a value comes from and who may see it. They only accumulate.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// More external origins than this collapse to `external(*)`.
pub const MAX_ORIGINS: usize = 64;

/// The longest name of a person or source, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Who or what a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The run's owner said it.
    Owner,
    /// The agent made it up.
    Agent,
    /// A named person other than the owner.
    Person(Name),
    /// Content from outside: a tool, a server, a sender.
    External(Name),
    /// Content from more outside sources than are kept apart.
    AnyExternal,
}

/// The name of a person or a source: 1 to 128 bytes, no control characters, no parentheses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text that is no origin, or a name that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an origin: use `owner`, `agent`, `person(NAME)` or `external(NAME)`, names of 1 to 128 plain bytes"
)]
pub struct OriginError;

impl Name {
    /// Checks and keeps a name.
    ///
    /// # Errors
    /// [`OriginError`] when it is empty, too long, `*`, or holds a control character or a parenthesis.
    pub fn new(name: &str) -> Result<Self, OriginError> {
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len())
            && name != "*"
            && !name.chars().any(|c| c.is_control() || c == '(' || c == ')');
        if fits { Ok(Self(name.to_owned())) } else { Err(OriginError) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Origin {
    /// The origin of a tool's result; a name that does not fit counts as any external source.
    #[must_use]
    pub fn external(source: &str) -> Self {
        Name::new(source).map_or(Self::AnyExternal, Self::External)
    }

    /// True for content from outside.
    #[must_use]
    pub fn is_external(&self) -> bool {
        matches!(self, Self::External(_) | Self::AnyExternal)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("owner"),
            Self::Agent => f.write_str("agent"),
            Self::Person(name) => write!(f, "person({})", name.0),
            Self::External(name) => write!(f, "external({})", name.0),
            Self::AnyExternal => f.write_str("external(*)"),
        }
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let inner =
            |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
        match text {
            "owner" => Ok(Self::Owner),
            "agent" => Ok(Self::Agent),
            "external(*)" => Ok(Self::AnyExternal),
            _ => match (inner("person("), inner("external(")) {
                (Some(name), _) => Name::new(name).map(Self::Person),
                (_, Some(name)) => Name::new(name).map(Self::External),
                _ => Err(OriginError),
            },
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The labels of one value: sorted sets that join by union.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// Integrity: where the value comes from.
    origins: BTreeSet<Origin>,
    /// Confidentiality: who may see it. A tag is the operator's word.
    tags: BTreeSet<String>,
}

impl Labels {
    /// No origin and no tag: a value that carries nothing yet.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// One origin and no tag.
    #[must_use]
    pub fn of(origin: Origin) -> Self {
        Self { origins: BTreeSet::from([origin]), tags: BTreeSet::new() }
    }

    /// The origins, sorted.
    #[must_use]
    pub fn origins(&self) -> &BTreeSet<Origin> {
        &self.origins
    }

    /// The confidentiality tags, sorted.
    #[must_use]
    pub fn tags(&self) -> &BTreeSet<String> {
        &self.tags
    }

    /// True when any part comes from outside.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.origins.iter().any(Origin::is_external)
    }

    /// True when joining `other` would add nothing.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let any = self.origins.contains(&Origin::AnyExternal);
        other
            .origins
            .iter()
            .all(|o| self.origins.contains(o) || (any && matches!(o, Origin::External(_))))
            && other.tags.is_subset(&self.tags)
    }

    /// The union. More than [`MAX_ORIGINS`] external sources become `external(*)`, which covers them all.
    #[must_use]
    pub fn join(mut self, other: &Self) -> Self {
        self.origins.extend(other.origins.iter().cloned());
        self.tags.extend(other.tags.iter().cloned());
        let named = self.origins.iter().filter(|o| matches!(o, Origin::External(_))).count();
        if named > MAX_ORIGINS || self.origins.contains(&Origin::AnyExternal) {
            self.origins.retain(|o| !matches!(o, Origin::External(_)));
            self.origins.insert(Origin::AnyExternal);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(n: usize) -> Labels {
        Labels::of(Origin::external(&format!("source-{n}")))
    }

    #[test]
    fn join_is_union_and_covers_says_when_nothing_is_new() {
        let both = Labels::of(Origin::Owner).join(&external(1));
        assert!(both.covers(&external(1)) && both.covers(&Labels::of(Origin::Owner)));
        assert!(!both.covers(&external(2)));
        assert!(both.is_external() && !Labels::of(Origin::Agent).is_external());
    }

    #[test]
    fn sixty_five_sources_collapse_and_still_cover_each() {
        let sixty_four = (0..64).fold(Labels::none(), |all, n| all.join(&external(n)));
        assert_eq!(sixty_four.origins().len(), 64);
        let collapsed = sixty_four.join(&external(64));
        assert_eq!(collapsed.origins().len(), 1);
        assert!((0..65).all(|n| collapsed.covers(&external(n))));
        assert!(collapsed.is_external());
    }

    #[test]
    fn spellings_round_trip_and_odd_ones_are_refused() {
        for text in ["owner", "agent", "person(ann)", "external(files.read)", "external(*)"] {
            assert_eq!(text.parse::<Origin>().map(|o| o.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "Owner", "person()", "person(*)", "external(a)b)", "external(a\nb)"] {
            assert!(text.parse::<Origin>().is_err(), "{text}");
        }
        assert_eq!(Origin::external("a\u{7}"), Origin::AnyExternal);
    }
}
