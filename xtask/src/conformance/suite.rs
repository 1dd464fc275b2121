//! The suite: two releases of it, and the sets of scenarios that each runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::checks::Checks;
use crate::process;

/// What the suite prints when it has run all of a set.
const WHOLE: &str = "=== SUMMARY ===";

/// The line before the scenarios of servers in a list.
const SERVERS: &str = "Server scenarios";

/// Scenarios that are run together.
pub(super) struct Set {
    /// As the list of differences names it.
    pub(super) name: &'static str,
    /// The release of the suite, by its package.
    package: &'static str,
    /// Which scenarios.
    pub(super) words: &'static [&'static str],
    /// How many there are. Another number is another suite, which somebody has to look at.
    scenarios: usize,
    required: Required,
}

/// Which scenarios of a set the suite requires.
pub(super) enum Required {
    /// All that it runs.
    All,
    /// Those that it lists for a revision of the protocol. The others are extensions, or newer than the revision.
    By(&'static str),
    /// None: its own server does not pass them.
    None,
}

/// All sets.
pub(super) const SETS: &[Set] = &[
    Set {
        name: "current",
        package: "conformance-current",
        words: &["--suite", "active"],
        scenarios: 30,
        required: Required::All,
    },
    Set {
        name: "current-pending",
        package: "conformance-current",
        words: &["--suite", "pending"],
        scenarios: 2,
        required: Required::None,
    },
    Set {
        name: "next-2025-11-25",
        package: "conformance-next",
        words: &["--requirements", "2025-11-25"],
        scenarios: 33,
        required: Required::By("2025-11-25"),
    },
    Set {
        name: "next-2026-07-28",
        package: "conformance-next",
        words: &["--requirements", "2026-07-28"],
        scenarios: 50,
        required: Required::By("2026-07-28"),
    },
];

/// The scenarios that the suite requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scenarios {
    All,
    These(BTreeSet<String>),
}

impl Scenarios {
    pub(super) fn has(&self, scenario: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.contains(scenario),
        }
    }

    /// Those of them that were not run. Of all that a set runs none can be missing.
    pub(super) fn missing(&self, ran: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let these = match self {
            Self::All => None,
            Self::These(these) => Some(these),
        };
        these.into_iter().flatten().map(String::as_str).filter(move |name| !ran(name))
    }
}

impl Required {
    /// The scenarios, of servers or of clients as the heading of the suite's list says.
    pub(super) fn scenarios(
        &self,
        node: &Path,
        packages: &Path,
        package: &str,
        heading: &str,
    ) -> Result<Scenarios> {
        Ok(match self {
            Self::All => Scenarios::All,
            Self::None => Scenarios::These(BTreeSet::new()),
            Self::By(revision) => {
                let mut list = suite(node, packages, package);
                list.args(["list", "--requirements", revision]);
                let these = listed(&process::keep(&mut list)?, heading);
                if these.is_empty() {
                    bail!("the suite lists no scenario for {revision}");
                }
                Scenarios::These(these)
            }
        })
    }
}

impl Set {
    /// The scenarios that the suite requires.
    pub(super) fn required(&self, node: &Path, packages: &Path) -> Result<Scenarios> {
        self.required.scenarios(node, packages, self.package, SERVERS)
    }

    /// Runs the set against a server on this port, and says how each check ended. The suite's own verdict is not asked for.
    pub(super) fn run(
        &self,
        node: &Path,
        packages: &Path,
        results: &Path,
        port: u16,
    ) -> Result<Checks> {
        let results = results.join(self.name);
        if results.exists() {
            fs::remove_dir_all(&results)?;
        }
        fs::create_dir_all(&results)?;
        let mut suite = suite(node, packages, self.package);
        suite.args(["server", "--url", &format!("http://127.0.0.1:{port}/mcp")]);
        suite.args(self.words).arg("-o").arg(&results).stdin(Stdio::null());
        let ended = suite.output().context("the suite cannot start")?;
        let said = String::from_utf8_lossy(&ended.stdout);
        if !said.contains(WHOLE) {
            let errors = String::from_utf8_lossy(&ended.stderr);
            bail!("the suite did not run to its end: {}\n{}", said.trim_end(), errors.trim_end());
        }
        let mut checks = Command::new(node);
        checks.arg(packages.join("conformance/checks.mjs")).arg(&results);
        Checks::read(&process::keep(&mut checks)?)
    }

    /// Whether what the server alone was found to be says anything: all that there is was run, and what is required passed
    /// without fault.
    pub(super) fn is_baseline(&self, bare: &Checks, required: &Scenarios) -> Result<()> {
        let ran = bare.scenarios();
        if let Some(missing) = required.missing(|scenario| ran.contains(scenario)).next() {
            bail!("{}: {missing} is required, and was not run", self.name);
        }
        for scenario in ran.iter().filter(|scenario| required.has(scenario)) {
            let faults = bare.faults_in(scenario);
            if !faults.is_empty() {
                bail!("{}: {scenario} fails: {}", self.name, faults.join(", "));
            }
            if !bare.passes_in(scenario) {
                bail!("{}: no check of {scenario} passes", self.name);
            }
        }
        if ran.len() != self.scenarios {
            bail!("{}: {} scenarios were run, and not {}", self.name, ran.len(), self.scenarios);
        }
        Ok(())
    }
}

/// One release of the suite.
pub(super) fn suite(node: &Path, packages: &Path, package: &str) -> Command {
    let mut suite = Command::new(node);
    suite.arg(packages.join("node_modules").join(package).join("dist/index.js"));
    suite
}

/// The scenarios under a heading in what `list` prints.
fn listed(text: &str, heading: &str) -> BTreeSet<String> {
    let after = text.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let names = after.map_while(|line| line.trim().strip_prefix("- "));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_of_servers_are_found_among_those_of_clients() {
        let text = "Required:\n\nServer scenarios (test against a server):\n  - ping\n  - tools-list\n\nClient scenarios:\n  - initialize\n";
        let names: Vec<String> = listed(text, SERVERS).into_iter().collect();
        assert_eq!(names, ["ping", "tools-list"]);
        let names: Vec<String> = listed(text, "Client scenarios").into_iter().collect();
        assert_eq!(names, ["initialize"]);
        assert!(listed("Client scenarios:\n  - initialize\n", SERVERS).is_empty());
    }

    #[test]
    fn a_server_that_fails_by_itself_is_no_baseline() {
        let set =
            Set { name: "s", package: "p", words: &[], scenarios: 2, required: Required::None };
        let required = Scenarios::These(["ping".to_owned()].into());
        let told = |text: &str| {
            let checks = Checks::read(text).expect("lines");
            set.is_baseline(&checks, &required).map_err(|error| error.to_string())
        };
        assert_eq!(told("ping\tping\tSUCCESS\t\nnew\tnew\tFAILURE\t\n"), Ok(()));
        let cases = [
            ("", "ping is required, and was not run"),
            ("ping\tping\tSUCCESS\t\n", "1 scenarios were run, and not 2"),
            (
                "a\ta\tSUCCESS\t\nb\tb\tSUCCESS\t\nping\tping\tSUCCESS\t\n",
                "3 scenarios were run, and not 2",
            ),
            ("ping\tping\tSKIPPED\t\n", "no check of ping passes"),
            ("ping\tping\tINFO\t\n", "no check of ping passes"),
            ("ping\tping\tSUCCESS\t\nping\tslow\tWARNING\t\n", "ping fails: slow"),
            ("new\tnew\tSUCCESS\t\n", "ping is required, and was not run"),
            ("ping\tping\tFAILURE\t\n", "ping fails: ping"),
        ];
        for (text, says) in cases {
            assert!(told(text).expect_err("no baseline").ends_with(says), "{text}");
        }
    }
}
