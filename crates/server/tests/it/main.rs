//! The proxy over the in-memory store, with tools, people and time that a test decides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed"
)]

mod caller;
mod world;

mod asked;
mod bounded;
mod cut;
mod http;
mod offered;
mod repeated;
mod spoken;
mod told;
