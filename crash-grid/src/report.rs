//! The grid on paper: one line a point, and the sums.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use portcullis_testkit::stage::Side;

use super::grid::Choice;
use super::judge::Blame;
use super::place::Medium;
use super::points::{Fate, Outcome, Point};

/// What was tried.
pub(crate) struct Report<'a> {
    pub(crate) points: &'a [Point<'a>],
    pub(crate) outcomes: &'a [Outcome],
    /// How many points there are beside those that were tried.
    pub(crate) all: usize,
    pub(crate) choice: Choice,
    pub(crate) coverage: &'a BTreeMap<(Medium, String, Side), usize>,
    pub(crate) missing: &'a [String],
    pub(crate) took: Duration,
}

impl Report<'_> {
    fn count(&self, is: impl Fn(&Point<'_>, &Outcome) -> bool) -> usize {
        self.points.iter().zip(self.outcomes).filter(|(point, outcome)| is(point, outcome)).count()
    }

    /// Whether nothing is wrong and nothing is missing.
    pub(crate) fn is_well(&self) -> bool {
        self.missing.is_empty() && self.outcomes.iter().all(|outcome| outcome.faults.is_empty())
    }

    /// One line a point.
    pub(crate) fn grid(&self) -> String {
        let head = [
            "story",
            "store",
            "process",
            "killed at",
            "what",
            "wrote",
            "left",
            "then",
            "in the end",
            "if run again",
            "",
        ];
        let rows = self.points.iter().zip(self.outcomes).map(|(point, outcome)| {
            let mut ends = outcome.ends.iter().cloned();
            vec![
                point.story.name.to_owned(),
                point.medium.name().to_owned(),
                point.process(),
                point.at.aim.to_string(),
                point.at.what.join(" "),
                point.at.wrote.clone().unwrap_or_default(),
                outcome.left.clone(),
                outcome.fate.map_or("not tried", Fate::words).to_owned(),
                ends.next().unwrap_or_default(),
                ends.next().unwrap_or_default(),
                if outcome.faults.is_empty() { "ok" } else { "WRONG" }.to_owned(),
            ]
        });
        table(&head, rows.collect())
    }

    /// What is wrong, one line each.
    pub(crate) fn faults(&self) -> String {
        let mut text = String::new();
        for (point, outcome) in self.points.iter().zip(self.outcomes) {
            for fault in &outcome.faults {
                let word = match fault.blame {
                    Blame::Double => "double",
                    Blame::Loss => "loss",
                    Blame::Other => "wrong",
                };
                // What a process complains of may have lines of its own.
                let said = fault.text.split_whitespace().collect::<Vec<_>>().join(" ");
                let _ = writeln!(text, "{word}: {}: {said}", point.name());
            }
        }
        for missing in self.missing {
            let _ = writeln!(text, "missing: {missing}");
        }
        text
    }

    /// How the points of each story ended, over each store.
    pub(crate) fn sums(&self) -> String {
        let key = |point: &Point<'_>| (point.medium, point.story.name, point.recovers);
        let mut keys: Vec<_> = self.points.iter().map(key).collect();
        keys.dedup();
        let row = |only: Option<(Medium, &str, bool)>| {
            let here = |point: &Point<'_>| only.is_none_or(|only| only == key(point));
            let fate = |fate| self.count(|p, outcome| here(p) && outcome.fate == Some(fate));
            let blame = |blame| self.count(|p, outcome| here(p) && outcome.has(blame));
            let numbers = [
                self.count(|p, _| here(p)),
                fate(Fate::DoneOnce),
                fate(Fate::NotDone),
                fate(Fate::Waits),
                blame(Blame::Double),
                blame(Blame::Loss),
                blame(Blame::Other),
            ];
            let (medium, story, again) =
                only.map_or(("", "all", ""), |(medium, story, recovers)| {
                    (medium.name(), story, if recovers { ", killed again" } else { "" })
                });
            let mut cells = vec![format!("{story}{again}"), medium.to_owned()];
            cells.extend(numbers.map(|number| number.to_string()));
            cells
        };
        let mut rows: Vec<Vec<String>> = keys.into_iter().map(|key| row(Some(key))).collect();
        rows.push(row(None));
        let head = [
            "story",
            "store",
            "points",
            "done once",
            "not done",
            "waits for reconciliation",
            "doubles",
            "losses",
            "otherwise wrong",
        ];
        table(&head, rows)
    }

    /// How often each type of event, each effect and each renewal was hit, on each side.
    pub(crate) fn hits(&self) -> String {
        let mut rows: BTreeMap<(&str, Medium), [usize; 3]> = BTreeMap::new();
        for ((medium, name, side), times) in self.coverage {
            let row = rows.entry((name, *medium)).or_default();
            let column = Side::ALL.iter().position(|s| s == side).unwrap_or_default();
            row[column] += times;
        }
        let rows = rows.into_iter().map(|((name, medium), times)| {
            let mut cells = vec![name.to_owned(), medium.name().to_owned()];
            cells.extend(times.map(|times| times.to_string()));
            cells
        });
        table(&["killed at", "store", "before", "inside", "after"], rows.collect())
    }

    /// One line.
    pub(crate) fn closing(&self) -> String {
        let blame = |blame| self.count(|_, outcome| outcome.has(blame));
        let which = match self.choice {
            Choice::All => "all".to_owned(),
            Choice::Cover => "the cover".to_owned(),
            Choice::Shard { k, n } => format!("shard {k} of {n} and the cover"),
        };
        let types: BTreeSet<&str> = self
            .coverage
            .keys()
            .map(|(_, name, _)| name.as_str())
            .filter(|name| name.contains('.'))
            .collect();
        format!(
            "{} of {} points ({which}), {} types of events, {} doubles, {} losses, {} otherwise wrong, {:.0} s",
            self.points.len(),
            self.all,
            types.len(),
            blame(Blame::Double),
            blame(Blame::Loss),
            blame(Blame::Other) + self.missing.len(),
            self.took.as_secs_f64()
        )
    }
}

/// Columns as wide as their widest cell.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let head: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let lines: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut written = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(written, "{cell:<width$}  ");
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}
