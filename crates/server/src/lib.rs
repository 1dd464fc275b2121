//! Front doors that stay open: each call of a host passes the gate.
//!
//! [`proxy::Proxy`] is what an MCP host talks to. It is handed the parts of a gate, and serves their tools:
//!
//! ```
//! use std::sync::Arc;
//!
//! use portcullis_engine::{GateError, Parts};
//! use portcullis_domain::id::QuestionId;
//! use portcullis_domain::question::QuestionKind;
//! use portcullis_mcp::{ServeError, serve};
//! use portcullis_server::proxy::{Notes, Proxy, ProxyError, Servers, Settings, Wakes};
//!
//! struct Quiet;
//!
//! impl Notes for Quiet {
//!     fn asked(&self, _: QuestionId, _: QuestionKind, _: &str) {}
//!     fn fault(&self, _: &GateError) {}
//! }
//!
//! /// `wakes` observes the store of `parts`; `host` is one end of a connection.
//! async fn talk(parts: Parts, wakes: Arc<Wakes>, host: tokio::io::DuplexStream) -> Result<(), ServeError> {
//!     let proxy = Proxy::open(parts, Settings::of("ann"), wakes, Arc::new(Quiet), Servers::default());
//!     let Ok(proxy) = proxy else { return Ok(()) };
//!     let (read, write) = tokio::io::split(host);
//!     serve(Arc::new(proxy), read, write, std::future::pending()).await
//! }
//! # let _ = talk;
//! ```
//!
//! [`http::Listener`] lets hosts in that speak HTTP, on this machine and with a token. [`Landing`] takes the one answer that a
//! browser brings back from a login.
//!
//! It knows nothing of SQL, and nothing of the back ends behind the ports.

#![forbid(unsafe_code)]

pub mod http;
mod landing;
pub mod proxy;

pub use landing::Landing;
