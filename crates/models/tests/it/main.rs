//! Integration tests: models against real sockets, recordings on a real disk, and the agent before a gate of its own.
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
mod hostile;
mod judged;
mod render;
mod shapes;
mod tape;
mod verbatim;
