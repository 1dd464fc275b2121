//! The whole command, as a process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and start the command"
)]

mod bad_input;
mod bank;
mod batch;
mod canary;
mod confined;
mod crash;
mod crowd;
mod decide;
mod diff;
mod egress;
mod endings;
mod explain;
mod faults;
mod home;
mod hook;
mod hosts;
mod http;
mod json_fields;
mod launching;
mod listen;
mod login;
mod mcp;
mod mcp_http;
mod model;
mod official;
mod provider;
mod proxy;
mod recheck;
mod same_verdict;
mod scene;
mod setup;
mod spend;
mod stopped;
mod tree;
mod verify;
mod view;
mod watch;
