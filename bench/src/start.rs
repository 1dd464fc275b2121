//! How soon the command answers, beside the start of a program that does nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use portcullis::domain::row::Row as _;
use portcullis::domain::run::Run;
use rusqlite::{Connection, params};

use crate::figures::{load, median, micros, ratio};
use crate::{gated, steps};

const ROUNDS: usize = 50;

/// What `runs` may take on a large database, in milliseconds.
const MAX_RUNS_MS: f64 = 50.0;

/// Bytes of one content of the large database.
const CHUNK: u64 = 64 * 1024;

/// Runs in the large database.
const RUNS: u64 = 10_000;

/// Measures and prints; `big` is the size of the large database in MiB.
pub(crate) fn report(place: &Path, big: Option<u64>) -> Result<()> {
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
    if let Some(mebibytes) = big {
        fill(Path::new(&small), mebibytes)?;
        let size = std::fs::metadata(&small)?.len() >> 20;
        println!("\nthe database now has {size} MiB and {RUNS} runs");
        let times = alternate([("portcullis runs", run(&["--db", &small, "runs"]))])?;
        let time = times.first().map_or(f64::NAN, |(_, time)| *time);
        ratio(&format!("milliseconds of runs on {size} MiB"), time, Some(MAX_RUNS_MS));
    }
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
fn program() -> Result<PathBuf> {
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

/// Adds runs and contents, straight into the tables, until the database has about this size.
fn fill(path: &Path, mebibytes: u64) -> Result<()> {
    let conn = Connection::open(path)?;
    conn.execute_batch("PRAGMA synchronous = OFF; BEGIN IMMEDIATE")?;
    let rest: Vec<String> =
        Run::COLUMNS.iter().skip(1).map(|column| format!("\"{column}\"")).collect();
    let rest = rest.join(", ");
    conn.execute(
        &format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO runs (id, {rest}) SELECT randomblob(16), {rest} FROM n, (SELECT * FROM runs LIMIT 1)"
        ),
        [i64::try_from(RUNS)?],
    )?;
    let chunks = i64::try_from(mebibytes.saturating_mul(1 << 20) / CHUNK)?;
    conn.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO contents (digest, tenant, owner_kind, owner_id, owner_seq, salt, bytes)
         SELECT randomblob(32), tenant, owner_kind, owner_id, owner_seq, salt, randomblob(?2)
         FROM n, (SELECT * FROM contents LIMIT 1)",
        params![chunks, i64::try_from(CHUNK)?],
    )?;
    conn.execute_batch("COMMIT").context("the large database")?;
    Ok(())
}
