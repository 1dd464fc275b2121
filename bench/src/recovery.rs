//! Taking up many runs of a process that was killed in the middle of their calls.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use portcullis::audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{BoxFuture, Page, ToolFailure, ToolOutput, ToolSource};
use portcullis::domain::scope::Scope;
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::engine::{Attached, Gate};
use portcullis::policy::{ClassTable, Outcome};
use portcullis::store::sqlite::Committing;
use portcullis::system::OsEntropy;

use crate::bare::Bare;
use crate::figures::{load, ratio};
use crate::{gated, steps};

/// The word that makes this program be the process that is killed.
pub(crate) const CHILD: &str = "recovery-child";

/// Runs that are in a call when the process dies.
const RUNS: u64 = 1_000;

/// How long it may take to take them up, in seconds.
const MAX_SECONDS: f64 = 5.0;

/// A tool whose calls never end; with the last of them its process dies.
struct Hangs {
    spec: ToolSpec,
    left: AtomicU64,
}

impl ToolSource for Hangs {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![self.spec.clone()]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async {
            if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                let own = rustix::process::getpid();
                let killed = rustix::process::kill_process(own, rustix::process::Signal::KILL);
                return Err(ToolFailure::Unknown { message: format!("{killed:?}") });
            }
            std::future::pending().await
        })
    }
}

/// Measures and prints.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## taking up {RUNS} runs of a killed process (load {})\n", load());
    let folder = tempfile::tempdir_in(place)?;
    let status = Command::new(std::env::current_exe()?).arg(CHILD).arg(folder.path()).status()?;
    ensure!(status.signal() == Some(9), "the process that should die ended with {status}");
    let runtime = gated::runtime()?;
    let begun = Instant::now();
    let waiting = runtime.block_on(recover(folder.path()))?;
    let took = begun.elapsed().as_secs_f64();
    ensure!(waiting == RUNS, "{waiting} of {RUNS} runs wait for a person");
    let beside = tempfile::tempdir_in(place)?;
    let mut bare = Bare::create(beside.path(), &steps::template(place, 100)?)?;
    let begun = Instant::now();
    for _ in 0..RUNS / 2 {
        bare.step()?;
    }
    let commits = begun.elapsed().as_secs_f64();
    println!("taken up            {took:>7.2} s, all of them now ask what became of the call");
    println!("bare synced commits {commits:>7.2} s, {RUNS} of them");
    ratio(&format!("seconds to take up {RUNS} crashed runs"), took, Some(MAX_SECONDS));
    ratio(&format!("taking up {RUNS} runs over as many bare commits"), took / commits, None);
    Ok(())
}

fn gate(folder: &Path) -> Result<Gate> {
    let store = gated::store_with(folder, Committing::OwnThread)?;
    let mut spec = gated::spec()?;
    spec.effect = EffectClass::RemoteMutation;
    spec.deadline_ms = 600_000;
    let tool = Hangs { spec, left: AtomicU64::new(RUNS) };
    let mut parts = gated::parts(store, Arc::new(tool))?;
    parts.policy =
        Arc::new(ClassTable::default().with(EffectClass::RemoteMutation, Outcome::Allow));
    let key = SigningKey::generate(&OsEntropy).public();
    parts.keys = Arc::new(Keyring::new([KeyEntry::new(key, "ann", ["operator"])])?);
    Ok(Gate::new(parts))
}

/// Opens the store and attaches all runs at once; gives how many wait for a person.
async fn recover(folder: &Path) -> Result<u64> {
    let gate = gate(folder)?;
    let scope = Scope::of_file_owner();
    let mut runs = Vec::new();
    loop {
        let page = Page { offset: u64::try_from(runs.len())?, limit: 100 };
        let rows = gate.parts().store.runs(&scope, None, page).await?;
        if rows.rows.is_empty() {
            break;
        }
        for row in rows.rows {
            runs.push(row.map_err(|damaged| anyhow!("{damaged:?}"))?.id);
        }
    }
    let mut tasks = Vec::new();
    for run in runs {
        let (gate, scope) = (gate.clone(), scope.clone());
        tasks.push(tokio::spawn(async move { gate.attach(&scope, run).await }));
    }
    let mut waiting = 0_u64;
    for task in tasks {
        let attached = task.await?.map_err(|e| anyhow!("{e}"))?;
        waiting = waiting.saturating_add(u64::from(matches!(attached, Attached::Waiting(_))));
    }
    Ok(waiting)
}

/// The child: all runs are in a call, and then it dies.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let folder = arguments.next().context("where?")?;
    gated::runtime()?.block_on(async {
        let gate = gate(Path::new(&folder))?;
        let mut tasks = Vec::new();
        for _ in 0..RUNS {
            let gate = gate.clone();
            let worker = gated::Worker { steps: 1 };
            tasks.push(tokio::spawn(async move { gated::drive(&gate, Box::new(worker)).await }));
        }
        for task in tasks {
            task.await??;
        }
        Err(anyhow!("it should not have lived"))
    })
}
