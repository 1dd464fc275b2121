//! `verify` in events a second, beside SQLite alone reading the same rows.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use portcullis::audit::verify::THREADS;
use portcullis::audit::{Options, verify};
use portcullis::domain::ports::Ledgers as _;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::figures::{load, median, ratio};
use crate::{figures, gated};

/// Steps of the one run that is verified; each has five events and two contents.
const STEPS: u64 = 10_000;

/// Bytes of a result.
const RESULT: usize = 100;

const ROUNDS: usize = 5;

/// Events that `verify` walks in a second.
const LEAST: f64 = 200_000.0;

/// Measures and prints. The pages are in memory by then, wherever `place` is.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## verify, a run of {STEPS} steps (events a second; load {})\n", load());
    let folder = tempfile::tempdir_in(place)?;
    let runtime = gated::runtime()?;
    let store = runtime.block_on(async {
        let store = gated::store(folder.path())?;
        let gate = gated::gate(store.clone(), RESULT)?;
        gated::drive(&gate, Box::new(gated::Worker { steps: STEPS })).await?;
        Ok::<_, anyhow::Error>(store)
    })?;
    let (mut ours, mut reading) = (Vec::new(), Vec::new());
    let (mut bytes, mut verified, mut busy) = (0, 0, Duration::ZERO);
    for _ in 0..ROUNDS {
        let (before, begun) = (figures::busy()?, Instant::now());
        let report = verify(store.begin_for(THREADS)?.as_mut(), Options::default())?;
        ours.push(per_second(report.events, begun));
        busy += figures::busy()?.saturating_sub(before);
        verified += report.events;
        ensure!(report.intact, "the record does not verify: {:?}", report.breaks);
        let begun = Instant::now();
        bytes = read(&folder.path().join(gated::FILE))?;
        reading.push(per_second(report.events, begun));
    }
    println!("verify       {:>9.0}", median(&ours));
    println!("reading alone {:>8.0}  ({} MiB of cells)", median(&reading), bytes >> 20);
    figures::at_least("events verified a second", median(&ours), LEAST);
    let ratios: Vec<f64> = reading.iter().zip(&ours).map(|(read, ours)| read / ours).collect();
    ratio("verify over SQLite alone reading the rows", median(&ratios), None);
    // Free of what else runs: 10 µs on two processors that nobody else wants are 200,000 events a second.
    ratio("processor microseconds per event verified", figures::each(busy, verified), None);
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "some ten thousand events")]
fn per_second(events: u64, begun: Instant) -> f64 {
    events as f64 / begun.elapsed().as_secs_f64()
}

/// Reads all cells of events and contents, and gives their bytes.
fn read(path: &Path) -> Result<u64> {
    // Without a lock for each call, as the connections of the store are.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    let mut bytes = 0_u64;
    for table in ["events ORDER BY journal_seq", "contents"] {
        let mut statement = conn.prepare(&format!("SELECT * FROM {table}"))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                let length = match row.get_ref(column)? {
                    ValueRef::Text(cell) | ValueRef::Blob(cell) => cell.len(),
                    ValueRef::Null => 0,
                    ValueRef::Integer(_) | ValueRef::Real(_) => 8,
                };
                bytes = bytes.saturating_add(u64::try_from(length)?);
            }
        }
    }
    Ok(bytes)
}
