//! `files.create`: a new file, never over another.

use portcullis_canon::Object;
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::Root;
use serde::Deserialize;

use super::encoding::Encoding;
use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.create";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Creates a file with this content in a folder that exists. Never overwrites: a name that is \
                      taken is an error. Gives the size and digest of what was written."
            .to_owned(),
        input_schema: schema::object(
            [
                ("path", schema::new_path("the file to create")),
                ("content", schema::content("the whole new content")),
                ("encoding", schema::encoding()),
            ],
            &["path", "content"],
        ),
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
    let Arguments { path, content, encoding } = arguments::read(arguments)?;
    let path = arguments::path(&path)?;
    let bytes = encoding.decode("content", &content)?;
    root.create(&path, &bytes).map_err(|error| failure::of_change(&error))?;
    Ok(output::written(path.as_str(), &bytes))
}
