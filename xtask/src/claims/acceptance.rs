//! The acceptance list, `docs/acceptance.md`: each line of it names tests that exist, or says why it has none yet.
//!
//! A line is a row of a table: its name, what must hold, and either tests in backticks (named as a claim names them) or
//! `not here:` with the reason. `A1` to `A15` are the list, `F1` to `F85` the known faults.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::suite::Suite;

/// The list.
pub(super) const PAGE: &str = "docs/acceptance.md";

/// How many lines each kind has.
const KINDS: [(&str, u32); 2] = [("A", 15), ("F", 85)];

/// What a line without tests begins its last cell with.
const ABSENT: &str = "not here: ";

/// One line.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    name: &'a str,
    tests: Vec<&'a str>,
    /// Why there is no test.
    absent: bool,
}

/// What the list of a checkout gets wrong.
pub(super) fn findings(root: &Path, suite: &Suite) -> Result<Vec<String>> {
    let text =
        fs::read_to_string(root.join(PAGE)).with_context(|| format!("{PAGE} cannot be read"))?;
    let lines = lines(&text);
    let mut findings = shape(&lines);
    for line in &lines {
        for test in &line.tests {
            if suite.find(test)?.is_empty() {
                findings.push(format!(
                    "{PAGE}: {} names the test {test}, which does not exist",
                    line.name
                ));
            }
        }
    }
    Ok(findings)
}

/// The rows of the tables that have a name of the list.
fn lines(text: &str) -> Vec<Line<'_>> {
    let rows = text.lines().filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |"));
    rows.filter_map(|row| {
        let (name, rest) = row.split_once(" | ")?;
        let (_, backing) = rest.rsplit_once(" | ")?;
        let known = KINDS.iter().any(|(kind, _)| {
            name.strip_prefix(kind).is_some_and(|number| number.parse::<u32>().is_ok())
        });
        let tests = backing.split('`').skip(1).step_by(2).filter(|word| word.contains("::"));
        known.then(|| Line { name, tests: tests.collect(), absent: backing.starts_with(ABSENT) })
    })
    .collect()
}

/// Every line once, in order, and each with tests or with a reason.
fn shape(lines: &[Line<'_>]) -> Vec<String> {
    let wanted: Vec<String> = KINDS
        .iter()
        .flat_map(|(kind, count)| (1..=*count).map(move |number| format!("{kind}{number}")))
        .collect();
    let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
    let mut findings = Vec::new();
    if names != wanted {
        let off = wanted.iter().zip(names.iter().copied().chain(std::iter::repeat("nothing")));
        let first = off.into_iter().find(|(want, name)| want != name);
        findings.push(match first {
            Some((want, name)) => format!("{PAGE}: {name} stands where {want} belongs"),
            None => format!("{PAGE}: there are more lines than the list has"),
        });
    }
    for line in lines.iter().filter(|line| line.tests.is_empty() && !line.absent) {
        findings.push(format!("{PAGE}: {} names no test and no reason", line.name));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(edit: impl Fn(&str) -> String) -> String {
        let rows = KINDS
            .iter()
            .flat_map(|(kind, count)| (1..=*count).map(move |number| format!("{kind}{number}")));
        let rows = rows.map(|name| edit(&name)).collect::<Vec<_>>().join("\n");
        format!("| name | what | tests |\n|---|---|---|\n{rows}\n")
    }

    fn whole(name: &str) -> String {
        match name {
            "F3" => "| F3 | replay | not here: comes with the models |".to_owned(),
            name => format!("| {name} | a \\| b | `p-a::it::one`, `p-b::two` |"),
        }
    }

    #[test]
    fn a_whole_list_has_no_finding() {
        let text = page(whole);
        let lines = lines(&text);
        assert_eq!(shape(&lines), Vec::<String>::new());
        assert_eq!(lines.len(), 100);
        assert_eq!(lines[0].tests, ["p-a::it::one", "p-b::two"]);
        assert!(lines[17].absent && lines[17].tests.is_empty());
    }

    #[test]
    fn what_is_missing_doubled_or_bare_is_found() {
        let found = |edit: &dyn Fn(&str) -> String| shape(&lines(&page(edit)));
        let without = |name: &str| if name == "A9" { String::new() } else { whole(name) };
        assert_eq!(found(&without), [format!("{PAGE}: A10 stands where A9 belongs")]);
        let doubled = |name: &str| match name {
            "F85" => format!("{}\n{}", whole(name), whole(name)),
            name => whole(name),
        };
        assert_eq!(found(&doubled), [format!("{PAGE}: there are more lines than the list has")]);
        let bare = |name: &str| match name {
            "F7" => "| F7 | something | later |".to_owned(),
            name => whole(name),
        };
        assert_eq!(found(&bare), [format!("{PAGE}: F7 names no test and no reason")]);
        let cut = |name: &str| if name == "F85" { String::new() } else { whole(name) };
        assert_eq!(found(&cut), [format!("{PAGE}: nothing stands where F85 belongs")]);
    }
}
