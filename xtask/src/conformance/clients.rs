//! The other half of the suite: the product's own client, at servers that the suite plays.
//!
//! Of each set every scenario that the suite requires has to pass, but for those that the list names with a reason. A listed one that
//! passes fails the run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::differences::List;
use super::suite::{Required, Scenarios, suite};
use crate::runners::Counts;
use crate::workspace;

/// The program that the suite drives: an example of the client's crate.
const CLIENT: &str = "ci/examples/mcp-client";

/// The line of the suite before its verdicts.
const VERDICTS: &str = "=== SUITE SUMMARY ===";

/// The line before the scenarios of clients in a list.
const CLIENTS: &str = "Client scenarios";

/// Scenarios that are run together.
struct Set {
    name: &'static str,
    package: &'static str,
    words: &'static [&'static str],
    /// How many are required. Another number is another suite, which somebody has to look at.
    scenarios: usize,
    required: Required,
}

const SETS: [Set; 3] = [
    Set {
        name: "client-current",
        package: "conformance-current",
        words: &["--suite", "all", "--spec-version", "2025-11-25"],
        scenarios: 18,
        required: Required::All,
    },
    Set {
        name: "client-next-2025-11-25",
        package: "conformance-next",
        words: &["--requirements", "2025-11-25"],
        scenarios: 18,
        required: Required::By("2025-11-25"),
    },
    Set {
        name: "client-next-2026-07-28",
        package: "conformance-next",
        words: &["--requirements", "2026-07-28"],
        scenarios: 32,
        required: Required::By("2026-07-28"),
    },
];

/// The sets' names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|set| set.name)
}

/// Runs all sets, prints what fails, and counts scenarios.
pub(super) fn run(root: &Path, node: &Path, packages: &Path, list: &List) -> Result<Counts> {
    let client = workspace::target(root).join(CLIENT);
    let mut counts = Counts::default();
    for set in &SETS {
        let required = set.required.scenarios(node, packages, set.package, CLIENTS)?;
        let verdicts = set.run(node, packages, &client)?;
        let judged = judge(&verdicts, &required, &list.failing(set.name), set.scenarios);
        println!("{}: {} scenarios pass", set.name, judged.passed);
        judged.known.iter().for_each(|known| println!("{}: {known} fails, as listed", set.name));
        judged.failed.iter().for_each(|failed| println!("{}: {failed}", set.name));
        counts.passed += judged.passed;
        counts.failed += judged.failed.len();
    }
    Ok(counts)
}

/// Whether each scenario passed, by its name.
type Verdicts = BTreeMap<String, bool>;

impl Set {
    fn run(&self, node: &Path, packages: &Path, client: &Path) -> Result<Verdicts> {
        let mut command = suite(node, packages, self.package);
        // The suite parts the command at blanks.
        let client = client.to_str().filter(|path| !path.contains(char::is_whitespace));
        let client = client.context("the build folder's path has a blank in it")?;
        command.args(["client", "--command", client]).args(self.words).stdin(Stdio::null());
        let verdicts = verdicts(&output(&mut command)?)?;
        match verdicts.is_empty() {
            true => bail!("{}: no scenario was run", self.name),
            false => Ok(verdicts),
        }
    }
}

fn output(command: &mut Command) -> Result<String> {
    let ended = command.output().context("the suite cannot start")?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    if !said.contains(VERDICTS) {
        let errors = String::from_utf8_lossy(&ended.stderr);
        bail!("the suite did not run to its end: {}\n{}", said.trim_end(), errors.trim_end());
    }
    Ok(said)
}

/// The lines `✓ NAME: 3 passed, 0 failed, 1 warnings` at the end of what the suite prints, the last part where there are some.
fn verdicts(said: &str) -> Result<Verdicts> {
    let lines = said.lines().skip_while(|line| *line != VERDICTS).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("Total:"));
    let verdict = |line: &str| {
        let (name, numbers) = line.split_once(' ')?.1.split_once(": ")?;
        let (passed, rest) = numbers.split_once(" passed, ")?;
        let (failed, rest) = rest.split_once(" failed")?;
        let (passed, failed): (u32, u32) = (passed.parse().ok()?, failed.parse().ok()?);
        Some((name.to_owned(), passed > 0 && failed == 0 && rest.is_empty()))
    };
    let read = |line: &str| verdict(line).with_context(|| format!("no verdict: {line}"));
    lines.filter(|line| !line.trim().is_empty()).map(read).collect()
}

/// What is made of verdicts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    passed: usize,
    /// Listed ones that fail.
    known: Vec<String>,
    /// What fails the run, in words.
    failed: Vec<String>,
}

/// Holds the verdicts against what has to pass: `scenarios` of them, but for those that are listed.
fn judge(verdicts: &Verdicts, required: &Scenarios, listed: &[&str], scenarios: usize) -> Judged {
    let mut judged = Judged::default();
    let ran: Vec<_> = verdicts.iter().filter(|(name, _)| required.has(name)).collect();
    if ran.len() != scenarios {
        let count = ran.len();
        judged
            .failed
            .push(format!("{count} scenarios that are required were run, and not {scenarios}"));
    }
    for (name, passed) in ran {
        match (passed, listed.contains(&name.as_str())) {
            (true, false) => judged.passed += 1,
            (false, true) => judged.known.push(name.clone()),
            (true, true) => judged.failed.push(format!("{name} is listed as failing, and passes")),
            (false, false) => judged.failed.push(format!("{name} fails")),
        }
    }
    let missing = required.missing(|name| verdicts.contains_key(name));
    judged.failed.extend(missing.map(|name| format!("{name} is required, and was not run")));
    let strangers = listed.iter().filter(|name| !verdicts.contains_key(**name));
    judged.failed.extend(strangers.map(|name| format!("{name} is listed, and was not run")));
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Results saved\n=== SUITE SUMMARY ===\n\n✓ initialize: 1 passed, 0 failed\n✗ ask: 0 passed, 6 failed\n\
        ✓ auth/odd: 3 passed, 0 failed, 1 warnings\n✗ none: 0 passed, 0 failed\n\nTotal: 4 passed, 6 failed\n\nNot scored\n  ✗ more\n";

    #[test]
    fn the_verdicts_are_read_and_nothing_else() {
        let read = verdicts(SAID).expect("verdicts");
        let passed: Vec<_> = read.iter().map(|(name, passed)| (name.as_str(), *passed)).collect();
        assert_eq!(
            passed,
            [("ask", false), ("auth/odd", false), ("initialize", true), ("none", false)]
        );
        assert!(verdicts("=== SUITE SUMMARY ===\n✓ initialize\n").is_err());
    }

    #[test]
    fn each_required_scenario_passes_or_is_listed() {
        let read = verdicts(SAID).expect("verdicts");
        let required = Scenarios::These(
            ["initialize", "ask", "none", "gone"].map(str::to_owned).into_iter().collect(),
        );
        let judged = judge(&read, &required, &["ask", "initialize", "other"], 3);
        assert_eq!((judged.passed, judged.known), (0, vec!["ask".to_owned()]));
        assert_eq!(
            judged.failed,
            [
                "initialize is listed as failing, and passes",
                "none fails",
                "gone is required, and was not run",
                "other is listed, and was not run",
            ]
        );
        assert_eq!(judge(&read, &required, &[], 3).passed, 1);
        let fewer = judge(&read, &Scenarios::These(["initialize".to_owned()].into()), &[], 2);
        assert_eq!(fewer.failed, ["1 scenarios that are required were run, and not 2"]);
    }
}
