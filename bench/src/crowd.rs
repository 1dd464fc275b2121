//! Many runs at once on one store, beside the same rows written by SQLite alone in batches.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use portcullis::domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis::domain::run::{EndReason, Run};
use portcullis::domain::scope::Scope;
use portcullis::engine::{Agents, Driven, Job, Room, Runner};
use portcullis::store::sqlite::Committing;

use crate::bare::Bare;
use crate::figures::{load, median, ratio};
use crate::{gated, steps};

/// Runs at once.
const RUNS: usize = 256;

/// Steps of each.
const STEPS: u64 = 12;

/// Steps of all.
const ALL: u64 = RUNS as u64 * STEPS;

/// Appends in one commit of the peer, as in one of the store.
const BATCH: u64 = 64;

const ROUNDS: usize = 5;

/// The least part of the peer's speed.
const LEAST: f64 = 0.8;

/// Some steps and the end.
struct Worker;

impl Agent for Worker {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let raw = match view.request {
            request if request < STEPS => gated::proposal(request),
            request => gated::completion(request),
        };
        Box::pin(async { Ok(raw) })
    }
}

/// Measures and prints.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## {RUNS} runs at once, 1 KiB results (steps a second; load {})\n", load());
    let template = steps::template(place, 1024)?;
    let (mut gated_rates, mut bare_rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        gated_rates.push(rate(place)?);
        let folder = tempfile::tempdir_in(place)?;
        let took = Bare::create(folder.path(), &template)?.batches(ALL, BATCH)?;
        bare_rates.push(per_second(took.as_secs_f64()));
    }
    println!("gate        {:>8.0}", median(&gated_rates));
    println!("SQLite alone {:>7.0}", median(&bare_rates));
    let ratios: Vec<f64> =
        gated_rates.iter().zip(&bare_rates).map(|(gated, bare)| bare / gated).collect();
    // Turned round, so that more than the limit is worse here too.
    ratio(&format!("SQLite alone over {RUNS} runs at once"), median(&ratios), Some(1.0 / LEAST));
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand steps")]
fn per_second(seconds: f64) -> f64 {
    ALL as f64 / seconds
}

/// Makes a worker for each run.
struct Workers;

impl Agents for Workers {
    fn agent<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<Box<dyn Agent>, AgentFailure>> {
        Box::pin(async { Ok(Box::new(Worker) as Box<dyn Agent>) })
    }
}

fn rate(place: &Path) -> Result<f64> {
    let folder = tempfile::tempdir_in(place)?;
    gated::runtime()?.block_on(async {
        // As a host has it that drives many runs.
        let store = gated::store_with(folder.path(), Committing::OwnThread)?;
        let gate = gated::gate(store, 1024)?;
        let runs = NonZeroUsize::new(RUNS).context("no runs")?;
        let room = Room { places: runs, line: runs };
        let scope = Scope::of_file_owner();
        let runner = Runner::new(gate, scope, Arc::new(Workers), room, None);
        let begun = Instant::now();
        let mut tickets = Vec::new();
        for _ in 0..RUNS {
            tickets.push(runner.submit(Job::Begin(gated::task())).await?);
        }
        for ticket in tickets {
            let driven = ticket.rest().await?.driven;
            ensure!(driven == Driven::Ended(EndReason::GoalCompleted), "a run ended as {driven:?}");
        }
        Ok(per_second(begun.elapsed().as_secs_f64()))
    })
}
