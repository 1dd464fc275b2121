//! What an operator saw of a server's tools when they trusted them, and what of it is still true.
//!
//! A [`Manifest`] holds each tool as the server advertised it on the day of the pin; [`ToolRule`] is what the operator
//! says of one; [`load`] makes the tools that can be called of both and of what the server offers now, and a
//! [`LoadReport`] of all; [`diff`] tells two manifests apart in words.

mod diff;
mod files;
mod hints;
mod likeness;
mod load;
mod manifest;
mod part;
mod report;
mod rule;
mod server_name;
mod shape;
pub(crate) mod words;

pub use diff::{Change, ChangeKind, diff};
pub use files::{FileFault, MAX_PINNED_FILE_BYTES, MAX_PINNED_FILES, PinnedFiles};
pub use likeness::Likeness;
pub use load::{Loaded, LoadedTool, OtherServer, Terms, load, load_pinned};
pub use manifest::{MAX_MANIFEST_BYTES, Manifest, ManifestError};
pub use part::{Part, PinnedTool};
pub use report::{Fate, LoadReport, Refused, ReportLine, Severity};
pub use rule::ToolRule;
pub use server_name::{ServerName, ServerNameError};
pub use shape::ShapeError;
