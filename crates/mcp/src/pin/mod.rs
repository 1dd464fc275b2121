//! What an operator saw of a server's tools when they trusted them, and what of it is still true.
//!
//! A [`Manifest`] holds each tool as the server advertised it on the day of the pin.

mod manifest;
mod part;
mod server_name;

pub use manifest::{MAX_MANIFEST_BYTES, Manifest, ManifestError};
pub use part::{Part, PinnedTool};
pub use server_name::{ServerName, ServerNameError};
