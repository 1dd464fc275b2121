//! Reading arguments once more, closely: a permit's arguments passed the schema, and the types here do not trust that.

use portcullis_canon::{Digest, Object, Value, from_value};
use portcullis_domain::ports::ToolFailure;
use portcullis_sandbox::confined::RelPath;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

use super::failure::{no_path, refused};

/// The folder itself, as it is written in arguments.
pub(super) const HERE: &str = ".";

/// The arguments as their type.
pub(super) fn read<T: DeserializeOwned>(arguments: &Object) -> Result<T, ToolFailure> {
    from_value(&Value::Object(arguments.clone()))
        .map_err(|error| refused(format!("the arguments do not fit: {error}")))
}

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

/// Text that may be left out, and that is text when it is there: null is not taken for absent, since what it would
/// then leave out is a condition.
pub(super) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}
