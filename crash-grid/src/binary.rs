//! The command itself in the grid: the real `portcullis` is killed at the calls by which it changes its state or the files.
//!
//! `testkit::killer` traces it. A process is played once without a kill; each call by which it changed its home is a
//! point, on both sides. At a point a process is killed there, and an operator goes on with the same command. The judge is
//! what lies in the folder of files, and which changes of it the kernel was asked for, by the log of the tracer: never the
//! database.

mod home;
mod operator;
mod points;
mod report;
mod story;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use portcullis_testkit::killer::Killer;

use super::grid::Choice;
use home::Home;
use points::{Outcome, Point, chosen, rehearse, try_point};
use report::Report;

/// How many homes are worked in at once.
const WORKERS: usize = 2;

/// What was found: the text for the grid's file, the sums, and whether all is well.
pub(crate) struct Found {
    pub(crate) grid: String,
    pub(crate) sums: String,
    pub(crate) well: bool,
}

/// Kills the command at the chosen points. Where nothing can be traced, that is said and counted as a skip.
pub(crate) fn run(command: &Path, choice: Choice) -> Option<Found> {
    let begun = Instant::now();
    let killer = Killer::compile()?;
    let home = Home::new(command, &killer);
    let played = rehearse(&home);
    let all = points::all(&played);
    let points = chosen(&played, &all, choice);
    let outcomes = try_all(command, &killer, &points);
    let report =
        Report { played: &played, points: &points, outcomes: &outcomes, all: all.len(), choice };
    Some(Found {
        grid: report.grid(),
        sums: format!("{}\n{}{}", report.sums(), report.faults(), report.closing(begun.elapsed())),
        well: report.is_well(),
    })
}

/// Tries all points, each worker in a home of its own, where it plays the stories once: what a process finds is the same
/// as it was for the others, but for ids and times. The outcomes come in the order of the points.
fn try_all(command: &Path, killer: &Killer, points: &[Point]) -> Vec<Outcome> {
    let taken = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(points.iter().map(|_| None).collect());
    let work = || {
        let home = Home::new(command, killer);
        let own = rehearse(&home);
        while let Some(point) = points.get(taken.fetch_add(1, Ordering::Relaxed)) {
            let outcome = try_point(&home, &own, *point);
            outcomes.lock().unwrap()[point.place] = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
    outcomes.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
}

/// What tests of the judge need.
#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::home::Home;
    pub(crate) use super::operator::{Account, act};
    pub(crate) use super::points::faults;
    pub(crate) use super::story::{STORIES, Story, Verb};
}
