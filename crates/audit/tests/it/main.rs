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
mod file;
mod forge;
mod grants;
mod intact;
mod keys;
mod lies;
mod raw;
mod scene;
mod sink;
mod tables;
mod tamper;
