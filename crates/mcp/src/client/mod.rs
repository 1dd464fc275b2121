//! The client: a server that is a program of our own starting, spoken to over its standard streams.
//!
//! [`Stdio::connect`] starts it ([`process`]), opens the protocol ([`stdio`]) and gives a [`Session`](crate::Session).
//! Every line of the server is bounded, read by `canon`, and matched with what was asked ([`ledger`]) before `rmcp`
//! sees of it what it needs: the answers of the handshake, and of all others only that they came.

mod ledger;
mod line;
mod pages;
mod pipes;
mod process;
mod reach;
mod request;
mod result;
mod room;
mod server;
mod stdio;
mod wire;

pub use line::MAX_LINE_BYTES;
pub use pages::{MAX_LISTING_BYTES, MAX_PAGES};
pub use server::StdioServer;
pub use stdio::Stdio;
