//! Integration tests: the file tools, and the HTTP tools over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod bench;
mod contract;
mod crash;
mod hostile;
mod http;
mod http_contract;
mod http_hostile;
mod opening;
mod races;
mod sweeping;
mod verbs;
mod web;
