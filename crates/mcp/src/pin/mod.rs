//! What an operator saw of a server's tools when they trusted them, and what of it is still true.
//!
//! A [`Manifest`] holds each tool as the server advertised it on the day of the pin.

mod diff;
mod likeness;
mod manifest;
mod part;
mod server_name;
mod words;

pub use diff::{Change, ChangeKind, diff};
pub use likeness::Likeness;
pub use manifest::{MAX_MANIFEST_BYTES, Manifest, ManifestError};
pub use part::{Part, PinnedTool};
pub use server_name::{ServerName, ServerNameError};
