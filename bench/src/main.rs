//! Whole-program benches: what a step, a decision and the start of the command cost, as ratios to peers that are
//! measured beside them in the same minute.
//!
//! `cargo xtask bench [NAME]… [--quick] [--big=MIB] [--place=FOLDER]`
//!
//! The names: deciding, steps, wal, allocations, memory, crowd, slow, waiting, recovery, verify, proxied, start. Without one all are measured. `--quick` leaves out the longest runs, `--big` says
//! how large the large database is, `--place` puts the databases on another disk. Nothing is asserted: figures are for reading.
//!
//! Steps are measured twice. On the disk a step is told in synced commits; in memory, where a sync costs nothing, it
//! is told what it costs beside its commits, which on a disk that others use is smaller than the noise.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench reads the clock, starts programs and prints"
)]

mod allocations;
mod bare;
mod crowd;
mod deciding;
mod driver;
mod figures;
mod gated;
mod memory;
mod preload;
mod proxied;
mod recovery;
mod slow;
mod start;
mod steps;
mod verifying;
mod waiting;
mod wal;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::steps::Disk;

/// As in the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// What is measured, and how.
struct Choice {
    names: Vec<String>,
    quick: bool,
    big: Option<u64>,
    place: PathBuf,
}

const NAMES: [&str; 12] = [
    "deciding",
    "steps",
    "wal",
    "allocations",
    "memory",
    "crowd",
    "slow",
    "waiting",
    "recovery",
    "verify",
    "proxied",
    "start",
];

impl Choice {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut choice = Self { names: Vec::new(), quick: false, big: None, place: place()? };
        for argument in arguments {
            match argument.split_once('=') {
                Some(("--big", size)) => choice.big = Some(size.parse().context("--big=MIB")?),
                Some(("--place", folder)) => choice.place = PathBuf::from(folder),
                None if argument == "--quick" => choice.quick = true,
                None if NAMES.contains(&argument.as_str()) => choice.names.push(argument),
                _ => bail!(
                    "`{argument}` is none of {}, --quick, --big=MIB, --place=FOLDER",
                    NAMES.join(", ")
                ),
            }
        }
        Ok(choice)
    }

    fn has(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|chosen| chosen == name)
    }
}

/// The build folder's disk: a temporary folder may be memory, which syncs for nothing.
fn place() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("this program lies nowhere")?.to_path_buf())
}

/// What this program does when it was started by itself, or as a driver.
type Child = fn(&mut dyn Iterator<Item = String>) -> Result<()>;

fn child(word: &str) -> Option<Child> {
    Some(match word {
        proxied::SERVER => |rest| proxied::serve(rest),
        memory::CHILD => |rest| memory::child(rest),
        driver::CHILD => |rest| driver::child(rest),
        recovery::CHILD => |rest| recovery::child(rest),
        slow::CHILD => |rest| slow::child(rest),
        waiting::CHILD => |rest| waiting::child(rest),
        _ => return None,
    })
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    if let Some(child) = arguments.peek().and_then(|first| child(first)) {
        return child(&mut arguments.skip(1));
    }
    let choice = Choice::read(arguments)?;
    let lengths: &[u64] = if choice.quick { &[10, 100, 1_000] } else { &[10, 100, 1_000, 10_000] };
    let longest = lengths.last().copied().unwrap_or(10);
    if choice.has("deciding") {
        deciding::report()?;
    }
    let memory = Path::new(MEMORY);
    if choice.has("steps") {
        steps::report(&choice.place, Disk::Syncing, lengths)?;
        if memory.is_dir() {
            steps::report(memory, Disk::Memory, lengths)?;
        } else {
            println!("skipped: steps in memory, since there is no {MEMORY}");
        }
    }
    if choice.has("wal") {
        wal::report(&choice.place)?;
    }
    if choice.has("allocations") {
        allocations::report(if memory.is_dir() { memory } else { &choice.place })?;
    }
    if choice.has("memory") {
        memory::report(&choice.place, longest)?;
    }
    many(&choice)?;
    if choice.has("proxied") {
        proxied::report(&choice.place, memory.is_dir().then_some(memory))?;
    }
    if choice.has("start") {
        start::report(&choice.place, choice.big.unwrap_or(if choice.quick { 64 } else { 1024 }))?;
    }
    println!("\nload {}", figures::load());
    Ok(())
}

/// What is measured of many runs, or of a long record.
fn many(choice: &Choice) -> Result<()> {
    let memory = Path::new(MEMORY);
    if choice.has("crowd") {
        crowd::report(&choice.place)?;
    }
    if choice.has("slow") {
        if memory.is_dir() {
            slow::report(memory)?;
        } else {
            println!("skipped: slow syncs, since there is no {MEMORY}");
        }
    }
    if choice.has("waiting") {
        waiting::report(&choice.place)?;
    }
    if choice.has("recovery") {
        recovery::report(&choice.place)?;
    }
    if choice.has("verify") {
        verifying::report(if memory.is_dir() { memory } else { &choice.place })?;
    }
    Ok(())
}
