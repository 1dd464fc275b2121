//! What a step adds to the write-ahead log, beside the same rows written by SQLite alone.
//!
//! Two runs differ by some steps and their logs by what these added. Both are short, so that nothing is taken back from
//! the log into the database meanwhile.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::bare::Bare;
use crate::figures::ratio;
use crate::{gated, steps};

/// Steps of the two runs.
const FEW: u64 = 4;
const MORE: u64 = 20;

/// The log is taken back when it has 1,000 pages of 8 KiB.
const WHOLE: u64 = 1_000 * 8_192;

/// Measures and prints.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## bytes that a step adds to the write-ahead log\n");
    for (bytes, name) in [(100, "100 B"), (1024, "1 KiB"), (8192, "8 KiB")] {
        let ours = per_step(gated_log(place, bytes, MORE)?, gated_log(place, bytes, FEW)?);
        let bare = per_step(bare_log(place, bytes, MORE)?, bare_log(place, bytes, FEW)?);
        println!("results of {name:<6} gate {ours:>7.1} KiB, SQLite alone {bare:>7.1} KiB");
        ratio(&format!("KiB of log per step, {name}"), ours, None);
        ratio(&format!("log of a step over that of bare rows, {name}"), ours / bare, None);
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "some megabytes")]
fn per_step(more: u64, few: u64) -> f64 {
    more.saturating_sub(few) as f64 / 1024.0 / (MORE - FEW) as f64
}

fn gated_log(place: &Path, bytes: usize, steps: u64) -> Result<u64> {
    let folder = tempfile::tempdir_in(place)?;
    gated::runtime()?.block_on(async {
        // The last connection takes the log away, so it is looked at while the store is open.
        let store = gated::store(folder.path())?;
        let gate = gated::gate(store.clone(), bytes)?;
        gated::drive(&gate, Box::new(gated::Worker { steps })).await?;
        log(&folder.path().join(gated::FILE))
    })
}

fn bare_log(place: &Path, bytes: usize, count: u64) -> Result<u64> {
    let folder = tempfile::tempdir_in(place)?;
    let mut bare = Bare::create(folder.path(), &steps::template(place, bytes)?)?;
    for _ in 0..count {
        bare.step()?;
    }
    log(&folder.path().join("bare.db"))
}

fn log(database: &Path) -> Result<u64> {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    let length = std::fs::metadata(name)?.len();
    ensure!(length < WHOLE, "the log was taken back: {length} bytes");
    Ok(length)
}
