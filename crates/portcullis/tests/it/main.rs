//! Tests of the library's public face: what its documentation shows has to work, and a run survives its process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a test that cannot go on has failed"
)]

mod double_effect;
mod live_local;
mod shown;
