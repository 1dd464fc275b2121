//! Names that a person would take for one another: drawn alike, or a slip of the finger apart.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use unicode_security::skeleton;

/// Names that differ by one letter count as near from this length on: `get_a` and `get_b` are two tools.
const SHORTEST_NEAR: usize = 6;

/// A longer name is compared with nothing: the protocol has none, and no tool of ours either.
const MAX_NAME_BYTES: usize = 128;

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
    drawn: BTreeMap<String, Vec<&'a str>>,
    folded: Vec<(Vec<char>, &'a str)>,
    /// By what is left of a name without one of its letters, and by the whole: two names that are one letter apart
    /// meet there, so that a thousand names are not held against a thousand others.
    meeting: HashMap<u64, Vec<usize>>,
}

impl<'a> Known<'a> {
    pub(super) fn new(names: impl Iterator<Item = &'a str>) -> Self {
        let mut known =
            Self { drawn: BTreeMap::new(), folded: Vec::new(), meeting: HashMap::new() };
        for name in names.filter(|name| name.len() <= MAX_NAME_BYTES) {
            known.drawn.entry(skeleton(name).collect()).or_default().push(name);
            let folded = folded(name);
            for place in meeting_places(&folded) {
                known.meeting.entry(place).or_default().push(known.folded.len());
            }
            known.folded.push((folded, name));
        }
        known
    }

    /// The known name that another one is like, unless it is that very name.
    pub(super) fn alike(&self, name: &str) -> Option<(Likeness, &'a str)> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let drawn = self.drawn.get(&skeleton(name).collect::<String>());
        if let Some(known) = drawn.into_iter().flatten().find(|known| **known != name) {
            return Some((Likeness::Homoglyph, known));
        }
        let own = folded(name);
        let met = meeting_places(&own).into_iter().filter_map(|place| self.meeting.get(&place));
        let mut met = met.flatten().filter_map(|index| self.folded.get(*index));
        let near = |(folded, known): &&(Vec<char>, &str)| *known != name && one_apart(folded, &own);
        met.find(near).map(|(_, known)| (Likeness::Near, *known))
    }
}

/// A name without what the eye passes over: case, separators, the choice among characters that are drawn alike.
fn folded(name: &str) -> Vec<char> {
    let lower = name.to_lowercase();
    let drawn = skeleton(&lower).flat_map(char::to_lowercase);
    drawn.filter(|c| c.is_alphanumeric()).collect()
}

fn meeting_places(folded: &[char]) -> Vec<u64> {
    let place = |left_out: Option<usize>| {
        let mut hash = DefaultHasher::new();
        let kept = folded.iter().enumerate().filter(|(index, _)| Some(*index) != left_out);
        kept.for_each(|(_, letter)| letter.hash(&mut hash));
        hash.finish()
    };
    let letters = if folded.len() < SHORTEST_NEAR - 1 { 0 } else { folded.len() };
    std::iter::once(None).chain((0..letters).map(Some)).map(place).collect()
}

/// True when the two are the same, or one letter more, less, other, or two swapped make one of the other.
fn one_apart(one: &[char], other: &[char]) -> bool {
    if one == other {
        return true;
    }
    if one.len().min(other.len()) < SHORTEST_NEAR || one.len().abs_diff(other.len()) > 1 {
        return false;
    }
    let head = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let rest = one.len().min(other.len()) - head;
    let pairs = one.iter().rev().zip(other.iter().rev()).take(rest);
    let tail = pairs.take_while(|(a, b)| a == b).count();
    fn middle(all: &[char], head: usize, tail: usize) -> &[char] {
        all.get(head..all.len() - tail).unwrap_or_default()
    }
    match (middle(one, head, tail), middle(other, head, tail)) {
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
        // Also where both are known, whichever came first.
        let both = ["pay", "p\u{430}y"];
        for (one, other) in [(both[0], both[1]), (both[1], both[0])] {
            let known = Known::new([one, other].into_iter());
            assert_eq!(known.alike(one), Some((Likeness::Homoglyph, other)), "{one:?}");
            assert_eq!(known.alike(other), Some((Likeness::Homoglyph, one)), "{other:?}");
        }
    }

    #[test]
    fn a_slip_away_is_near() {
        for name in ["Pay", "PAY", "p_a_y", "P\u{430}Y"] {
            check(name, Some((Likeness::Near, "pay")));
        }
        for name in ["read-file", "readFile", "read_files", "raed_file", "red_file", "read_fole"] {
            check(name, Some((Likeness::Near, "read_file")));
        }
        check("1IST", Some((Likeness::Near, "list")));
        check("L15T", None);
        check("SEND_P0YMENT", Some((Likeness::Near, "send_payment")));
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
        assert!(
            known.alike(&"x".repeat(MAX_NAME_BYTES - 1)).is_some()
                && known.alike(&format!("{long}x")).is_none()
        );
    }
}
