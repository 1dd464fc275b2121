//! Many runs beside one where each synced commit takes 2 ms, as on a network disk.
//!
//! The delay is a library that is compiled here and loaded before the C library: it waits in fsync and fdatasync. The
//! files are in memory, where the sync itself is free, so that the delay is all there is. One run alone proves that
//! the delay is there: it cannot be faster than its two synced commits a step allow.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use portcullis::store::sqlite::Committing;

use crate::figures::{at_least, load, median};
use crate::{crowd, preload};

/// The word that makes this program be the child.
pub(crate) const CHILD: &str = "slow-child";

const SOURCE: &str = include_str!("slow_sync.c");

/// The greatest rate that two delays of 2 ms a step leave to one run, in steps a second.
const MOST_ALONE: f64 = 250.0;

/// Runs at once.
const RUNS: u64 = 256;

const ROUNDS: usize = 3;

/// How many times one run's rate all together have to reach.
const LEAST: f64 = 20.0;

/// Measures and prints; `place` is in memory.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!(
        "\n## {RUNS} runs at once where a synced commit takes 2 ms (steps a second; load {})\n",
        load()
    );
    let folder = tempfile::tempdir_in(place)?;
    let Some(delay) = preload::compiled(folder.path(), SOURCE)? else {
        println!("skipped: there is no C compiler for the delay");
        return Ok(());
    };
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(rate(&delay, folder.path(), 1)?);
        together.push(rate(&delay, folder.path(), RUNS)?);
    }
    let fastest = alone.iter().copied().fold(0.0, f64::max);
    ensure!(fastest <= MOST_ALONE, "one run had {fastest:.0} steps a second: nothing was delayed");
    println!("one run  {:>7.0}", median(&alone));
    println!("{RUNS} runs {:>7.0}", median(&together));
    let ratios: Vec<f64> = together.iter().zip(&alone).map(|(all, one)| all / one).collect();
    at_least(&format!("{RUNS} runs over one, a sync of 2 ms"), median(&ratios), LEAST);
    Ok(())
}

/// The rate of this many runs in a process with the delay.
fn rate(delay: &Path, folder: &Path, runs: u64) -> Result<f64> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg(CHILD).arg(folder).arg(runs.to_string()).env("LD_PRELOAD", delay);
    let output = child.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)?.trim().parse().context("the child tells no rate")
}

/// The child: drives the runs and prints their rate.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let folder = arguments.next().context("where?")?;
    let runs: u64 = arguments.next().context("how many runs?")?.parse()?;
    // As the command has it for one run, and as a host has it that drives many.
    let (steps, committing) =
        if runs == 1 { (100, Committing::Caller) } else { (12, Committing::OwnThread) };
    println!("{:.3}", crowd::rate(Path::new(&folder), runs, steps, committing)?);
    Ok(())
}
