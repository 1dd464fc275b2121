//! In-memory and SQLite stores behind the store port.
//!
//! Both judge an append with the same pure code ([`admit`]), write the same rows and pass the same contract
//! suite. Nothing of an append that is refused is stored.
//!
//! ```
//! use portcullis_domain::ports::{Entropy, Ledgers};
//! use portcullis_domain::time::Timestamp;
//! use portcullis_store::memory::MemoryStore;
//! # struct Fixed;
//! # impl Entropy for Fixed {
//! #     fn fill(&self, bytes: &mut [u8]) {
//! #         bytes.fill(7);
//! #     }
//! # }
//! let store = MemoryStore::new(Timestamp::from_micros(0), &Fixed);
//! assert_eq!(store.begin()?.count("events")?, 1); // journal.opened
//! # Ok::<(), portcullis_domain::ports::StoreError>(())
//! ```
//!
//! It knows nothing of policies, tools, agents or signatures: it compares digests, it does not judge calls.

#![forbid(unsafe_code)]

pub mod admit;
pub mod memory;
mod observe;
pub mod sqlite;
mod state;
mod stored;
mod tables;
