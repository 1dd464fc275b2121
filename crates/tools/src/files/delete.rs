//! `files.delete`: one file, or one empty folder, for good.

use portcullis_canon::{Digest, Kind as DigestKind, Object, Value};
use portcullis_domain::ports::{ToolFailure, ToolOutput};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_sandbox::confined::{Fault, FileError, Kind, RelPath, Root};
use serde::Deserialize;

use super::read::MAX_FILE_BYTES;
use super::{arguments, failure, output, schema};

pub(super) const NAME: &str = "files.delete";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    #[serde(default, deserialize_with = "arguments::present")]
    expect: Option<String>,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Deletes one file, or one folder that is empty. It cannot be put back. With `expect`, the \
                      digest that `files.read` gave, only a file that still holds that content is deleted."
            .to_owned(),
        input_schema: schema::object(
            [
                ("path", schema::existing_path("the file or empty folder to delete")),
                ("expect", schema::digest("the digest of the content that is to be deleted")),
            ],
            &["path"],
        ),
        effect: EffectClass::Destructive,
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
    let Arguments { path, expect } = arguments::read(arguments)?;
    let path = arguments::path(&path)?;
    let deleted = match expect {
        Some(expect) => delete_expected(root, &path, arguments::digest(&expect)?),
        None => delete_any(root, &path),
    };
    let kind = deleted.map_err(|error| failure::of_change(&error))?;
    Ok(output::done(Object::from_iter([
        ("path", Value::from(path.as_str())),
        ("deleted", Value::from(kind.word())),
    ])))
}

fn delete_expected(root: &Root, path: &RelPath, expect: Digest) -> Result<Kind, FileError> {
    let expected = |present: &[u8]| Digest::of(DigestKind::File, present) == expect;
    root.remove_file_if(path, MAX_FILE_BYTES, expected).map(|()| Kind::File)
}

/// The first attempt changes nothing when it finds a folder, so it also tells which of both it is.
fn delete_any(root: &Root, path: &RelPath) -> Result<Kind, FileError> {
    match root.remove_file(path) {
        Err(FileError { fault: Fault::NotRegular(Kind::Directory), .. }) => {
            root.remove_dir(path).map(|()| Kind::Directory)
        }
        other => other.map(|()| Kind::File),
    }
}
