//! The SQLite store: its file, its schema, its connections.

pub mod error;
mod files;
pub mod migrate;
pub mod open;
mod schema;
