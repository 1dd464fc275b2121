//! What a step costs, beside bare commits of the same rows in the same minute.
//!
//! The agent is the clock: it is asked once a step, so the time from its answer to the next question is a step.
//! After each tenth step it lets the bare database write as many; both meet the same disk and the same neighbours.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use portcullis::domain::ports::{Agent, AgentFailure, BoxFuture, View};
use portcullis::domain::run::EndReason;

use crate::bare::{Bare, BareStep, Template};
use crate::figures::{load, median, micros, quantile, ratio};
use crate::gated;

/// Steps between two turns of the bare database.
const BLOCK: usize = 10;

/// Bare commits that one step may cost.
const MAX_COMMITS: f64 = 2.3;

/// Microseconds that it may cost beside them; where results are large, more.
const MAX_BESIDE: f64 = 50.0;
const MAX_BESIDE_LARGE: f64 = 150.0;

/// How much a step of a long run may cost more than one of a short run.
const MAX_SLOPE: f64 = 1.1;

/// Samples of one or more runs, block by block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// The times of steps in microseconds.
    steps: Vec<f64>,
    bare: Vec<BareStep>,
}

impl Samples {
    fn add(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.bare.extend(other.bare);
    }

    fn synced(&self) -> f64 {
        median(&self.bare.iter().flat_map(|bare| [bare.intent, bare.outcome]).collect::<Vec<_>>())
    }

    fn written(&self) -> f64 {
        median(&self.bare.iter().map(|bare| bare.written).collect::<Vec<_>>())
    }

    fn bare_whole(&self) -> f64 {
        median(&self.bare.iter().map(|bare| bare.whole()).collect::<Vec<_>>())
    }

    /// What a step costs that is no commit.
    fn beside(&self) -> f64 {
        median(&self.steps) - 2.0 * self.synced() - self.written()
    }

    /// The same from neighbours in time: the middle of the differences of each block.
    fn beside_by_block(&self) -> f64 {
        let blocks = self.steps.chunks(BLOCK).zip(self.bare.chunks(BLOCK));
        let differences: Vec<f64> = blocks
            .map(|(steps, bare)| {
                let bare: Vec<f64> = bare.iter().map(|bare| bare.whole()).collect();
                median(steps) - median(&bare)
            })
            .collect();
        median(&differences)
    }

    /// A step in bare steps: free of what the disk does meanwhile.
    fn relative(&self) -> f64 {
        median(&self.steps) / self.bare_whole()
    }
}

/// Answers at once, and keeps the time.
struct Timekeeper {
    left: u64,
    asked: Option<Instant>,
    bare: Option<Bare>,
    samples: Samples,
    kept: Arc<Mutex<Samples>>,
}

impl Timekeeper {
    fn answer(&mut self, request: u64) -> Result<Vec<u8>> {
        let now = Instant::now();
        if let Some(asked) = self.asked {
            self.samples.steps.push(micros(now - asked));
            if self.samples.steps.len().is_multiple_of(BLOCK)
                && let Some(bare) = &mut self.bare
            {
                for _ in 0..BLOCK {
                    self.samples.bare.push(bare.step()?);
                }
            }
        }
        let raw = if self.left == 0 {
            let samples = std::mem::take(&mut self.samples);
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = samples;
            gated::completion(request)
        } else {
            gated::proposal(request)
        };
        self.left = self.left.saturating_sub(1);
        self.asked = Some(Instant::now());
        Ok(raw)
    }
}

impl Agent for Timekeeper {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let answer = self.answer(view.request).map_err(|error| AgentFailure {
            reason: EndReason::AgentError,
            message: error.to_string(),
        });
        Box::pin(async { answer })
    }
}

/// Drives one run of this many steps, each with a result of `bytes`, in a new database in a folder of its own.
pub(crate) fn run(
    place: &Path,
    bytes: usize,
    steps: u64,
    template: Option<&Template>,
) -> Result<Samples> {
    let folder = tempfile::tempdir_in(place)?;
    let bare = template.map(|template| Bare::create(folder.path(), template)).transpose()?;
    let kept = Arc::new(Mutex::new(Samples::default()));
    let agent = Timekeeper {
        left: steps,
        asked: None,
        bare,
        samples: Samples::default(),
        kept: Arc::clone(&kept),
    };
    let runtime = gated::runtime()?;
    runtime.block_on(async {
        let gate = gated::gate(gated::store(folder.path())?, bytes)?;
        gated::drive(&gate, Box::new(agent)).await
    })?;
    let samples = kept.lock().map_err(|_| anyhow!("the agent panicked"))?.clone();
    Ok(samples)
}

/// The rows of a step with results of this size.
pub(crate) fn template(place: &Path, bytes: usize) -> Result<Template> {
    let folder = tempfile::tempdir_in(place)?;
    gated::runtime()?.block_on(async {
        let gate = gated::gate(gated::store(folder.path())?, bytes)?;
        gated::drive(&gate, Box::new(Pilot)).await
    })?;
    Template::taken(&folder.path().join(gated::FILE))
}

/// Three steps and the end.
pub(crate) struct Pilot;

impl Agent for Pilot {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let raw = match view.request {
            0..3 => gated::proposal(view.request),
            request => gated::completion(request),
        };
        Box::pin(async { Ok(raw) })
    }
}

/// Which limits a disk can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Syncs reach a device: what a step costs in commits. What it costs beside them drowns when others write too.
    Syncing,
    /// Files in memory, which sync for nothing: what a step costs beside its commits. A commit is too cheap there
    /// to be a unit.
    Memory,
}

impl Disk {
    /// As it is told.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Syncing => "on the disk",
            Self::Memory => "in memory, where a sync is free",
        }
    }
}

/// Measures runs of each length and prints what they cost.
pub(crate) fn report(place: &Path, disk: Disk, lengths: &[u64]) -> Result<()> {
    println!(
        "\n## steps beside bare commits of the same rows, {} (microseconds; load {})\n",
        disk.told(),
        load()
    );
    println!(
        "{:>7} {:>7} {:>6} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8}",
        "result",
        "steps",
        "runs",
        "step",
        "p10",
        "p99",
        "synced",
        "written",
        "commits",
        "beside",
        "by block"
    );
    for (bytes, name, limit) in
        [(100, "100 B", MAX_BESIDE), (1024, "1 KiB", MAX_BESIDE), (8192, "8 KiB", MAX_BESIDE_LARGE)]
    {
        size(place, disk, lengths, bytes, (name, limit))?;
    }
    println!("\nload {}", load());
    Ok(())
}

fn size(
    place: &Path,
    disk: Disk,
    lengths: &[u64],
    bytes: usize,
    (name, limit): (&str, f64),
) -> Result<()> {
    let template = template(place, bytes)?;
    let mut kept: Vec<(u64, Samples)> = Vec::new();
    // The short runs once before and once after the long ones, so that a drift of the machine meets both.
    for length in lengths.iter().chain(lengths.iter().rev()) {
        let runs = (1_000 / length).clamp(1, 40);
        let mut samples = Samples::default();
        for _ in 0..runs {
            samples.add(run(place, bytes, *length, Some(&template))?);
        }
        match kept.iter_mut().find(|(kept, _)| kept == length) {
            Some((_, kept)) => kept.add(samples),
            None => kept.push((*length, samples)),
        }
    }
    for (length, samples) in &kept {
        let runs = u64::try_from(samples.steps.len()).unwrap_or(0) / length;
        println!(
            "{name:>7} {length:>7} {runs:>6} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>9.1} {:>8.2} {:>8.1} {:>8.1}",
            median(&samples.steps),
            quantile(&samples.steps, 0.1),
            quantile(&samples.steps, 0.99),
            samples.synced(),
            samples.written(),
            median(&samples.steps) / samples.synced(),
            samples.beside(),
            samples.beside_by_block(),
        );
    }
    summary(disk, &kept, (name, limit));
    Ok(())
}

/// The ratios of one size of results.
fn summary(disk: Disk, kept: &[(u64, Samples)], (name, limit): (&str, f64)) {
    let mut all = Samples::default();
    kept.iter().for_each(|(_, samples)| all.add(samples.clone()));
    match disk {
        Disk::Syncing => {
            let (step, synced) = (median(&all.steps), all.synced());
            let commits = (step - limit) / synced;
            let what = format!("bare synced commits per step beside {limit} µs, {name}");
            ratio(&what, commits, Some(MAX_COMMITS));
            ratio(&format!("a whole step in bare synced commits, {name}"), step / synced, None);
            ratio(
                &format!("a bare step in bare synced commits, {name}"),
                all.bare_whole() / synced,
                None,
            );
        }
        Disk::Memory => {
            let beside = all.beside();
            ratio(
                &format!("microseconds beside the commits of a step, {name}"),
                beside,
                Some(limit),
            );
            ratio(&format!("a step in bare steps, {name}"), all.relative(), None);
            if let (Some((short, first)), Some((long, last))) = (kept.first(), kept.last()) {
                let slope = last.relative() / first.relative();
                let name = format!("{long} steps over {short}, each in bare steps, {name}");
                ratio(&name, slope, Some(MAX_SLOPE));
            }
        }
    }
}
