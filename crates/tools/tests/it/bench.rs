//! A folder to test on, beside one that must stay out of reach, and calls in one line.

use std::fs;
use std::path::PathBuf;

use portcullis_canon::{Digest, Kind, Limits, Object, Schema, Value, parse};
use portcullis_domain::ports::{ToolFailure, ToolOutput, ToolSource};
use portcullis_testkit::block_on;
use portcullis_testkit::permit::permit_for;
use portcullis_tools::Files;
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) _folder: TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) files: Files,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        let outside = folder.path().join("outside");
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "outside").unwrap();
        let files = Files::open(&inside, std::slice::from_ref(&outside)).unwrap();
        Self { _folder: folder, inside, outside, files }
    }

    /// Writes a file beneath the folder, behind the tools' back.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.inside.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn on_disk(&self, path: &str) -> Vec<u8> {
        fs::read(self.inside.join(path)).unwrap()
    }

    /// Calls a tool as the gate does: arguments in JSON, checked against the schema, defaults filled in.
    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Result<ToolOutput, ToolFailure> {
        let arguments = parse(arguments.as_bytes(), &Limits::BARE).unwrap();
        let spec = self.files.specs().into_iter().find(|spec| spec.name == tool).unwrap();
        let schema = Schema::compile(&spec.input_schema).unwrap();
        schema.check(&arguments).unwrap();
        let Value::Object(filled) = schema.fill_defaults(arguments) else { panic!("an object") };
        self.unchecked(tool, filled)
    }

    /// Calls a tool with exactly these arguments.
    pub(crate) fn unchecked(
        &self,
        tool: &str,
        arguments: Object,
    ) -> Result<ToolOutput, ToolFailure> {
        block_on(self.files.call(permit_for(tool, arguments)))
    }

    /// The result of a call that succeeds.
    #[track_caller]
    pub(crate) fn ok(&self, tool: &str, arguments: &str) -> Value {
        let output = self.call(tool, arguments).unwrap();
        assert!(output.content.iter().all(|byte| *byte >= b' '), "a raw control character");
        parse(&output.content, &Limits::BARE).unwrap()
    }

    /// The message of a call that fails and proves that nothing happened; and nothing did.
    #[track_caller]
    pub(crate) fn no(&self, tool: &str, arguments: &str) -> String {
        let before = portcullis_testkit::tree::digest(&self.inside).unwrap();
        let message = nothing(self.call(tool, arguments));
        assert_eq!(portcullis_testkit::tree::digest(&self.inside).unwrap(), before, "{message}");
        message
    }

    /// No unfinished change lies anywhere beneath the folder.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let mut pending = vec![self.inside.clone()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name();
                assert!(!name.to_string_lossy().starts_with(".portcullis-tmp-"), "{name:?}");
                if entry.file_type().unwrap().is_dir() {
                    pending.push(entry.path());
                }
            }
        }
    }
}

/// The message of a failure that proves that nothing happened.
#[track_caller]
pub(crate) fn nothing(outcome: Result<ToolOutput, ToolFailure>) -> String {
    match outcome {
        Err(ToolFailure::NothingHappened { message }) => {
            assert!(!message.chars().any(char::is_control), "{message:?}");
            message
        }
        other => panic!("expected a failure without effect, got {other:?}"),
    }
}

/// The digest of a file with this content, as `files.read` reports it.
pub(crate) fn digest(content: impl AsRef<[u8]>) -> String {
    Digest::of(Kind::File, content.as_ref()).to_string()
}

/// The names of a listing, in its order.
pub(crate) fn names(listing: &Value) -> Vec<&str> {
    let entries = listing.get("entries").and_then(Value::as_array).unwrap();
    entries.iter().map(|entry| entry.get("name").and_then(Value::as_str).unwrap()).collect()
}
