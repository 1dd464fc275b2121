//! What the suite says: for each check of each scenario how it ended.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

/// How a check ended, the worst last. A check that is made several times ended as the worst of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Info,
    Skipped,
    Success,
    Warning,
    Failure,
}

impl Status {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "INFO" => Self::Info,
            "SKIPPED" => Self::Skipped,
            "SUCCESS" => Self::Success,
            "WARNING" => Self::Warning,
            "FAILURE" => Self::Failure,
            _ => return None,
        })
    }

    /// Whether a check that ended so on one side ended in the same way on the other. What the suite only notes (`INFO`) may not
    /// be noted on one of them; what passes on one and is noted on the other is a difference.
    pub(super) fn agree(one: Option<Self>, other: Option<Self>) -> bool {
        let noted = |status| matches!(status, None | Some(Self::Info));
        one == other || (noted(one) && noted(other))
    }

    /// Whether the suite finds fault with it.
    pub(super) fn is_fault(self) -> bool {
        matches!(self, Self::Warning | Self::Failure)
    }

    /// The suite's word.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Skipped => "SKIPPED",
            Self::Success => "SUCCESS",
            Self::Warning => "WARNING",
            Self::Failure => "FAILURE",
        }
    }
}

/// The scenario, and the check in it.
pub(super) type Name = (String, String);

/// How a check ended, and what the suite says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) status: Status,
    pub(super) message: String,
}

/// All checks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checks(BTreeMap<Name, Ended>);

impl Checks {
    /// Reads lines of scenario, check, status and message between tabs.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut all = Self::default();
        for line in text.lines() {
            let parts: Vec<&str> = line.split('\t').collect();
            let [scenario, check, status, message] = parts[..] else {
                bail!("no line of a check: {line}");
            };
            let Some(status) = Status::read(status) else {
                bail!("{scenario} {check} ended as `{status}`, which is not known");
            };
            let name = (scenario.to_owned(), check.to_owned());
            let ended = Ended { status, message: message.to_owned() };
            let kept = all.0.entry(name).or_insert_with(|| ended.clone());
            if ended.status > kept.status {
                *kept = ended;
            }
        }
        Ok(all)
    }

    /// How a check ended, if it was made.
    pub(super) fn get(&self, name: &Name) -> Option<&Ended> {
        self.0.get(name)
    }

    /// All checks that were made.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.0.keys()
    }

    /// All scenarios of which a check was made.
    pub(super) fn scenarios(&self) -> BTreeSet<&str> {
        self.0.keys().map(|(scenario, _)| scenario.as_str()).collect()
    }

    /// How many checks passed.
    pub(super) fn passed(&self) -> usize {
        self.0.values().filter(|ended| ended.status == Status::Success).count()
    }

    /// The checks of a scenario with which the suite finds fault.
    pub(super) fn faults_in(&self, scenario: &str) -> Vec<&str> {
        let all = self.0.iter().filter(|(name, _)| name.0 == scenario);
        let faults = all.filter(|(_, ended)| ended.status.is_fault());
        faults.map(|((_, check), _)| check.as_str()).collect()
    }

    /// Whether a check of a scenario passed: one in which nothing did is none that passes.
    pub(super) fn passes_in(&self, scenario: &str) -> bool {
        self.0.iter().any(|(name, e)| name.0 == scenario && e.status == Status::Success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_made_several_times_ended_as_the_worst() {
        let text = "ping\tping\tSUCCESS\t\nping\tping\tFAILURE\tno answer\nping\tping\tSKIPPED\t\n";
        let checks = Checks::read(text).expect("lines");
        let name = ("ping".to_owned(), "ping".to_owned());
        let ended = Ended { status: Status::Failure, message: "no answer".to_owned() };
        assert_eq!(checks.get(&name), Some(&ended));
        assert_eq!((checks.names().count(), checks.passed()), (1, 0));
        assert_eq!(checks.faults_in("ping"), ["ping"]);
        assert!(!checks.passes_in("ping"));
    }

    #[test]
    fn only_what_is_noted_may_be_missing() {
        use Status::{Failure, Info, Skipped, Success, Warning};
        let all = [None, Some(Info), Some(Skipped), Some(Success), Some(Warning), Some(Failure)];
        for one in all {
            for other in all {
                let noted = [one, other].iter().all(|s| matches!(s, None | Some(Info)));
                assert_eq!(Status::agree(one, other), one == other || noted, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_no_check_that_passed() {
        for odd in ["ping\tping\tGREEN\t", "ping\tping\tSUCCESS", "", "x"] {
            assert!(Checks::read(&format!("{odd}\n")).is_err(), "{odd}");
        }
        assert_eq!(Checks::read("").expect("nothing"), Checks::default());
    }
}
