//! `files.replace`: other content for a file whose present content the caller can name.

use portcullis_canon::{Digest, Kind, Object};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::Root;
use serde::Deserialize;

use super::encoding::Encoding;
use super::read::MAX_FILE_BYTES;
use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.replace";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    expect: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Replaces the whole content of a file in one step. `expect` is the digest that `files.read` \
                      gave: when the file holds anything else by now, it stays as it is and this is an error. Gives \
                      the size and digest of what was written."
            .to_owned(),
        input_schema: schema::object(
            [
                ("path", schema::existing_path("the file to replace")),
                ("expect", schema::digest("the digest of the content that is to be replaced")),
                ("content", schema::content("the whole new content")),
                ("encoding", schema::encoding()),
            ],
            &["path", "expect", "content"],
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
    let Arguments { path, expect, content, encoding } = arguments::read(arguments)?;
    let path = arguments::path(&path)?;
    let expect = arguments::digest(&expect)?;
    let bytes = encoding.decode("content", &content)?;
    let expected = |present: &[u8]| Digest::of(Kind::File, present) == expect;
    root.replace(&path, MAX_FILE_BYTES, expected, &bytes)
        .map_err(|error| failure::of_change(&error))?;
    Ok(output::written(path.as_str(), &bytes))
}
