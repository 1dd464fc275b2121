//! The files beneath one folder that the operator chose.
//!
//! Each verb stands in a file of its own with its spec and its call. All of them work on a held directory, so that
//! no path is checked and then used; what that refuses (links, pipes, devices, files with a second name elsewhere)
//! is a failure that says so, never a surprise.

mod arguments;
mod create;
mod delete;
mod failure;
mod list;
mod make_folder;
mod move_entry;
mod open;
mod output;
mod read;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test makes files as it likes"
)]
pub(crate) mod reference;
mod replace;
mod schema;
mod search;

use portcullis_canon::Object;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::ToolSpec;
use portcullis_sandbox::confined::Root;

use crate::encoding;

pub use list::MAX_ENTRIES;
pub use open::FilesError;
pub use read::{MAX_FILE_BYTES, MAX_READ_BYTES};
pub use search::MAX_MATCHES;

/// The tools on one folder: `files.list`, `files.read`, `files.search`, `files.create`, `files.replace`,
/// `files.move`, `files.make_folder` and `files.delete`.
#[derive(Debug)]
pub struct Files {
    root: Root,
    /// The folder as it is shown to a person: its path and its identity.
    target: String,
}

/// One tool: its name, what the gate is told about it, and what it does.
struct Verb {
    name: &'static str,
    spec: fn() -> ToolSpec,
    call: fn(&Root, &Object) -> Result<ToolOutput, ToolFailure>,
}

const VERBS: [Verb; 8] = [
    Verb { name: list::NAME, spec: list::spec, call: list::call },
    Verb { name: read::NAME, spec: read::spec, call: read::call },
    Verb { name: search::NAME, spec: search::spec, call: search::call },
    Verb { name: create::NAME, spec: create::spec, call: create::call },
    Verb { name: replace::NAME, spec: replace::spec, call: replace::call },
    Verb { name: move_entry::NAME, spec: move_entry::spec, call: move_entry::call },
    Verb { name: make_folder::NAME, spec: make_folder::spec, call: make_folder::call },
    Verb { name: delete::NAME, spec: delete::spec, call: delete::call },
];

impl Files {
    fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        let verb = VERBS.iter().find(|verb| verb.name == permit.tool());
        let verb = verb.ok_or_else(|| failure::refused("there is no such tool on files"))?;
        (verb.call)(&self.root, permit.arguments())
    }
}

impl ToolSource for Files {
    fn specs(&self) -> Vec<ToolSpec> {
        let pointed = |spec| ToolSpec { target: Some(self.target.clone()), ..spec };
        VERBS.iter().map(|verb| pointed((verb.spec)())).collect()
    }

    /// The kernel is waited for, disks included.
    fn blocks(&self) -> bool {
        true
    }

    /// Does everything in the first poll, and nothing before it.
    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.perform(&permit) })
    }
}
