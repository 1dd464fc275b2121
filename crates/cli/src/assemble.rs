//! The only place where front doors and back ends are put together.

use std::sync::Arc;

use portcullis_audit::keys::{Keyring, SigningKey};
use portcullis_domain::ports::{Ledgers, Store};
use portcullis_engine::Parts;

use crate::args::Globals;
use crate::failure::{Code, Failure};

/// An open database: rows for people, raw tables for `verify`.
pub(crate) trait Database: Store + Ledgers {}

impl<T: Store + Ledgers> Database for T {}

/// The database to read. Nothing is created, upgraded or changed.
pub(crate) fn reader(_globals: &Globals) -> Result<Arc<dyn Database>, Failure> {
    Err(Failure::new(Code::Store, "not yet"))
}

/// The parts for what people do beside a run: the existing database to write, who may answer, no tools.
/// Needs a tokio runtime.
pub(crate) fn operator_parts(_globals: &Globals) -> Result<Parts, Failure> {
    Err(Failure::new(Code::Store, "not yet"))
}

/// The people who may answer: the configured reviewers, else the public keys in the key folder.
pub(crate) fn keyring(_globals: &Globals) -> Result<Keyring, Failure> {
    Err(Failure::new(Code::Store, "not yet"))
}

/// The key that signs this person's answers. Only `approve`, `reject` and `answer` ask for it.
pub(crate) fn reviewer_key(_globals: &Globals) -> Result<SigningKey, Failure> {
    Err(Failure::new(Code::Store, "not yet"))
}
