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

/// Adds up the closing lines of cargo's runner, one for each binary; none found is `None`, so that silence never counts
/// as success.
pub(crate) fn count_cargo(text: &str) -> Option<Counts> {
    let results = text.lines().filter_map(|line| line.strip_prefix("test result: "));
    results.filter_map(cargo_line).reduce(Counts::plus)
}

/// Reads the closing line of nextest: the last of its kind, and never the results of single binaries, which it repeats
/// below each failure.
pub(crate) fn count_nextest(text: &str) -> Option<Counts> {
    let closing = text.lines().rev().find_map(|line| line.trim_start().strip_prefix("Summary ["));
    closing.and_then(nextest_line)
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
        assert_eq!(count_cargo(text), counts(15, 2, 1));
    }

    #[test]
    fn nextest_lines_are_read() {
        let read = |rest: &str| count_nextest(&format!("     Summary [   0.1s] {rest}\n"));
        assert_eq!(read("12 tests run: 12 passed, 0 skipped"), counts(12, 0, 0));
        let slow = "130 tests run: 126 passed (1 slow), 2 failed, 2 timed out, 3 skipped";
        assert_eq!(read(slow), counts(126, 4, 3));
        assert_eq!(read("5/9 tests run: 4 passed, 1 failed, 0 skipped"), counts(4, 5, 0));
        assert_eq!(read("1 test run: 1 passed, 0 skipped"), counts(1, 0, 0));
    }

    #[test]
    fn what_nextest_shows_of_a_failed_test_is_not_counted() {
        let shown =
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let closing = "     Summary [   0.2s] 73 tests run: 72 passed, 1 failed, 0 skipped\n";
        assert_eq!(count_nextest(&format!("{shown}{closing}{shown}")), counts(72, 1, 0));
    }

    #[test]
    fn silence_is_no_success() {
        for text in ["error: could not compile\n", ""] {
            assert_eq!(count_cargo(text), None);
            assert_eq!(count_nextest(text), None);
        }
    }

    #[test]
    fn a_skip_is_not_a_pass() {
        let base = Counts { passed: 10, failed: 1, skipped: 2 };
        assert_eq!(base.with_skips(3), Counts { passed: 7, failed: 1, skipped: 5 });
        assert_eq!(Counts::default().with_skips(2), Counts { passed: 0, failed: 0, skipped: 2 });
    }
}
