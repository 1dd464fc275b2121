//! How soon the command answers, beside the start of a program that does nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use portcullis::store::sqlite::Committing;

use crate::crowd::{self, Crowd};
use crate::figures::{load, median, micros, ratio};
use crate::{gated, steps};

const ROUNDS: usize = 50;

/// What `runs` may take on a large database, in milliseconds.
const MAX_RUNS_MS: f64 = 50.0;

/// Runs of the large database for each MiB of it: ten thousand and some for a GiB.
const RUNS_PER_MIB: u64 = 10;

/// Steps of each of them; their results fill the database.
const STEPS: u64 = 4;

/// Measures and prints; `mebibytes` is the size of the large database.
pub(crate) fn report(place: &Path, mebibytes: u64) -> Result<()> {
    println!("\n## start of the command (milliseconds, medians of {ROUNDS}; load {})\n", load());
    let program = program()?;
    let folder = tempfile::tempdir_in(place)?;
    let small = database(folder.path())?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("HOME", folder.path());
        command
    };
    let small = small.to_string_lossy().into_owned();
    let cases = [
        ("true", Command::new("/bin/true")),
        ("portcullis --version", run(&["--version"])),
        ("portcullis runs", run(&["--db", &small, "runs"])),
    ];
    let times = alternate(cases)?;
    let nothing = times.first().map_or(f64::NAN, |(_, time)| *time);
    for (name, time) in times.iter().skip(1) {
        ratio(&format!("{name} over true"), time / nothing, None);
    }
    let runs = fill(folder.path(), mebibytes)?;
    let verified = run(&["--db", &small, "verify"]).stdout(Stdio::null()).status()?;
    ensure!(verified.success(), "the large database does not verify: {verified}");
    let size = std::fs::metadata(&small)?.len() >> 20;
    println!("the database has {size} MiB and {runs} runs, and is intact");
    let cases = [
        ("portcullis --version", run(&["--version"])),
        ("portcullis runs", run(&["--db", &small, "runs"])),
        ("portcullis runs --stuck", run(&["--db", &small, "runs", "--stuck"])),
        ("portcullis inbox", run(&["--db", &small, "inbox"])),
    ];
    let times = alternate(cases)?;
    let time = |place: usize| times.get(place).map_or(f64::NAN, |(_, time)| *time);
    ratio(&format!("milliseconds of runs on {size} MiB"), time(1), Some(MAX_RUNS_MS));
    ratio("runs on the large database over --version", time(1) / time(0), None);
    Ok(())
}

/// Runs the commands in turn and gives the median of each in milliseconds.
fn alternate<const N: usize>(
    mut cases: [(&'static str, Command); N],
) -> Result<Vec<(&'static str, f64)>> {
    let mut samples = vec![Vec::with_capacity(ROUNDS); N];
    for _ in 0..ROUNDS {
        for ((name, command), samples) in cases.iter_mut().zip(&mut samples) {
            let begun = Instant::now();
            let status = command.stdout(Stdio::null()).status()?;
            samples.push(micros(begun.elapsed()) / 1e3);
            ensure!(status.success(), "{name} ended with {status}");
        }
    }
    let names = cases.iter().map(|(name, _)| *name);
    let times: Vec<_> = names.zip(samples.iter().map(|samples| median(samples))).collect();
    for (name, time) in &times {
        println!("{name:<24} {time:>8.2}");
    }
    Ok(times)
}

/// The command beside this program, built the same way when cargo runs this.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--locked", "--quiet", "--package", "portcullis-cli"]);
        ensure!(build.status()?.success(), "the command does not build");
    }
    let own = std::env::current_exe()?;
    let program = own.with_file_name("portcullis");
    ensure!(program.exists(), "build the command first: cargo build --release -p portcullis-cli");
    Ok(program)
}

/// A database with one short run.
fn database(folder: &Path) -> Result<PathBuf> {
    gated::runtime()?.block_on(async {
        let gate = gated::gate(gated::store(folder)?, 1024)?;
        gated::drive(&gate, Box::new(steps::Pilot)).await
    })?;
    Ok(folder.join(gated::FILE))
}

/// Adds runs through the store's own port until the database has about this size: many runs at once, which share their
/// commits. What it makes is a record like any other, and `verify` says so.
fn fill(folder: &Path, mebibytes: u64) -> Result<u64> {
    let runs = mebibytes.saturating_mul(RUNS_PER_MIB);
    let bytes = usize::try_from((1 << 20) / RUNS_PER_MIB / STEPS)?;
    let crowd = Crowd { runs, places: 256, steps: STEPS, bytes, committing: Committing::OwnThread };
    let seconds = crowd::drive(folder, crowd)?;
    println!("\n{runs} runs were made and driven to their ends in {seconds:.1} s");
    Ok(runs)
}
