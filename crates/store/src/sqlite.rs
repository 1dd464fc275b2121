//! The SQLite store: its file, its schema, its connections.
//!
//! One writer at a time commits all appends that wait together: an ordinary thread, or, where the host allows it, a
//! caller that finds nobody else ([`Committing`]). Each append is judged before it writes anything; one that fails while
//! it writes has the others written again without it. Reads run on connections and threads of their own, each in one
//! transaction.
//!
//! Other processes may write to the same file. Each write transaction first reads SQLite's count of commits by others
//! (`data_version`). When it has changed, the head of the journal and the oldest writer that is admitted are read
//! anew, and what was remembered of rows is forgotten.

mod cache;
mod ddl;
pub mod error;
mod fault;
mod files;
mod ledger;
mod lookup;
pub mod migrate;
pub mod open;
mod queue;
mod read;
mod readers;
mod same_file;
mod schema;
mod sql;
mod store;
mod task;
mod write;
mod writer;
mod writing;

pub use ddl::MIGRATIONS;
pub use store::{Opening, SqliteStore};
pub use writing::Committing;
