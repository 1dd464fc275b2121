//! `files.move`: another name for a file or folder, never onto an existing one.

use portcullis_canon::{Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::Root;
use serde::Deserialize;

use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.move";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    from: String,
    to: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Moves or renames a file or a folder. `to` is the whole new path with the name, in a folder \
                      that exists; a name that is taken is an error."
            .to_owned(),
        input_schema: schema::object(
            [
                ("from", schema::existing_path("what to move")),
                ("to", schema::new_path("its new path")),
            ],
            &["from", "to"],
        ),
        effect: EffectClass::LocalMutation,
        source: false,
        sink: true,
        authority: vec!["/from".to_owned(), "/to".to_owned()],
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
    let Arguments { from, to } = arguments::read(arguments)?;
    let (from, to) = (arguments::path(&from)?, arguments::path(&to)?);
    root.rename(&from, &to).map_err(|error| failure::of_change(&error))?;
    Ok(output::done(Object::from_iter([
        ("from", Value::from(from.as_str())),
        ("to", Value::from(to.as_str())),
    ])))
}
