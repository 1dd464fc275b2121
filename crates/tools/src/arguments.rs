//! Reading arguments once more, closely: a permit's arguments passed the schema, and the types here do not trust that.

use portcullis_canon::{Object, Value, from_value};
use portcullis_domain::ports::ToolFailure;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};

/// The arguments as their type.
pub(crate) fn read<T: DeserializeOwned>(arguments: &Object) -> Result<T, ToolFailure> {
    from_value(&Value::Object(arguments.clone()))
        .map_err(|error| refused(format!("the arguments do not fit: {error}")))
}

/// Text that may be left out, and that is text when it is there: null is not taken for absent, since what it would
/// then leave out is a condition.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

/// A call that is not carried out, in the words of this crate.
pub(crate) fn refused(message: impl Into<String>) -> ToolFailure {
    ToolFailure::NothingHappened { message: message.into() }
}
