//! The crash grid: runs are killed at every point of their life and taken up again. No effect happens twice, none is
//! lost, and what is unknown waits for a person.
//!
//! `cargo xtask crash-grid [--quick | --all | --shard K/N] [--story NAME]… [--store sqlite|memory|command] [--out FOLDER] [--first]
//! [--command PROGRAM]`
//!
//! This program plays all parts. One process keeps the score; the processes that drive, answer, sweep and erase are the
//! same program once more, each told what to do and at which point to send itself `SIGKILL`; a third one counts effects,
//! and is asked what happened, whatever the record says. Points are not listed: each story is played once without a kill
//! by a store that notes every append, every write inside of it and every renewal, and tools that note both sides of
//! their effect. A type of event that no story comes to fails the run.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a harness that cannot go on has failed; it starts programs, reads the clock and prints"
)]

mod binary;
mod cast;
mod counting;
mod grid;
mod judge;
mod life;
mod models;
mod place;
mod points;
mod report;
mod story;
#[cfg(test)]
mod tests;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use counting::Counting;
use grid::{Choice, Rehearsals};
use place::Medium;
use report::Report;

/// Into how many shards the grid is cut when nobody says: each takes about as long as one does not mind waiting.
const SHARDS: usize = 5;

/// What the grid is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    choice: Choice,
    stories: Vec<String>,
    media: Vec<Medium>,
    out: Option<PathBuf>,
    /// The `portcullis` that is killed too, where all stories are played.
    command: Option<PathBuf>,
    /// Whether to stop at the first effect that happened twice or was lost.
    first: bool,
}

impl Asked {
    fn read(arguments: &[String]) -> Option<Self> {
        let mut asked = Self {
            choice: Choice::Shard { k: 1, n: SHARDS },
            stories: Vec::new(),
            media: Medium::ALL.to_vec(),
            out: None,
            command: None,
            first: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => asked.choice = Choice::Cover,
                "--all" => asked.choice = Choice::All,
                "--shard" => asked.choice = shard(arguments.next()?)?,
                "--story" => asked.stories.push(arguments.next()?.clone()),
                "--store" => {
                    let name = arguments.next()?;
                    let named = Medium::ALL.into_iter().find(|medium| medium.name() == name);
                    // The command alone is tried over no store of the harness.
                    asked.media = if name == "command" { Vec::new() } else { vec![named?] };
                }
                "--first" => asked.first = true,
                "--command" => asked.command = Some(PathBuf::from(arguments.next()?)),
                "--out" => asked.out = Some(PathBuf::from(arguments.next()?)),
                _ => return None,
            }
        }
        Some(asked)
    }
}

/// `K/N`, with K from 1 to N.
fn shard(text: &str) -> Option<Choice> {
    let (k, n) = text.split_once('/')?;
    let (k, n) = (k.parse().ok()?, n.parse().ok()?);
    (1..=n).contains(&k).then_some(Choice::Shard { k, n })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = part(&arguments) {
        std::process::exit(code);
    }
    let asked = Asked::read(&arguments);
    let stories = asked.as_ref().and_then(|asked| grid::stories(&asked.stories));
    let (Some(asked), Some(stories)) = (asked, stories) else {
        eprintln!("not understood: {}", arguments.join(" "));
        return ExitCode::from(2);
    };
    if run(&asked, &stories) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays the part that this process was started for, if it was started for one.
fn part(arguments: &[String]) -> Option<i32> {
    match arguments {
        [word, path] if word == "count" => Some(counting::count(path)),
        [word, words @ ..] if word == "part" => Some(life::in_process(words)),
        _ => None,
    }
}

/// Tries the chosen points and prints what became of them; false when anything is wrong.
fn run(asked: &Asked, stories: &[&'static story::Story]) -> bool {
    let begun = Instant::now();
    let counting = Counting::start();
    let (media, counter) = (asked.media.as_slice(), &counting.counter);
    let rehearsals =
        Rehearsals::play(stories, media, counter).and(Rehearsals::recover(stories, media, counter));
    let points = rehearsals.points();
    let all = points.len();
    // Whether every type is hit is asked of all points, and of the chosen ones: the cover is in every choice.
    let points = grid::chosen(points, asked.choice);
    let coverage = grid::coverage(&points);
    let whole = asked.stories.is_empty();
    let missing = if whole { grid::missing(&coverage, &asked.media) } else { Vec::new() };
    let outcomes = grid::try_all(&points, asked.first);
    let (points, outcomes): (Vec<_>, Vec<_>) =
        points.into_iter().zip(outcomes).filter_map(|(p, o)| Some((p, o?))).unzip();
    let report = Report {
        points: &points,
        outcomes: &outcomes,
        all,
        choice: asked.choice,
        coverage: &coverage,
        missing: &missing,
        took: begun.elapsed(),
    };
    let command = asked
        .command
        .as_deref()
        .filter(|_| whole && (asked.media.is_empty() || asked.media == Medium::ALL));
    let found = command.and_then(|command| binary::run(command, asked.choice));
    tell(&report, found.as_ref(), asked.out.as_deref());
    report.is_well() && found.is_none_or(|found| found.well)
}

/// Prints the sums and what is wrong, and keeps the whole grid as a file.
fn tell(report: &Report<'_>, command: Option<&binary::Found>, out: Option<&std::path::Path>) {
    let (sums, hits, faults, closing) =
        (report.sums(), report.hits(), report.faults(), report.closing());
    let (rows, of_command) =
        command.map_or(("", ""), |found| (found.grid.as_str(), found.sums.as_str()));
    if let Some(folder) = out {
        let text = format!(
            "{}\n{hits}\n{sums}\n{faults}{closing}\n\n{rows}\n{of_command}\n",
            report.grid()
        );
        std::fs::create_dir_all(folder).unwrap();
        let file = folder.join("grid.txt");
        std::fs::write(&file, text).unwrap();
        println!("{hits}\nthe grid: {}\n", file.display());
    }
    if !of_command.is_empty() {
        println!("{of_command}\n");
    }
    println!("{sums}\n{faults}{closing}");
}
