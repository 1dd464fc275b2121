//! Integration tests of the crate's public face, one module a subject.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod accept;
mod bridge;
mod digests;
mod draw;
mod fuzz;
mod numbers;
mod oracle;
mod sanitize;
mod schema;
mod stack;
mod vectors;
