//! Integration tests: models against real sockets, recordings on a real disk, and the agent before a gate that the test plays and before the real one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod agent;
mod contract;
mod fake;
mod gate;
mod hostile;
mod render;
mod shapes;
mod tape;
mod verbatim;
