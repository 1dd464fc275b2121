//! The SQLite store: its file, its schema, its connections.
//!
//! One ordinary thread writes: it takes all appends that wait, gives each a savepoint, and commits them
//! together. Reads run on connections and threads of their own, each in one transaction, so no caller ever
//! blocks on the disk. Other processes may write to the same file: the head of the journal is read inside
//! each write transaction, and what this process remembers is used only when nobody else has written.

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
mod schema;
mod sql;
mod store;
mod write;
mod writer;

pub use ddl::MIGRATIONS;
pub use store::{Opening, SqliteStore};
