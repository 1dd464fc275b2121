//! In-memory and SQLite stores behind the store port.
