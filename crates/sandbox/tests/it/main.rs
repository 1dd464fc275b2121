//! Integration tests: confined files, the confined child, process identity.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod agents;
mod bench_dir;
mod child_bounds;
mod child_life;
mod file_hostile;
mod file_owner;
mod file_races;
mod file_sweep;
mod file_verbs;
mod identity;
mod overlap;
