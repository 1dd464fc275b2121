//! The arguments that only the file tools take: paths, and digests of files.

use portcullis_canon::Digest;
use portcullis_domain::ports::ToolFailure;
use portcullis_sandbox::confined::RelPath;

use super::failure::{no_path, refused};
pub(super) use crate::arguments::{present, read};

/// The folder itself, as it is written in arguments.
pub(super) const HERE: &str = ".";

/// A path of something beneath the folder.
pub(super) fn path(text: &str) -> Result<RelPath, ToolFailure> {
    RelPath::parse(text).map_err(no_path)
}

/// A path of a folder, which may be the whole.
pub(super) fn folder(text: &str) -> Result<RelPath, ToolFailure> {
    if text.is_empty() || text == HERE { Ok(RelPath::root()) } else { path(text) }
}

/// A digest as `files.read` reports it.
pub(super) fn digest(text: &str) -> Result<Digest, ToolFailure> {
    text.parse().map_err(|error| refused(format!("`expect`: {error}")))
}

/// The default of a folder to look in.
pub(super) fn here() -> String {
    HERE.to_owned()
}
