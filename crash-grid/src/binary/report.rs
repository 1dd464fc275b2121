//! The command's grid on paper: one line a point, the sums, and what is wrong.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::grid::Choice;
use super::super::judge::Blame;
use super::super::points::Fate;
use super::super::report::table;
use super::points::{DRAWN, Outcome, Played, Point, SEED};

/// Of so many points one may not be reached: threads make a call more or less.
const FEW: usize = 20;

/// What was tried.
pub(crate) struct Report<'a> {
    pub(crate) played: &'a [Played],
    pub(crate) points: &'a [Point],
    pub(crate) outcomes: &'a [Outcome],
    /// How many points there are beside those that were tried.
    pub(crate) all: usize,
    pub(crate) choice: Choice,
}

impl Report<'_> {
    fn count(&self, is: impl Fn(&Point, &Outcome) -> bool) -> usize {
        self.points.iter().zip(self.outcomes).filter(|(point, outcome)| is(point, outcome)).count()
    }

    fn process(&self, process: usize) -> [String; 2] {
        let Played { story, leg, number, .. } = &self.played[process];
        [story.name.to_owned(), format!("{number} {}", leg.verb.name())]
    }

    fn unreached(&self) -> usize {
        self.count(|_, outcome| !outcome.is_reached)
    }

    /// Whether nothing is wrong, and nearly every point was reached.
    pub(crate) fn is_well(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.faults.is_empty())
            && self.unreached() * FEW <= self.points.len()
            && !self.points.is_empty()
    }

    /// One line a point.
    pub(crate) fn grid(&self) -> String {
        let row = |(point, outcome): (&Point, &Outcome)| {
            let [story, process] = self.process(point.process);
            let call = &self.played[point.process].calls[point.kill.nth - 1];
            let name = call.to.as_ref().unwrap_or(&call.path).file_name().unwrap_or_default();
            vec![
                story,
                process,
                format!("{} {}", point.kill.side.as_str(), point.kill.nth),
                format!("{} {}", call.name, name.to_string_lossy()),
                outcome.fate.map_or("not tried", Fate::words).to_owned(),
                if outcome.faults.is_empty() { "ok" } else { "WRONG" }.to_owned(),
            ]
        };
        let rows = self.points.iter().zip(self.outcomes).map(row);
        table(&["story", "process", "killed at", "what", "then", ""], rows.collect())
    }

    /// How the points of each process ended.
    pub(crate) fn sums(&self) -> String {
        let row = |only: Option<usize>| {
            let here = |point: &Point| only.is_none_or(|only| only == point.process);
            let fate =
                |fate| self.count(|point, outcome| here(point) && outcome.fate == Some(fate));
            let blame = |blame| {
                let has = |outcome: &Outcome| outcome.faults.iter().any(|f| f.blame == blame);
                self.count(|point, outcome| here(point) && has(outcome))
            };
            let calls = match only {
                Some(process) => self.played[process].calls.len(),
                None => self.played.iter().map(|played| played.calls.len()).sum(),
            };
            let numbers = [
                calls,
                self.count(|point, _| here(point)),
                fate(Fate::DoneOnce),
                fate(Fate::NotDone),
                fate(Fate::Waits),
                blame(Blame::Double),
                blame(Blame::Loss),
                blame(Blame::Other),
            ];
            let mut cells =
                only.map_or(["all".to_owned(), String::new()], |at| self.process(at)).to_vec();
            cells.extend(numbers.map(|number| number.to_string()));
            cells
        };
        let mut rows: Vec<_> = (0..self.played.len()).map(|process| row(Some(process))).collect();
        rows.push(row(None));
        let head = [
            "command",
            "process",
            "calls",
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

    /// What is wrong, one line each.
    pub(crate) fn faults(&self) -> String {
        let mut text = String::new();
        for (point, outcome) in self.points.iter().zip(self.outcomes) {
            let [story, process] = self.process(point.process);
            for fault in &outcome.faults {
                let word = match fault.blame {
                    Blame::Double => "double",
                    Blame::Loss => "loss",
                    Blame::Other => "wrong",
                };
                let said = fault.text.split_whitespace().collect::<Vec<_>>().join(" ");
                let (side, nth) = (point.kill.side.as_str(), point.kill.nth);
                let _ = writeln!(text, "{word}: command {story} {process} {side} {nth}: {said}");
            }
        }
        text
    }

    /// One line.
    pub(crate) fn closing(&self, took: Duration) -> String {
        let which = match self.choice {
            Choice::All => "all".to_owned(),
            Choice::Cover => format!(
                "every call on the files, and {DRAWN} of each process, drawn by seed {SEED}"
            ),
            Choice::Shard { k, n } => format!("shard {k} of {n} and the cover"),
        };
        let blame =
            |blame| self.count(|_, outcome| outcome.faults.iter().any(|f| f.blame == blame));
        format!(
            "the command: {} of {} points ({which}), {} not reached, {} doubles, {} losses, {} otherwise wrong, {:.0} s",
            self.points.len(),
            self.all,
            self.unreached(),
            blame(Blame::Double),
            blame(Blame::Loss),
            blame(Blame::Other),
            took.as_secs_f64()
        )
    }
}
