//! Tests of the domain from outside: fixtures, the fold, and what must not compile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    unreachable_pub,
    reason = "a test that cannot go on has failed"
)]

mod batches;
mod compile_fail;
mod fixtures;
mod fold;
mod grant;
mod owed;
mod receipt;
mod vectors;
