//! Many runs at once on one store, beside the same rows written by SQLite alone in batches.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use portcullis::domain::ports::{Agent, AgentFailure, BoxFuture};
use portcullis::domain::run::{EndReason, Run};
use portcullis::domain::scope::Scope;
use portcullis::engine::{Agents, Driven, Job, Room, Runner};
use portcullis::store::sqlite::Committing;

use crate::bare::Bare;
use crate::figures::{load, median, ratio};
use crate::{figures, gated, steps};

/// Runs at once.
const RUNS: u64 = 256;

/// Steps of each: so many that the begin and the end of a run, which the peer does not write, count little.
const STEPS: u64 = 48;

/// Appends in one commit of the peer, as in one of the store.
const BATCH: u64 = 64;

const ROUNDS: usize = 5;

/// The least part of the peer's speed.
const LEAST: f64 = 0.8;

/// Measures and prints.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## {RUNS} runs at once, 1 KiB results (steps a second; load {})\n", load());
    let template = steps::template(place, 1024)?;
    let (mut gated_rates, mut bare_rates) = (Vec::new(), Vec::new());
    let (mut gated_busy, mut bare_busy) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        let before = figures::busy()?;
        // As a host has it that drives many runs.
        gated_rates.push(rate(place, RUNS, STEPS, Committing::OwnThread)?);
        let between = figures::busy()?;
        gated_busy += between.saturating_sub(before);
        let folder = tempfile::tempdir_in(place)?;
        let took = Bare::of_many(folder.path(), &template, RUNS)?.batches(STEPS, BATCH)?;
        bare_busy += figures::busy()?.saturating_sub(between);
        bare_rates.push(per_second(RUNS * STEPS, took.as_secs_f64()));
    }
    let each = |busy| figures::each(busy, RUNS * STEPS * ROUNDS as u64);
    println!(
        "gate        {:>8.0}  ({:.1} processor microseconds a step)",
        median(&gated_rates),
        each(gated_busy)
    );
    println!("SQLite alone {:>7.0}  ({:.1})", median(&bare_rates), each(bare_busy));
    let ratios: Vec<f64> =
        gated_rates.iter().zip(&bare_rates).map(|(gated, bare)| bare / gated).collect();
    // Turned round, so that more than the limit is worse here too.
    ratio(&format!("SQLite alone over {RUNS} runs at once"), median(&ratios), Some(1.0 / LEAST));
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand steps")]
fn per_second(steps: u64, seconds: f64) -> f64 {
    steps as f64 / seconds
}

/// Makes a worker for each run.
struct Workers {
    steps: u64,
}

impl Agents for Workers {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        let worker = gated::Worker { steps: self.steps };
        Box::pin(async { Ok(Box::new(worker) as Box<dyn Agent>) })
    }
}

/// Runs that are driven on one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// How many.
    pub(crate) runs: u64,
    /// How many of them at once.
    pub(crate) places: u64,
    /// Steps of each.
    pub(crate) steps: u64,
    /// Bytes of each result.
    pub(crate) bytes: usize,
    /// Who commits.
    pub(crate) committing: Committing,
}

/// Drives them all to their ends on the store in `folder`; the seconds that it took.
pub(crate) fn drive(folder: &Path, crowd: Crowd) -> Result<f64> {
    let Crowd { runs, places, steps, bytes, committing } = crowd;
    gated::runtime()?.block_on(async {
        let gate = gated::gate(gated::store_with(folder, committing)?, bytes)?;
        let room = |count| usize::try_from(count).ok().and_then(NonZeroUsize::new);
        let room = Option::zip(room(places), room(runs)).context("no runs")?;
        let room = Room { places: room.0, line: room.1 };
        let scope = Scope::of_file_owner();
        let runner = Runner::new(gate, scope, Arc::new(Workers { steps }), room, None);
        let begun = Instant::now();
        let mut tickets = Vec::new();
        for _ in 0..runs {
            tickets.push(runner.submit(Job::Begin(gated::task())).await?);
        }
        for ticket in tickets {
            let driven = ticket.rest().await?.driven;
            ensure!(driven == Driven::Ended(EndReason::GoalCompleted), "a run ended as {driven:?}");
        }
        Ok(begun.elapsed().as_secs_f64())
    })
}

/// Steps a second of this many runs at once, each with this many steps, on one new store in `place`.
pub(crate) fn rate(place: &Path, runs: u64, steps: u64, committing: Committing) -> Result<f64> {
    let folder = tempfile::tempdir_in(place)?;
    let seconds =
        drive(folder.path(), Crowd { runs, places: runs, steps, bytes: 1024, committing })?;
    Ok(per_second(runs.saturating_mul(steps), seconds))
}
