//! Integration tests: servers of our own starting and servers behind URLs, good ones and hostile ones.
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
mod http_calls;
mod http_opening;
mod http_scene;
mod listing;
mod login;
mod login_scene;
mod offers;
mod opening;
mod scene;
