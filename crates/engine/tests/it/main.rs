//! The gate and the driver over the in-memory store, with tools, people and time that a test decides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    unreachable_pub,
    reason = "a test that cannot go on has failed"
)]

mod world;

mod account;
mod admission;
mod advising;
mod approvals;
mod batches;
mod cancelled;
mod children;
mod conversations;
mod damaged;
mod diff;
mod doubles;
mod doubt;
mod drivers;
mod dropped;
mod edges;
mod erased;
mod forged;
mod grants;
mod leases;
mod limits;
mod recheck;
mod recovery;
mod registering;
mod requests;
mod runner;
mod same_input;
mod steps;
mod sweeping;
mod takeover;
mod trees;
mod unknown;
mod upkeep;
mod verbatim;
