//! Tests of keys, heads and verification from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "tests fail by panicking"
)]

mod attacks;
mod forge;
mod intact;
mod keys;
mod scene;
mod sink;
mod tables;
mod tamper;
