//! Who of the reviewers can answer, as the gate counts them, and whether they are enough for what the rules ask.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis::system::SystemClock;
use portcullis_audit::keys::Keyring;
use portcullis_domain::ports::ReviewerKeys;
use portcullis_domain::verdict::Reviewers;

use crate::config::Config;
use crate::failure::{Code, Failure};

/// The most names that one sentence says.
const MAX_NAMES: usize = 8;

/// The keys with a clock: one outside of its term counts for nobody.
pub(crate) fn today(ring: &Keyring) -> Keyring {
    ring.clone().with_clock(Arc::new(SystemClock::new()))
}

/// The people who can answer what these reviewers are asked in a run of this owner.
pub(crate) fn able(
    keys: &dyn ReviewerKeys,
    reviewers: &Reviewers,
    owner: &str,
) -> BTreeSet<String> {
    let mut people = keys.people(&reviewers.role);
    people.retain(|person| reviewers.counts(person, owner));
    people
}

/// The people who can answer, where they are too few.
fn too_few(
    keys: &dyn ReviewerKeys,
    reviewers: &Reviewers,
    owner: &str,
) -> Option<BTreeSet<String>> {
    let able = able(keys, reviewers, owner);
    (!reviewers.are_met(able.iter().map(String::as_str), owner)).then_some(able)
}

/// People as they are said in a sentence.
pub(crate) fn named<'p>(people: impl IntoIterator<Item = &'p str>) -> String {
    let mut names: Vec<String> = people.into_iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return "nobody".to_owned();
    }
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// The first rule of the operator's that the reviewers cannot meet in a run of this owner: its calls would be denied
/// without a question.
pub(crate) fn shortage(config: &Config, ring: &Keyring, owner: &str) -> Option<Failure> {
    let keys = today(ring);
    config.asks.iter().find_map(|(role, count)| {
        let asked = Reviewers { role: role.clone(), count: *count };
        too_few(&keys, &asked, owner).map(|able| unmet(config, &asked, owner, &able))
    })
}

/// The rules that the operator did not write and that nobody can meet in a run of this owner, a sentence each. Their
/// own are refused where they cannot be met.
pub(crate) fn denials(config: &Config, keys: &dyn ReviewerKeys, owner: &str) -> Vec<String> {
    let unwritten = config.classes.roles().into_iter();
    let unwritten = unwritten.filter(|(role, _)| !config.asks.contains_key(*role));
    let denied = unwritten.filter_map(|(role, count)| {
        let able = too_few(keys, &Reviewers { role: role.to_owned(), count }, owner)?.len();
        Some(format!(
            "{count} of the role `{role}` are asked and {able} can answer: such calls are denied"
        ))
    });
    denied.collect()
}

fn unmet(config: &Config, asked: &Reviewers, owner: &str, able: &BTreeSet<String>) -> Failure {
    let Reviewers { role, count } = asked;
    let who = named(able.iter().map(String::as_str));
    let sentence = if *count < 2 {
        format!("the rules ask somebody of the role `{role}`, and nobody can answer")
    } else {
        format!(
            "the rules ask {count} people of the role `{role}` beside the run's owner `{owner}`, and {} can answer: {who}",
            able.len()
        )
    };
    let hint = if config.reviewers.is_empty() {
        "each person who is to answer makes a key with `portcullis key new NAME`".to_owned()
    } else {
        format!("add [[reviewers]] with the role `{role}` to the configuration, or ask fewer")
    };
    Failure::new(Code::TooFewPeople, sentence).hint(hint)
}

#[cfg(test)]
mod tests {
    use portcullis_audit::keys::{KeyEntry, SigningKey};
    use portcullis_domain::tool::EffectClass;
    use portcullis_policy::{ClassTable, Outcome};
    use portcullis_testkit::ports::SeededEntropy;

    use super::*;

    fn ring(entries: &[(&str, &str, bool)]) -> Keyring {
        let entries = entries.iter().zip(1..).map(|((person, role, revoked), seed)| {
            let key = SigningKey::generate(&SeededEntropy::new(seed)).public();
            KeyEntry { revoked: *revoked, ..KeyEntry::new(key, person, [*role]) }
        });
        Keyring::new(entries).unwrap()
    }

    fn asking(count: u32) -> Config {
        Config { asks: [("operator".to_owned(), count)].into(), ..Config::default() }
    }

    #[test]
    fn people_count_once_with_a_key_that_holds_and_never_as_their_own_second() {
        let keys = [
            ("ann", "operator", false),
            ("ann", "operator", false),
            ("bob", "operator", false),
            ("eve", "auditor", false),
            ("dan", "operator", true),
        ];
        let ring = ring(&keys);
        let asked = |count| Reviewers { role: "operator".to_owned(), count };
        assert!(able(&ring, &asked(1), "ann").iter().eq(["ann", "bob"]));
        assert!(able(&ring, &asked(2), "ann").iter().eq(["bob"]));
        let short = |count, owner| shortage(&asking(count), &ring, owner).is_some();
        assert!(!short(1, "ann") && !short(2, "carol"));
        assert!(short(2, "ann") && short(3, "carol"));
        assert!(shortage(&asking(1), &Keyring::default(), "ann").is_some());
        assert!(shortage(&Config::default(), &Keyring::default(), "ann").is_none());
    }

    #[test]
    fn a_rule_that_nobody_wrote_counts_people_as_the_gate_does() {
        let ring = ring(&[("ann", "operator", false), ("bob", "operator", false)]);
        let two = Outcome::ask("operator", 2).unwrap();
        let classes = ClassTable::default().with(EffectClass::RemoteMutation, two);
        let config = Config { classes, ..Config::default() };
        let told = denials(&config, &ring, "ann");
        let says = "2 of the role `operator` are asked and 1 can answer: such calls are denied";
        assert_eq!(told, [says]);
        assert_eq!(denials(&config, &ring, "carol"), Vec::<String>::new());
        // The operator's own rule is refused instead, before a run begins.
        let written = Config { asks: asking(2).asks, ..config };
        assert_eq!(denials(&written, &ring, "ann"), Vec::<String>::new());
        assert_eq!(denials(&Config::default(), &Keyring::default(), "ann").len(), 1);
    }

    #[test]
    fn names_end_somewhere() {
        let many: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
        let told = named(many.iter().map(String::as_str));
        assert!(told.starts_with("`p0`, `p1`") && told.ends_with("`p7` and 4 more"), "{told}");
        assert_eq!(named([]), "nobody");
    }
}
