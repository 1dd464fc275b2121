//! In-memory and SQLite stores behind the store port.
#![forbid(unsafe_code)]

pub mod sqlite;
