//! Content: text, arguments and results, kept apart from the chained payloads that name them.
//!
//! A payload names content by a digest over a random salt and the bytes, and the salt lies beside the
//! bytes. Erasing both leaves a chain that verifies and a digest that confirms no guess.

use portcullis_canon::{Digest, Kind};
use serde::{Deserialize, Serialize};

use crate::ports::Entropy;

/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;

/// What a payload says of a content: its digest and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentRef {
    /// Digest over salt and bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
}

/// A content and its salt, as the content table holds them.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    salt: [u8; SALT_BYTES],
    bytes: Vec<u8>,
    reference: ContentRef,
}

impl Content {
    /// Salts and digests `bytes`.
    pub fn seal(bytes: Vec<u8>, entropy: &dyn Entropy) -> Self {
        let mut salt = [0_u8; SALT_BYTES];
        entropy.fill(&mut salt);
        Self::from_stored(salt, bytes)
    }

    /// What a table holds; the caller compares [`Content::reference`] with the one that it looked for.
    #[must_use]
    pub fn from_stored(salt: [u8; SALT_BYTES], bytes: Vec<u8>) -> Self {
        let digest = Digest::of_parts(Kind::Content, &[&salt, &bytes]);
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { salt, bytes, reference: ContentRef { digest, size } }
    }

    /// The digest and size that a payload names.
    #[must_use]
    pub const fn reference(&self) -> ContentRef {
        self.reference
    }

    /// The salt.
    #[must_use]
    pub const fn salt(&self) -> &[u8; SALT_BYTES] {
        &self.salt
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, taken.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl std::fmt::Debug for Content {
    /// Never the bytes: a log is not the record.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Content").field(&self.reference.digest).field(&self.reference.size).finish()
    }
}
