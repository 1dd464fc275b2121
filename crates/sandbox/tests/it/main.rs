//! Integration tests: confined files, the confined child, process identity.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod bench_dir;
mod file_hostile;
mod file_owner;
mod file_races;
mod file_verbs;
mod overlap;
