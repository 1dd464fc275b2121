//! Integration tests of the store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "tests unwrap, start themselves again as another user, and read files that they made"
)]

mod child;
mod file;
mod former;
mod memory;
mod open;
mod open_files;
mod open_migrate;
mod open_users;
mod power;
mod processes;
mod random;
mod sqlite;
mod worker;
