//! `cargo xtask simulate`: plays histories by their seeds, finds planted faults, and explores the model.
//!
//! `[--seeds N] [--from S] [--first]` plays N histories (1,000 without), to the first that is broken if that is enough;
//! `--seed S [--trace]` plays one of them. `--planted NAME` plants
//! a fault; `--faults` plants each of them and requires that it is found and replays by its seed; `--model` explores
//! the model instead. Exit codes: 0 all well, 1 something is broken or vacuous, 2 usage.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal, which tells how long it took"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use portcullis_simulate::{Bounds, KINDS, Outcome, Planted, Seen, Wrong, explore, simulate};

/// From so many histories on, a kind of happening that never came is a failure.
const ENOUGH: u64 = 1_000;

/// Histories between two lines of progress.
const BLOCK: u64 = 500;

/// The same, where the first broken history is enough.
const FEW: u64 = 16;

/// Seeds that a planted fault may take to be found.
const PATIENCE: u64 = 600;

/// What is to be done.
struct Choice {
    seeds: u64,
    from: u64,
    trace: bool,
    first: bool,
    planted: Option<Planted>,
    faults: bool,
    model: bool,
}

impl Choice {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut choice = Self {
            seeds: 1_000,
            from: 0,
            trace: false,
            first: false,
            planted: None,
            faults: false,
            model: false,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<u64> {
                let text =
                    arguments.next().with_context(|| format!("{argument} needs a number"))?;
                text.parse().with_context(|| format!("{argument} needs a number, not `{text}`"))
            };
            match argument.as_str() {
                "--seeds" => choice.seeds = number()?,
                "--from" => choice.from = number()?,
                "--seed" => (choice.from, choice.seeds) = (number()?, 1),
                "--trace" => choice.trace = true,
                "--first" => choice.first = true,
                "--faults" => choice.faults = true,
                "--model" => choice.model = true,
                "--planted" => {
                    let name = arguments.next().unwrap_or_default();
                    let names = Planted::ALL.iter().map(|planted| planted.name());
                    let known = names.collect::<Vec<_>>().join(", ");
                    let planted = Planted::from_name(&name);
                    choice.planted =
                        Some(planted.with_context(|| format!("`{name}` is none of {known}"))?);
                }
                _ => bail!(
                    "`{argument}` is none of --seeds N, --from S, --seed S, --trace, --first, --planted NAME, --faults, --model"
                ),
            }
        }
        Ok(choice)
    }
}

fn main() -> ExitCode {
    let choice = match Choice::read(std::env::args().skip(1)) {
        Ok(choice) => choice,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    match run(&choice) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(choice: &Choice) -> Result<bool> {
    if choice.faults {
        return faults();
    }
    if choice.model {
        return model();
    }
    histories(choice)
}

/// Plays all seeds, a block at a time, on as many threads as there are cores. What is printed does not depend on them.
fn histories(choice: &Choice) -> Result<bool> {
    let begun = Instant::now();
    let (mut seen, mut events, mut broken) = (Seen::default(), 0_u64, 0_u64);
    let end = choice.from.saturating_add(choice.seeds);
    let mut first = choice.from;
    while first < end && !(choice.first && broken > 0) {
        let block_of = if choice.first { FEW } else { BLOCK };
        let last = first.saturating_add(block_of).min(end);
        let outcomes = block(first, last, choice.planted)?;
        for outcome in &outcomes {
            seen.add(&outcome.seen);
            events += outcome.events;
            if tell(outcome, choice, broken == 0) {
                broken += 1;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "seeds {first} to {}: {broken} broken so far, {events} events, {seconds:.1} s",
            last - 1
        );
        first = last;
    }
    println!();
    for kind in KINDS {
        println!("{:>9}  {kind}", seen.of(kind));
    }
    let never: Vec<&str> = seen.never().collect();
    let played = first - choice.from;
    let vacuous =
        played >= ENOUGH && choice.planted.is_none() && !choice.first && !never.is_empty();
    if vacuous {
        println!("\nnever happened, so nothing was shown about it: {}", never.join(", "));
    }
    println!(
        "\n{played} histories, seeds {} to {}: {broken} broken",
        choice.from,
        first.saturating_sub(1)
    );
    Ok(broken == 0 && !vacuous)
}

/// The outcomes of the seeds from `first` to below `last`, in their order.
fn block(first: u64, last: u64, planted: Option<Planted>) -> Result<Vec<Outcome>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(first);
    let work = || -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= last {
                return Ok(outcomes);
            }
            let mut outcome = simulate(seed, planted)?;
            if outcome.broken.is_none() && last - first > 1 {
                outcome.forget();
            }
            outcomes.push(outcome);
        }
    };
    let mut outcomes = std::thread::scope(|scope| -> Result<Vec<Outcome>> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(outcomes) => all.extend(outcomes?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })?;
    outcomes.sort_by_key(|outcome| outcome.seed);
    Ok(outcomes)
}

/// Prints a broken history, the first of them with its trace; true when it is broken.
fn tell(outcome: &Outcome, choice: &Choice, first: bool) -> bool {
    if choice.trace || (first && outcome.broken.is_some()) {
        print!("{}", outcome.trace());
    }
    let Some(broken) = &outcome.broken else { return false };
    let planted = choice.planted.map(|planted| format!(" --planted {}", planted.name()));
    let planted = planted.unwrap_or_default();
    println!("BROKEN by seed {}: {}\n  {}", outcome.seed, broken.rule, broken.how);
    println!("  replay: cargo xtask simulate --seed {}{planted} --trace", outcome.seed);
    true
}

/// Explores the model, right and with each wrong step.
fn model() -> Result<bool> {
    let mut well = true;
    for (name, bounds) in MODELS {
        let begun = Instant::now();
        let found = explore(*bounds);
        let seconds = begun.elapsed().as_secs_f64();
        let holds = found.broken.is_empty() && found.never.is_empty();
        well &= holds;
        let word = if holds { "holds " } else { "BROKEN" };
        println!("{word}  {name}: {} states, {} deep, {seconds:.1} s", found.states, found.depth);
        for (property, actions) in &found.broken {
            println!("  not always: {property}\n    after {actions}");
        }
        for property in &found.never {
            println!("  never: {property}");
        }
    }
    for wrong in Wrong::ALL {
        let found = explore(Bounds { wrong: Some(*wrong), ..wrong_bounds(*wrong) });
        let first = found.broken.first();
        well &= first.is_some();
        match first {
            Some((property, actions)) => {
                println!(
                    "found   {}: not always \"{property}\"\n    after {actions}",
                    wrong.name()
                );
            }
            None => println!("MISSED  {}: in {} states", wrong.name(), found.states),
        }
    }
    Ok(well)
}

/// What is explored.
const MODELS: &[(&str, Bounds)] = &[
    ("allowed", Bounds { reviewers: 0, crashes: 1, leaps: 1, doubts: 1, again: 1, wrong: None }),
    (
        "allowed, two crashes",
        Bounds { reviewers: 0, crashes: 2, leaps: 1, doubts: 0, again: 0, wrong: None },
    ),
    (
        "one is asked",
        Bounds { reviewers: 1, crashes: 1, leaps: 1, doubts: 0, again: 1, wrong: None },
    ),
    (
        "one is asked, in doubt",
        Bounds { reviewers: 1, crashes: 0, leaps: 1, doubts: 1, again: 0, wrong: None },
    ),
    (
        "two are asked",
        Bounds { reviewers: 2, crashes: 1, leaps: 0, doubts: 0, again: 1, wrong: None },
    ),
];

/// The bounds in which a wrong step has to be found.
const fn wrong_bounds(wrong: Wrong) -> Bounds {
    let reviewers = if matches!(wrong, Wrong::GrantNotUsed) { 1 } else { 0 };
    Bounds { reviewers, crashes: 1, leaps: 1, doubts: 1, again: 0, wrong: None }
}

/// Plants each fault and looks for it.
fn faults() -> Result<bool> {
    let mut all = true;
    for planted in Planted::ALL {
        let name = planted.name();
        let Some(outcome) = find(*planted)? else {
            println!("MISSED  {name}: not found in {PATIENCE} seeds");
            all = false;
            continue;
        };
        let again = simulate(outcome.seed, Some(*planted))?;
        let replays = again.broken == outcome.broken && again.trace() == outcome.trace();
        let innocent = simulate(outcome.seed, None)?.broken.is_none();
        let rule = outcome.broken.as_ref().map_or("", |broken| broken.rule);
        let word = if replays && innocent { "found " } else { "FAULTY" };
        all &= replays && innocent;
        println!(
            "{word}  {name}: seed {}, \"{rule}\", replays: {replays}, without it well: {innocent}",
            outcome.seed
        );
    }
    println!(
        "\n{} faults in the doubles, {}",
        Planted::ALL.len(),
        if all { "all found" } else { "NOT all found" }
    );
    Ok(all)
}

fn find(planted: Planted) -> Result<Option<Outcome>> {
    for seed in 0..PATIENCE {
        let outcome = simulate(seed, Some(planted))?;
        if outcome.broken.is_some() {
            return Ok(Some(outcome));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Choice> {
        Choice::read(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_is_read() {
        let choice = read("--seed 7 --trace --planted call-made-twice").unwrap();
        assert_eq!((choice.from, choice.seeds, choice.trace), (7, 1, true));
        assert_eq!(choice.planted, Some(Planted::CallMadeTwice));
        assert_eq!(read("--seeds 10 --from 5").unwrap().from, 5);
        for text in ["--seeds", "--seeds x", "--planted none", "7"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
