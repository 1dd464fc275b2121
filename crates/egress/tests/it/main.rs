//! The client against servers of this machine that behave, and that do not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests fail by panicking"
)]

mod bodies;
mod canary;
mod credentials;
mod destinations;
mod oauth;
mod proxying;
mod server;
mod slowness;
mod tls;
