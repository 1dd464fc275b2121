//! The memory and the written bytes of a long run, measured in a process of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::figures::{self, ratio};
use crate::steps;

/// The word that makes this program be the child.
pub(crate) const CHILD: &str = "memory-child";

/// The most memory that a long run may take, in MiB.
const MAX_MIB: f64 = 64.0;

/// Bytes of a result.
const RESULT: usize = 8192;

/// Runs the child and prints what it says.
pub(crate) fn report(place: &Path, length: u64) -> Result<()> {
    println!("\n## memory of a run of {length} steps with 8 KiB results\n");
    let output = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(length.to_string())
        .arg(place)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let mut next =
        || numbers.next().context("a figure of the child is missing")?.context("no number");
    let (peak_kib, written) = (next()?, next()?);
    ratio(&format!("MiB at the peak, {length} steps of 8 KiB"), peak_kib / 1024.0, Some(MAX_MIB));
    ratio("KiB written per step of 8 KiB", written / 1024.0, None);
    Ok(())
}

/// The child: drives one run, then prints its peak memory in KiB and the bytes it wrote per step. A third argument is
/// the size of a result, for whoever profiles it.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let length: u64 = arguments.next().context("how many steps?")?.parse()?;
    let place = arguments.next().context("where?")?;
    let bytes = arguments.next().map_or(Ok(RESULT), |bytes| bytes.parse())?;
    steps::run(Path::new(&place), bytes, length, None)?;
    let peak_kib = figures::field("/proc/self/status", "VmHWM:")?;
    let written = figures::written()?;
    println!("{peak_kib} {}", written / length.max(1));
    Ok(())
}
