//! `files.make_folder`: a new, empty folder.

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::Root;
use serde::Deserialize;

use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.make_folder";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description:
            "Makes an empty folder in a folder that exists. A name that is taken is an error."
                .to_owned(),
        input_schema: schema::object([("path", schema::new_path("the folder to make"))], &["path"]),
        effect: EffectClass::LocalMutation,
        source: false,
        sink: true,
        authority: vec!["/path".to_owned()],
        deadline_ms: 30_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: output::MAX_RECEIPT,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

pub(super) fn call(root: &Root, arguments: &Object) -> Result<ToolOutput, ToolFailure> {
    let Arguments { path } = arguments::read(arguments)?;
    let path = arguments::path(&path)?;
    root.create_dir(&path).map_err(|error| failure::of_change(&error))?;
    Ok(output::done(Object::from_iter([("path", Value::from(path.as_str()))])))
}
