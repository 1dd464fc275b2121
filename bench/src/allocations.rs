//! Allocations of a step, counted from outside: those of Rust and of SQLite together.
//!
//! Runs of three lengths: what the start allocates cancels out, and a step of the later part shows whether it stays flat.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::figures::ratio;
use crate::preload;

const SOURCE: &str = include_str!("count_allocations.c");

/// The program beside this one that allocates with the system's allocator.
const PROGRAM: &str = "allocations";

/// Steps of the three runs.
const LENGTHS: [u32; 3] = [100, 600, 1_100];

/// How much a later step may allocate more than an earlier one.
const MAX_SLOPE: f64 = 1.1;

/// Calls of the allocator, and bytes asked of it.
#[derive(Clone, Copy)]
struct Count {
    calls: f64,
    bytes: f64,
}

/// Counts and prints; what cannot be counted here is said.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## allocations of a step, SQLite's among them\n");
    let folder = tempfile::tempdir_in(place)?;
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    if !program.exists() {
        println!("skipped: build all programs first: cargo build --release -p portcullis-bench");
        return Ok(());
    }
    let Some(library) = preload::compiled(folder.path(), SOURCE)? else {
        println!("skipped: there is no C compiler for the counter");
        return Ok(());
    };
    for (bytes, name) in [(100, "100 B"), (8_192, "8 KiB")] {
        let mut counts = Vec::new();
        for steps in LENGTHS {
            let own = tempfile::tempdir_in(place)?;
            let mut child = Command::new(&program);
            child.arg(steps.to_string()).arg(own.path()).arg(bytes.to_string());
            counts.push(count(child.env("LD_PRELOAD", &library))?);
        }
        let [start, middle, end] = counts.as_slice() else { continue };
        let (early, late) = (per_step(start, middle), per_step(middle, end));
        println!(
            "results of {name:<6} {:>6.0} allocations, {:>7.1} KiB",
            late.calls,
            late.bytes / 1024.0
        );
        ratio(&format!("allocations per step, {name}"), late.calls, None);
        let name = format!("allocations of later steps over earlier ones, {name}");
        ratio(&name, late.calls / early.calls, Some(MAX_SLOPE));
    }
    Ok(())
}

fn per_step(few: &Count, more: &Count) -> Count {
    let [first, second, _] = LENGTHS.map(f64::from);
    let steps = second - first;
    Count { calls: (more.calls - few.calls) / steps, bytes: (more.bytes - few.bytes) / steps }
}

/// What the library of a child counted.
fn count(child: &mut Command) -> Result<Count> {
    let output = child.output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{told}");
    let line = told.lines().find_map(|line| line.strip_prefix("allocated "));
    let (calls, bytes) =
        line.and_then(|line| line.split_once(' ')).context("the counter was not loaded")?;
    Ok(Count { calls: calls.parse()?, bytes: bytes.parse()? })
}
