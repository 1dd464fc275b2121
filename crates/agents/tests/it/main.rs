//! Integration tests: a script, and programs that speak the agent protocol well, badly, or not at all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod conversation;
mod dropped;
mod examples;
mod faults;
mod programs;
mod scripted;
