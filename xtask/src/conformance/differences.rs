//! The list of differences, and the comparison that has to find exactly those.
//!
//! ```toml
//! [[difference]]
//! set = "next-2025-11-25"              # as `suite.rs` names it
//! scenario = "server-sse-polling"
//! check = "server-sse-disconnect-resume"
//! reason = "Why the gate does not do what the server does, in one sentence."
//!
//! denials = ["is not let through"]     # how the gate says so (a key of the whole file, so it stands above)
//!
//! [denied]                             # scenarios that need what the gate lets no server do
//! next-2025-11-25 = ["tools-call-sampling"]
//! ```
//!
//! And `[[client]]` with `set`, `scenario` and `reason`: a scenario of clients that ours does not pass.
//!
//! A denied scenario has to end behind the gate as it does at the same server when that does not do it, and where it fails, with the
//! same words or with the gate's own: so this is what makes the difference, and nothing else.
//!
//! A difference of a scenario that the suite requires can be listed only where the suite notes something behind the gate (`INFO`) in
//! the place of a check that passes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::checks::{Checks, Ended, Name, Status};
use super::suite::Scenarios;

/// The list, beside the peer.
pub(super) const FILE: &str = "differences.toml";

/// How many there may be.
const MOST: usize = 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    denials: Vec<String>,
    #[serde(default)]
    difference: Vec<Entry>,
    #[serde(default)]
    denied: BTreeMap<String, BTreeSet<String>>,
    #[serde(default)]
    client: Vec<Failing>,
}

/// A scenario that our client does not pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failing {
    set: String,
    scenario: String,
    reason: String,
}

/// One check that ends otherwise behind the gate.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    set: String,
    scenario: String,
    check: String,
    reason: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.set, self.scenario, self.check)
    }
}

/// The differences that are known.
#[derive(Debug)]
pub(super) struct List {
    entries: Vec<Entry>,
    /// What stands in the gate's words when it denies.
    denials: Vec<String>,
    /// Scenarios that are denied, by their set.
    denied: BTreeMap<String, BTreeSet<String>>,
    clients: Vec<Failing>,
}

/// What a set says of the server.
pub(super) struct Sides<'a> {
    /// Alone.
    pub(super) bare: &'a Checks,
    /// Alone, without what the gate lets no server do.
    pub(super) quiet: &'a Checks,
    /// Behind the gate.
    pub(super) gate: &'a Checks,
}

/// What a comparison found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Checks that passed on both sides.
    pub(super) same: usize,
    /// Checks that ended in the same way, and did not pass.
    pub(super) alike: usize,
    /// Checks that did not, and are listed.
    pub(super) listed: usize,
    /// Checks that did not, as the rules of the gate deny it.
    pub(super) denied: usize,
    /// Those that are neither.
    pub(super) unlisted: Vec<Difference>,
    /// Scenarios that are said to be denied, and end as at the server alone.
    pub(super) undenied: Vec<String>,
    /// The entries that were found.
    pub(super) used: BTreeSet<Entry>,
}

/// A check that ended otherwise behind the gate.
#[derive(Debug)]
pub(super) struct Difference {
    name: Name,
    bare: Option<Ended>,
    gate: Option<Ended>,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |ended: &Option<Ended>| ended.as_ref().map_or("not made", |e| e.status.word());
        let (scenario, check) = &self.name;
        let (bare, gate) = (word(&self.bare), word(&self.gate));
        write!(formatter, "{scenario} {check}: {bare} alone, {gate} behind the gate")?;
        let messages = [&self.gate, &self.bare].into_iter().flatten().map(|ended| &ended.message);
        match messages.into_iter().find(|message| !message.is_empty()) {
            Some(message) => write!(formatter, ": {message}"),
            None => Ok(()),
        }
    }
}

impl List {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("{FILE} cannot be read"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let written: Written =
            toml::from_str(text).with_context(|| format!("{FILE} is no list of differences"))?;
        let Written { denials, difference: entries, denied, client: clients } = written;
        if entries.len() > MOST {
            bail!("{FILE} has {} entries, and {MOST} are the most", entries.len());
        }
        let mut seen = BTreeSet::new();
        for entry in &entries {
            if !seen.insert((&entry.set, &entry.scenario, &entry.check)) {
                bail!("{entry} stands twice in {FILE}");
            }
            if entry.reason.trim().is_empty() {
                bail!("{entry} has no reason in {FILE}");
            }
        }
        if let Some(failing) = clients.iter().find(|failing| failing.reason.trim().is_empty()) {
            bail!("{} {} has no reason in {FILE}", failing.set, failing.scenario);
        }
        if denials.iter().any(|words| words.trim().is_empty()) {
            bail!("a denial in {FILE} has no words");
        }
        Ok(Self { entries, denials, denied, clients })
    }

    /// The scenarios of a set that our client does not pass.
    pub(super) fn failing(&self, set: &str) -> Vec<&str> {
        let ours = self.clients.iter().filter(|failing| failing.set == set);
        ours.map(|failing| failing.scenario.as_str()).collect()
    }

    /// The scenarios of a set that the rules of the gate deny.
    pub(super) fn denied(&self, set: &str) -> BTreeSet<&str> {
        self.denied.get(set).into_iter().flatten().map(String::as_str).collect()
    }

    /// The sets that are named and are none.
    pub(super) fn unknown<'a>(&'a self, sets: &[&str]) -> Vec<&'a str> {
        let named = self.entries.iter().map(|entry| &entry.set).chain(self.denied.keys());
        let named = named.chain(self.clients.iter().map(|failing| &failing.set));
        named.map(String::as_str).filter(|set| !sets.contains(set)).collect()
    }

    /// Compares what a set says of the server alone and behind the gate.
    pub(super) fn compare(&self, set: &str, required: &Scenarios, sides: &Sides<'_>) -> Found {
        let Sides { bare, quiet, gate } = sides;
        let ours = || self.entries.iter().filter(|entry| entry.set == set);
        let denied = self.denied(set);
        let mut found = Found::default();
        let mut idle = denied.clone();
        let names: BTreeSet<&Name> = bare.names().chain(gate.names()).collect();
        for name in names {
            let status = |checks: &Checks| checks.get(name).map(|ended| ended.status);
            let agree = |other: &Checks| Status::agree(status(other), status(gate));
            let noted = (status(bare), status(gate)) == (Some(Status::Success), Some(Status::Info));
            let entry = ours().find(|e| (&e.scenario, &e.check) == (&name.0, &name.1));
            match entry {
                _ if agree(bare) && status(bare) == Some(Status::Success) => found.same += 1,
                _ if agree(bare) => found.alike += 1,
                _ if denied.contains(name.0.as_str())
                    && agree(quiet)
                    && self.denies(quiet.get(name), gate.get(name)) =>
                {
                    found.denied += 1;
                    idle.remove(name.0.as_str());
                }
                Some(entry) if noted || !required.has(&entry.scenario) => {
                    found.listed += 1;
                    found.used.insert(entry.clone());
                }
                _ => found.unlisted.push(Difference {
                    name: name.clone(),
                    bare: bare.get(name).cloned(),
                    gate: gate.get(name).cloned(),
                }),
            }
        }
        found.undenied = idle.into_iter().map(str::to_owned).collect();
        found
    }

    /// Whether what ended alike behind the gate and at the quiet server did so for the same reason: in the same words, or in
    /// those of the gate. What does not fail has none.
    fn denies(&self, quiet: Option<&Ended>, gate: Option<&Ended>) -> bool {
        let Some(gate) = gate.filter(|ended| ended.status.is_fault()) else { return true };
        quiet.is_some_and(|quiet| quiet.message == gate.message)
            || self.denials.iter().any(|words| gate.message.contains(words))
    }

    /// The entries that no comparison found.
    pub(super) fn stale<'a>(&self, used: impl Iterator<Item = &'a Entry>) -> Vec<&Entry> {
        let used: BTreeSet<&Entry> = used.collect();
        self.entries.iter().filter(|entry| !used.contains(entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(scenario: &str, check: &str, reason: &str) -> String {
        format!(
            "[[difference]]\nset = 's'\nscenario = '{scenario}'\ncheck = '{check}'\nreason = '{reason}'\n"
        )
    }

    fn checks(text: &str) -> Checks {
        Checks::read(text).expect("lines")
    }

    const NONE: Scenarios = Scenarios::These(BTreeSet::new());

    /// A comparison in which a quiet server makes no difference.
    fn compared(list: &List, set: &str, bare: &str, gate: &str) -> Found {
        let (bare, gate) = (checks(bare), checks(gate));
        let sides = Sides { bare: &bare, quiet: &bare, gate: &gate };
        list.compare(set, &NONE, &sides)
    }

    #[test]
    fn what_differs_is_listed_or_it_is_told() {
        let list = List::parse(&entry("poll", "resume", "why")).expect("a list");
        let bare = "poll\tresume\tSUCCESS\t\nping\tping\tSUCCESS\t\nlist\told\tFAILURE\tx\n";
        let gate = "poll\tresume\tFAILURE\tno\nping\tping\tSUCCESS\t\nlist\tnew\tSUCCESS\t\n";
        let found = compared(&list, "s", bare, gate);
        assert_eq!((found.same, found.listed), (1, 1));
        let told: Vec<String> = found.unlisted.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "list new: not made alone, SUCCESS behind the gate",
                "list old: FAILURE alone, not made behind the gate: x"
            ]
        );
        assert!(list.stale(found.used.iter()).is_empty());
        let same = compared(&list, "s", bare, bare);
        let stale: Vec<String> =
            list.stale(same.used.iter()).iter().map(ToString::to_string).collect();
        assert_eq!(stale, ["s poll resume"]);
        let elsewhere = compared(&list, "other", bare, gate);
        assert_eq!((elsewhere.listed, elsewhere.unlisted.len()), (0, 3));
    }

    #[test]
    fn what_is_denied_ends_as_at_a_server_that_does_not_do_it() {
        let list = List::parse("denials = ['is not let through']\n[denied]\ns = ['ask']\n");
        let list = list.expect("a list");
        assert_eq!((list.unknown(&["s"]).len(), list.unknown(&["t"])), (0, vec!["s"]));
        let bare = checks("ask\tasked\tSUCCESS\t\nask\tanswered\tSUCCESS\t\n");
        let quiet = checks("ask\tasked\tFAILURE\tno\n");
        let found = |gate: &str| {
            let gate = checks(gate);
            let sides = Sides { bare: &bare, quiet: &quiet, gate: &gate };
            list.compare("s", &Scenarios::All, &sides)
        };
        for words in ["no", "DENIED: this is not let through."] {
            let denied = found(&format!("ask\tasked\tFAILURE\t{words}\n"));
            assert_eq!((denied.denied, denied.unlisted.len(), denied.undenied.len()), (2, 0, 0));
        }
        let other = found("ask\tasked\tFAILURE\tno answer came\n");
        assert_eq!((other.denied, other.unlisted.len()), (1, 1), "it fails for another reason");
        let worse = found("ask\tasked\tWARNING\t\n");
        assert_eq!((worse.denied, worse.unlisted.len()), (1, 1), "another end is no denial");
        let let_through = found("ask\tasked\tSUCCESS\t\nask\tanswered\tSUCCESS\t\n");
        assert_eq!((let_through.same, let_through.undenied), (2, vec!["ask".to_owned()]));
    }

    #[test]
    fn what_the_suite_requires_may_not_differ() {
        let list = List::parse(&entry("ping", "ping", "why")).expect("a list");
        let bare = checks("ping\tping\tSUCCESS\t\n");
        for (word, listed, unlisted) in
            [("INFO", 1, 0), ("SKIPPED", 0, 1), ("WARNING", 0, 1), ("FAILURE", 0, 1)]
        {
            let gate = checks(&format!("ping\tping\t{word}\t\n"));
            let sides = Sides { bare: &bare, quiet: &bare, gate: &gate };
            for required in [Scenarios::All, Scenarios::These(["ping".to_owned()].into())] {
                let found = list.compare("s", &required, &sides);
                assert_eq!((found.listed, found.unlisted.len()), (listed, unlisted), "{word}");
            }
            assert_eq!(list.compare("s", &NONE, &sides).listed, 1, "{word}");
        }
    }

    #[test]
    fn what_does_not_pass_on_both_sides_is_not_said_to_pass() {
        let list = List::parse("").expect("none");
        let bare =
            "a\ta\tSUCCESS\t\nb\tb\tWARNING\t\nc\tc\tSKIPPED\t\nd\td\tINFO\t\ne\te\tFAILURE\t\n";
        let found = compared(&list, "s", bare, bare);
        assert_eq!((found.same, found.alike, found.unlisted.len()), (1, 4, 0));
        let gate = bare.replace("a\ta\tSUCCESS", "a\ta\tWARNING").replace("d\td\tINFO\t\n", "");
        let found = compared(&list, "s", bare, &gate);
        assert_eq!((found.same, found.alike, found.unlisted.len()), (0, 4, 1));
    }

    #[test]
    fn the_list_is_short_and_each_entry_has_a_reason() {
        let many: String = (0..=MOST).map(|n| entry("a", &n.to_string(), "why")).collect();
        let cases = [
            (many.as_str(), "10 are the most"),
            (&entry("a", "b", " "), "no reason"),
            (&(entry("a", "b", "x") + &entry("a", "b", "y")), "stands twice"),
            ("[[difference]]\nset = 's'\n", "no list of differences"),
            ("denials = ['']\n", "has no words"),
        ];
        for (text, says) in cases {
            assert!(format!("{:#}", List::parse(text).expect_err(says)).contains(says), "{text}");
        }
        assert!(List::parse("").expect("none").entries.is_empty());
    }
}
