//! Names that a person would take for one another: drawn alike, or a slip of the finger apart.

use std::collections::BTreeMap;

use unicode_security::skeleton;

/// Names that differ by one letter count as near from this length on: `get_a` and `get_b` are two tools.
const SHORTEST_NEAR: usize = 6;

/// A longer name is compared with nothing: no tool of ours has one.
const MAX_NAME_BYTES: usize = 256;

/// How a name is like another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Other characters, drawn the same: `pаy` with a Cyrillic letter.
    Homoglyph,
    /// Case, a separator, one letter more, less, other or swapped.
    Near,
}

impl Likeness {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Homoglyph => "homoglyph",
            Self::Near => "near",
        }
    }

    /// What a person is told, before the other name.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Homoglyph => "is written with other characters that look like",
            Self::Near => "is nearly the name of",
        }
    }
}

/// Names that are known, to hold others against.
pub(super) struct Known<'a> {
    drawn: BTreeMap<String, &'a str>,
    folded: BTreeMap<String, &'a str>,
}

impl<'a> Known<'a> {
    pub(super) fn new(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        let names = names.filter(|name| name.len() <= MAX_NAME_BYTES);
        Self {
            drawn: names.clone().map(|name| (skeleton(name).collect(), name)).collect(),
            folded: names.map(|name| (folded(name), name)).collect(),
        }
    }

    /// The known name that another one is like, unless it is that very name.
    pub(super) fn alike(&self, name: &str) -> Option<(Likeness, &'a str)> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let other = |known: &&&str| **known != name;
        if let Some(known) = self.drawn.get(&skeleton(name).collect::<String>()).filter(other) {
            return Some((Likeness::Homoglyph, known));
        }
        let own = folded(name);
        let near = self.folded.get(&own).filter(other);
        let near = near.or_else(|| {
            let slip =
                |(folded, known): &(&String, &&str)| **known != name && one_apart(folded, &own);
            self.folded.iter().find(slip).map(|(_, known)| known)
        });
        near.map(|known| (Likeness::Near, *known))
    }
}

/// A name without what the eye passes over: case, separators, the choice among characters that are drawn alike.
fn folded(name: &str) -> String {
    let lower = name.to_lowercase();
    skeleton(&lower).filter(|c| c.is_alphanumeric()).collect()
}

/// True when one letter more, less, other, or two swapped make one of the other.
fn one_apart(one: &str, other: &str) -> bool {
    let (one, other) = (one.chars().collect::<Vec<_>>(), other.chars().collect::<Vec<_>>());
    if one.len().min(other.len()) < SHORTEST_NEAR || one.len().abs_diff(other.len()) > 1 {
        return false;
    }
    let head = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let rest = one.len().min(other.len()) - head;
    let pairs = one.iter().rev().zip(other.iter().rev()).take(rest);
    let tail = pairs.take_while(|(a, b)| a == b).count();
    let middle = |all: &[char]| all.get(head..all.len() - tail).unwrap_or_default().to_vec();
    match (middle(&one).as_slice(), middle(&other).as_slice()) {
        ([a, b], [c, d]) => (a, b) == (d, c),
        (a, b) => a.len() <= 1 && b.len() <= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["pay", "read_file", "send_payment", "get_a", "list"];

    #[track_caller]
    fn check(name: &str, expected: Option<(Likeness, &str)>) {
        assert_eq!(Known::new(KNOWN.into_iter()).alike(name), expected, "{name:?}");
    }

    #[test]
    fn what_looks_the_same_is_a_homoglyph() {
        check("p\u{430}y", Some((Likeness::Homoglyph, "pay")));
        check("\u{FF50}ay", Some((Likeness::Homoglyph, "pay")));
        check("1ist", Some((Likeness::Homoglyph, "list")));
        check("send_payrnent", Some((Likeness::Homoglyph, "send_payment")));
    }

    #[test]
    fn a_slip_away_is_near() {
        for name in ["Pay", "PAY", "p_a_y", "P\u{430}Y"] {
            check(name, Some((Likeness::Near, "pay")));
        }
        for name in ["read-file", "readFile", "read_files", "raed_file", "red_file", "read_fole"] {
            check(name, Some((Likeness::Near, "read_file")));
        }
    }

    #[test]
    fn a_name_is_not_like_itself_and_others_are_just_others() {
        for name in KNOWN.into_iter().chain(["get_b", "pey", "write_file", "read", "", "reda_fiel"])
        {
            check(name, None);
        }
        let long = "x".repeat(MAX_NAME_BYTES);
        let known = [long.as_str()];
        let known = Known::new(known.into_iter());
        assert!(known.alike(&long[1..]).is_some() && known.alike(&format!("{long}x")).is_none());
    }
}
