//! Integration tests: servers of our own starting, good ones and hostile ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod calls;
mod family;
mod listing;
mod opening;
mod scene;
