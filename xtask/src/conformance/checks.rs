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

    /// Whether a check that ended so on one side ended in the same way on the other. What the suite only notes (`INFO`) is left
    /// to the server: it may pass there or not be made.
    pub(super) fn agree(one: Option<Self>, other: Option<Self>) -> bool {
        let noted = |status| status == Some(Self::Info);
        let well = |status| matches!(status, None | Some(Self::Info | Self::Success));
        one == other || (noted(one) && well(other)) || (noted(other) && well(one))
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

    /// The checks of a scenario that failed.
    pub(super) fn failed_in(&self, scenario: &str) -> Vec<&str> {
        let failed = self
            .0
            .iter()
            .filter(|(name, ended)| name.0 == scenario && ended.status == Status::Failure);
        failed.map(|((_, check), _)| check.as_str()).collect()
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
        assert_eq!(checks.failed_in("ping"), ["ping"]);
    }

    #[test]
    fn what_is_only_noted_is_no_difference_to_what_passes() {
        use Status::{Failure, Info, Skipped, Success, Warning};
        for well in [None, Some(Info), Some(Success)] {
            assert!(Status::agree(well, Some(Info)) && Status::agree(Some(Info), well), "{well:?}");
        }
        for odd in [Skipped, Warning, Failure] {
            assert!(Status::agree(Some(odd), Some(odd)), "{odd:?}");
            for other in [None, Some(Info), Some(Success)] {
                assert!(!Status::agree(Some(odd), other), "{odd:?} {other:?}");
            }
        }
        assert!(!Status::agree(None, Some(Success)));
    }

    #[test]
    fn what_is_not_understood_is_no_check_that_passed() {
        for odd in ["ping\tping\tGREEN\t", "ping\tping\tSUCCESS", "", "x"] {
            assert!(Checks::read(&format!("{odd}\n")).is_err(), "{odd}");
        }
        assert_eq!(Checks::read("").expect("nothing"), Checks::default());
    }
}
