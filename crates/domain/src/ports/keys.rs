//! The port that knows who may answer: the operator's configuration of public keys.

use std::collections::BTreeSet;

use crate::approval::{Signature, Statement};

/// A person, as the operator's configuration names the owner of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reviewer {
    /// The person.
    pub person: String,
    /// Their roles.
    pub roles: Vec<String>,
}

/// Why a signed answer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// No configured key has that id.
    #[error("the answer is signed by a key that the configuration does not name")]
    UnknownKey,
    /// The key was revoked, or is outside its term.
    #[error("the answer is signed by a key that is revoked or outside its term")]
    NotValid,
    /// The signature is not the key's over this statement.
    #[error("the signature does not fit the answer")]
    BadSignature,
}

/// Checks signed answers against the configured public keys. It holds no private key.
pub trait ReviewerKeys: Send + Sync {
    /// Who signed.
    ///
    /// # Errors
    /// [`KeyRefusal`]; the answer then does not count.
    fn verify(&self, statement: &Statement, signature: &Signature) -> Result<Reviewer, KeyRefusal>;

    /// The people who have the role, with a key that counts now.
    fn people(&self, role: &str) -> BTreeSet<String>;
}
