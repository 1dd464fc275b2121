//! From a policy to a verdict: a pure function, compiled once, named by its digest.
//!
//! Today's policy is the class table: one outcome per effect class, and nothing that is not in it happens.
//!
//! ```
//! use portcullis_domain::ports::Policy;
//! use portcullis_domain::tool::EffectClass;
//! use portcullis_policy::{ClassTable, Outcome};
//!
//! let table = ClassTable::default().with(EffectClass::LocalMutation, Outcome::ask("operator", 1)?);
//! assert_ne!(table.id(), ClassTable::default().id());
//! # Ok::<(), portcullis_policy::RoleError>(())
//! ```
//!
//! It knows nothing of storage, network, clocks or people: facts are handed in, and stored with the verdict.

#![forbid(unsafe_code)]

mod class_table;

pub use class_table::{ClassTable, MAX_REVIEWERS, Outcome, RoleError};
