//! Who of the reviewers can answer, as the gate counts them, and whether they are enough for what the rules ask.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis::system::SystemClock;
use portcullis_audit::keys::Keyring;
use portcullis_domain::ports::ReviewerKeys as _;
use portcullis_domain::verdict::Reviewers;

use crate::config::Config;
use crate::failure::{Code, Failure};

/// The most names that one sentence says.
const MAX_NAMES: usize = 8;

/// The people with a key that counts now for this role. Where more than one person is asked, the owner of the run is
/// none of them.
pub(crate) fn able(ring: &Keyring, role: &str, count: u32, owner: &str) -> BTreeSet<String> {
    let reviewers = Reviewers { role: role.to_owned(), count };
    let mut people = ring.clone().with_clock(Arc::new(SystemClock::new())).people(role);
    people.retain(|person| reviewers.count_in(person, owner));
    people
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
/// without a question, or wait for people who are not there.
pub(crate) fn shortage(config: &Config, ring: &Keyring, owner: &str) -> Option<Failure> {
    config.asks.iter().find_map(|(role, count)| {
        let able = able(ring, role, *count, owner);
        let enough = usize::try_from(*count).is_ok_and(|count| able.len() >= count);
        (!enough).then(|| too_few(config, role, *count, owner, &able))
    })
}

fn too_few(
    config: &Config,
    role: &str,
    count: u32,
    owner: &str,
    able: &BTreeSet<String>,
) -> Failure {
    let who = named(able.iter().map(String::as_str));
    let sentence = if count < 2 {
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
        assert_eq!(
            able(&ring, "operator", 1, "ann").into_iter().collect::<Vec<_>>(),
            ["ann", "bob"]
        );
        assert_eq!(able(&ring, "operator", 2, "ann").into_iter().collect::<Vec<_>>(), ["bob"]);
        let short = |count, owner| shortage(&asking(count), &ring, owner).is_some();
        assert!(!short(1, "ann") && !short(2, "carol"));
        assert!(short(2, "ann") && short(3, "carol"));
        assert!(shortage(&asking(1), &Keyring::default(), "ann").is_some());
        assert!(shortage(&Config::default(), &Keyring::default(), "ann").is_none());
    }

    #[test]
    fn names_end_somewhere() {
        let many: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
        let told = named(many.iter().map(String::as_str));
        assert!(told.starts_with("`p0`, `p1`") && told.ends_with("`p7` and 4 more"), "{told}");
        assert_eq!(named([]), "nobody");
    }
}
