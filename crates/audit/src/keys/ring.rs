//! The people who may answer: public keys with their owners, roles and terms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use portcullis_domain::approval::{KeyId, Signature, Statement};
use portcullis_domain::label::Name;
use portcullis_domain::ports::{Clock, KeyRefusal, Reviewer, ReviewerKeys};
use portcullis_domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::public::{PublicFileError, PublicKey};
use crate::guarded::{FileError, Folder, Guard};

/// The role of whoever owns the installation, for keys that were made automatically.
const OPERATOR: &str = "operator";

/// The most public keys that one folder may hold.
const MAX_KEYS: usize = 1024;

/// One public key, as the operator's configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// The public key.
    pub key: PublicKey,
    /// Whose it is. One person may have several keys; they count once.
    pub person: String,
    /// Their roles.
    pub roles: Vec<String>,
    /// Answers before this instant do not count.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    /// Answers after this instant do not count.
    #[serde(default)]
    pub not_after: Option<Timestamp>,
    /// True when no answer counts any more, whatever time it states: for a key that somebody else may have. Calls
    /// that ran on its word then do not verify; a key that only goes out of use gets an end of its term.
    #[serde(default)]
    pub revoked: bool,
}

impl KeyEntry {
    /// A key without a term.
    pub fn new<R: Into<String>>(
        key: PublicKey,
        person: &str,
        roles: impl IntoIterator<Item = R>,
    ) -> Self {
        Self {
            key,
            person: person.to_owned(),
            roles: roles.into_iter().map(Into::into).collect(),
            not_before: None,
            not_after: None,
            revoked: false,
        }
    }

    fn valid_at(&self, at: Timestamp) -> bool {
        !self.revoked
            && self.not_before.is_none_or(|start| at >= start)
            && self.not_after.is_none_or(|end| at <= end)
    }
}

/// Why a set of public keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FileError),
    /// One of its files.
    #[error(transparent)]
    File(#[from] PublicFileError),
    /// One key stands twice, perhaps for two people.
    #[error("the key {key} stands twice; one key has one owner")]
    Twice {
        /// The key's id.
        key: KeyId,
    },
    /// A person or role without a usable name.
    #[error("a person or role of key {key} has no usable name: 1 to 128 plain bytes")]
    Named {
        /// The key's id.
        key: KeyId,
    },
    /// The term ends before it begins.
    #[error("the term of key {key} ends before it begins")]
    Term {
        /// The key's id.
        key: KeyId,
    },
}

/// The configured public keys. It holds no private key.
#[derive(Clone, Default)]
pub struct Keyring {
    keys: BTreeMap<KeyId, KeyEntry>,
    clock: Option<Arc<dyn Clock>>,
}

impl Keyring {
    /// The keys of these entries.
    ///
    /// # Errors
    /// [`KeyringError`] names the key that does not fit.
    pub fn new(entries: impl IntoIterator<Item = KeyEntry>) -> Result<Self, KeyringError> {
        let mut ring = Self::default();
        for entry in entries {
            ring.add(entry)?;
        }
        Ok(ring)
    }

    /// The public keys of a folder, as [`SigningKey::create`](super::SigningKey::create) leaves them: each
    /// `NAME.pub` is the key of person `NAME` with the role `operator`.
    ///
    /// # Errors
    /// [`KeyringError`], also when anybody else could have written the folder or one of the files.
    pub fn load_dir(path: &Path) -> Result<Self, KeyringError> {
        let folder = Folder::open(path, Guard::Readable)?;
        let mut ring = Self::default();
        for file in folder.names(".pub", MAX_KEYS)? {
            let key = PublicKey::read(&folder, &file)?;
            let person = file.strip_suffix(".pub").unwrap_or(&file);
            ring.add(KeyEntry::new(key, person, [OPERATOR]))?;
        }
        Ok(ring)
    }

    /// The same keys; [`ReviewerKeys::people`] then counts only those whose term includes the present.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Adds one key.
    ///
    /// # Errors
    /// [`KeyringError`] when it does not fit; nothing is added then.
    pub fn add(&mut self, entry: KeyEntry) -> Result<(), KeyringError> {
        let key = entry.key.id();
        let named = |name: &str| Name::new(name).is_ok();
        if !named(&entry.person) || !entry.roles.iter().all(|role| named(role)) {
            return Err(KeyringError::Named { key });
        }
        if let (Some(start), Some(end)) = (entry.not_before, entry.not_after)
            && end < start
        {
            return Err(KeyringError::Term { key });
        }
        if self.keys.contains_key(&key) {
            return Err(KeyringError::Twice { key });
        }
        self.keys.insert(key, entry);
        Ok(())
    }

    /// The entries, by key id.
    pub fn entries(&self) -> impl Iterator<Item = (&KeyId, &KeyEntry)> {
        self.keys.iter()
    }

    fn valid_now(&self, entry: &KeyEntry) -> bool {
        match &self.clock {
            Some(clock) => entry.valid_at(clock.now()),
            None => !entry.revoked,
        }
    }
}

impl ReviewerKeys for Keyring {
    fn verify(&self, statement: &Statement, signature: &Signature) -> Result<Reviewer, KeyRefusal> {
        let entry = self.keys.get(&statement.key).ok_or(KeyRefusal::UnknownKey)?;
        // The signature first: a forgery under a revoked key is still a forgery.
        if !entry.key.fits(&statement.message(), signature) {
            return Err(KeyRefusal::BadSignature);
        }
        if !entry.valid_at(statement.at) {
            return Err(KeyRefusal::NotValid);
        }
        Ok(Reviewer { person: entry.person.clone(), roles: entry.roles.clone() })
    }

    fn people(&self, role: &str) -> BTreeSet<String> {
        self.keys
            .values()
            .filter(|entry| entry.roles.iter().any(|r| r == role) && self.valid_now(entry))
            .map(|entry| entry.person.clone())
            .collect()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.values()).finish()
    }
}
