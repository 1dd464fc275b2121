//! The test runners and the lines with which they close.

use std::path::Path;
use std::process::Command;

use crate::process;

/// How many tests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Ran and passed.
    pub(crate) passed: usize,
    /// Ran and did not pass, whatever the way.
    pub(crate) failed: usize,
    /// Did not run (`#[ignore]`), or said that they could not exercise their subject.
    pub(crate) skipped: usize,
}

impl Counts {
    /// The sum of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    /// Moves tests from passed to skipped: they passed because they had nothing to do.
    pub(crate) fn with_skips(self, tests: usize) -> Self {
        let moved = tests.min(self.passed);
        Self { passed: self.passed - moved, skipped: self.skipped + tests, ..self }
    }
}

/// The command that runs unit and integration tests: nextest where it is installed, else cargo's own runner.
pub(crate) fn tests(root: &Path, nextest: bool) -> Command {
    let mut command = process::cargo(root);
    if nextest {
        command.args([
            "nextest",
            "run",
            "--workspace",
            "--locked",
            "--cargo-profile",
            "ci",
            "--profile",
            "ci",
        ]);
    } else {
        command.args([
            "test",
            "--workspace",
            "--tests",
            "--locked",
            "--profile",
            "ci",
            "--no-fail-fast",
        ]);
    }
    command
}

/// The command that runs the examples in the documents.
pub(crate) fn doctests(root: &Path) -> Command {
    let mut command = process::cargo(root);
    command.args(["test", "--doc", "--workspace", "--locked", "--profile", "ci", "--no-fail-fast"]);
    command
}

/// Adds up the closing lines of either runner; none found is `None`, so that silence never counts as success.
pub(crate) fn count(text: &str) -> Option<Counts> {
    let mut total = Counts::default();
    let mut seen = false;
    for line in text.lines() {
        let line = line.trim();
        let counts = match (line.strip_prefix("test result: "), line.strip_prefix("Summary [")) {
            (Some(rest), _) => cargo_line(rest),
            (_, Some(rest)) => nextest_line(rest),
            _ => continue,
        };
        if let Some(counts) = counts {
            total = total.plus(counts);
            seen = true;
        }
    }
    seen.then_some(total)
}

/// `ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s`
fn cargo_line(rest: &str) -> Option<Counts> {
    let (_, rest) = rest.split_once(". ")?;
    Some(Counts {
        passed: before(rest, " passed")?,
        failed: before(rest, " failed")?,
        skipped: before(rest, " ignored")?,
    })
}

/// `   1.234s] 120/130 tests run: 117 passed (1 slow), 2 failed, 1 timed out, 3 skipped`
fn nextest_line(rest: &str) -> Option<Counts> {
    let (_, rest) = rest.split_once("] ")?;
    let (run, rest) = rest.split_once(" run: ")?;
    let run = run.strip_suffix(" tests").or_else(|| run.strip_suffix(" test"))?;
    // After a stop, `120/130`: those that never started failed to tell anything.
    let all: usize = run.rsplit('/').next()?.parse().ok()?;
    let passed = before(rest, " passed")?;
    Some(Counts {
        passed,
        failed: all.saturating_sub(passed),
        skipped: before(rest, " skipped").unwrap_or(0),
    })
}

/// The number right before a word.
fn before(text: &str, word: &str) -> Option<usize> {
    let (head, _) = text.split_once(word)?;
    head.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: usize, failed: usize, skipped: usize) -> Option<Counts> {
        Some(Counts { passed, failed, skipped })
    }

    #[test]
    fn cargo_lines_add_up() {
        let text = "test a ... ok\n\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out\n";
        assert_eq!(count(text), counts(15, 2, 1));
    }

    #[test]
    fn nextest_lines_are_read() {
        assert_eq!(
            count("     Summary [   0.1s] 12 tests run: 12 passed, 0 skipped\n"),
            counts(12, 0, 0)
        );
        let text = "     Summary [  61.5s] 130 tests run: 126 passed (1 slow), 2 failed, 2 timed out, 3 skipped\n";
        assert_eq!(count(text), counts(126, 4, 3));
        assert_eq!(
            count("Summary [ 1.0s] 5/9 tests run: 4 passed, 1 failed, 0 skipped"),
            counts(4, 5, 0)
        );
        assert_eq!(count("Summary [ 1.0s] 1 test run: 1 passed, 0 skipped"), counts(1, 0, 0));
    }

    #[test]
    fn silence_is_no_success() {
        assert_eq!(count("error: could not compile\n"), None);
        assert_eq!(count(""), None);
    }

    #[test]
    fn a_skip_is_not_a_pass() {
        let base = Counts { passed: 10, failed: 1, skipped: 2 };
        assert_eq!(base.with_skips(3), Counts { passed: 7, failed: 1, skipped: 5 });
        assert_eq!(Counts::default().with_skips(2), Counts { passed: 0, failed: 0, skipped: 2 });
    }
}
