//! What an append costs beside the disk, on a file in memory.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::path::Path;

use portcullis_domain::ports::{Append, Durability, Store};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;
use portcullis_store::memory::MemoryStore;
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::block_on;
use portcullis_testkit::ports::SeededEntropy;
use portcullis_testkit::scenario::Scenario;

fn main() {
    divan::main();
}

/// A run that has begun, and the appends of its next steps.
fn steps(store: &dyn Store, count: usize) -> std::vec::IntoIter<Append> {
    let mut run = Scenario::new(1, store.instance());
    run.limits.max_steps = 1_000_000;
    block_on(store.append(&Scope::of_file_owner(), run.begin())).unwrap();
    (0..count).flat_map(|_| run.whole_step()).collect::<Vec<_>>().into_iter()
}

fn step(store: &dyn Store, appends: &mut std::vec::IntoIter<Append>, durability: Durability) {
    for mut append in appends.by_ref().take(3) {
        append.durability = durability;
        block_on(store.append(&Scope::of_file_owner(), append)).unwrap();
    }
}

fn sqlite(folder: &Path) -> SqliteStore {
    let entropy = SeededEntropy::new(1);
    let opening = Opening {
        now: Timestamp::from_micros(0),
        entropy: &entropy,
        observers: Vec::new(),
        committing: Committing::OwnThread,
    };
    SqliteStore::open(&folder.join("p.db"), OpenMode::CreateOrOpen, opening).unwrap()
}

const STEPS: u32 = 2_000;

/// Three appends, none synced: the writer's own work and the way to it and back.
#[divan::bench(sample_count = STEPS, sample_size = 1)]
fn step_written(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = sqlite(folder.path());
    let mut appends = steps(&store, 4_000);
    bencher.bench_local(|| step(&store, &mut appends, Durability::Written));
}

/// Three appends on the disk of the temporary folder, each synced.
#[divan::bench(sample_count = STEPS, sample_size = 1)]
fn step_synced(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite(folder.path());
    let mut appends = steps(&store, 4_000);
    bencher.bench_local(|| step(&store, &mut appends, Durability::Synced));
}

/// Three appends to the store in memory: admission alone, about.
#[divan::bench(sample_count = STEPS, sample_size = 1)]
fn step_in_memory(bencher: divan::Bencher<'_, '_>) {
    let store = MemoryStore::new(Timestamp::from_micros(0), &SeededEntropy::new(1));
    let mut appends = steps(&store, 4_000);
    bencher.bench_local(|| step(&store, &mut appends, Durability::Written));
}
