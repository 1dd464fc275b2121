//! The memory that runs take which wait for a person, measured in a process of its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use portcullis::audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis::domain::scope::Scope;
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::engine::{Driven, Driving, Gate};
use portcullis::store::sqlite::Committing;
use portcullis::system::OsEntropy;

use crate::figures::{field, load, ratio};
use crate::gated;

/// The word that makes this program be the child.
pub(crate) const CHILD: &str = "waiting-child";

/// Runs that wait.
const RUNS: u64 = 10_000;

/// Runs that wait before the first look, so that what a process has once is not counted.
const FIRST: u64 = 512;

/// Runs that are begun at once.
const TOGETHER: u64 = 256;

/// What all of them may take, in MiB.
const MAX_MIB: f64 = 50.0;

/// A tool that changes something elsewhere, so that the default rules ask; it is never called.
struct Asked(ToolSpec);

impl ToolSource for Asked {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.0.clone()]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        let message = "nobody said yes".to_owned();
        Box::pin(async { Err(ToolFailure::Abort { message }) })
    }
}

/// Runs the child and prints what it says.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## memory of {RUNS} runs that wait (load {})\n", load());
    let folder = tempfile::tempdir_in(place)?;
    let output = Command::new(std::env::current_exe()?).arg(CHILD).arg(folder.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let mut next =
        || numbers.next().context("a figure of the child is missing")?.context("no number");
    let (first, all) = (next()?, next()?);
    println!("with {FIRST:>6} runs {:>7.1} MiB", first / 1024.0);
    println!("with {:>6} runs {:>7.1} MiB", FIRST.saturating_add(RUNS), all / 1024.0);
    ratio(&format!("MiB that {RUNS} waiting runs add"), (all - first) / 1024.0, Some(MAX_MIB));
    Ok(())
}

/// The child: prints its memory in KiB with the first runs, and with all.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let folder = arguments.next().context("where?")?;
    gated::runtime()?.block_on(async {
        let store = gated::store_with(Path::new(&folder), Committing::OwnThread)?;
        let mut spec = gated::spec()?;
        spec.effect = EffectClass::RemoteMutation;
        let mut parts = gated::parts(store, Arc::new(Asked(spec)))?;
        let key = SigningKey::generate(&OsEntropy).public();
        parts.keys = Arc::new(Keyring::new([KeyEntry::new(key, "ann", ["operator"])])?);
        let gate = Gate::new(parts);
        park(&gate, FIRST).await?;
        let first = field("/proc/self/status", "VmRSS:")?;
        park(&gate, RUNS).await?;
        println!("{first} {}", field("/proc/self/status", "VmRSS:")?);
        Ok(())
    })
}

/// Begins this many runs, each of which then waits.
async fn park(gate: &Gate, runs: u64) -> Result<()> {
    let mut begun = 0;
    while begun < runs {
        let mut tasks = Vec::new();
        for _ in 0..TOGETHER.min(runs.saturating_sub(begun)) {
            let gate = gate.clone();
            tasks.push(tokio::spawn(async move { one(&gate).await }));
            begun = begun.saturating_add(1);
        }
        for task in tasks {
            task.await??;
        }
    }
    Ok(())
}

async fn one(gate: &Gate) -> Result<()> {
    let held = gate.begin(&Scope::of_file_owner(), gated::task()).await;
    let agent = Box::new(gated::Worker { steps: 1 });
    let driving = Driving::start(held.map_err(|e| anyhow!("{e}"))?, agent).await;
    let driven = driving.map_err(|e| anyhow!("{e}"))?.finished().await;
    let driven = driven.map_err(|e| anyhow!("{e}"))?;
    ensure!(matches!(driven, Driven::Waiting(_)), "the run does not wait: {driven:?}");
    Ok(())
}
