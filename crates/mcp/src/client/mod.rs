//! The client: a server that is a program of our own starting, spoken to over its standard streams, or one behind a URL.
//!
//! [`Stdio::connect`] starts a program ([`process`]), [`Http::connect`] goes out by the product's one HTTP client
//! ([`http`]); both open the protocol ([`talk`]) and give a [`Session`](crate::Session). Every message of the server is
//! bounded, read by `canon`, and matched with what was asked ([`ledger`], [`sort`]) before `rmcp` sees of it what it
//! needs: the answers of the handshake, and of all others only that they came.

mod http;
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
mod sort;
mod stdio;
mod talk;
mod wire;

pub use http::{Http, HttpServer};
pub use line::MAX_LINE_BYTES;
pub use pages::{MAX_LISTING_BYTES, MAX_PAGES};
pub(crate) use result::{block, resource};
pub use server::StdioServer;
pub use stdio::Stdio;
