//! Heads: signed statements of where a journal ends, kept where its writer cannot reach.
//!
//! ```
//! use portcullis_audit::{head::Head, keys::SigningKey};
//! use portcullis_domain::{id::{InstanceId, JournalId}, stream::Tip, time::Timestamp};
//! # struct Fixed;
//! # impl portcullis_domain::ports::Entropy for Fixed {
//! #     fn fill(&self, bytes: &mut [u8]) { bytes.fill(7); }
//! # }
//! let key = SigningKey::generate(&Fixed);
//! let journal = JournalId::from_bytes([2; 16]);
//! let tip = Tip { seq: 7, hash: portcullis_canon::Digest::ZERO };
//! let at = Timestamp::from_micros(0);
//! let head = Head::sign(InstanceId::from_bytes([1; 16]), journal, tip, at, &key);
//! let read = Head::read(head.line().as_bytes())?;
//! assert_eq!(read, head);
//! read.check(&key.public())?;
//! # Ok::<(), portcullis_audit::head::HeadError>(())
//! ```

mod compare;
mod sink;

use portcullis_canon::{Digest, Kind, Limits, Object, Value, from_slice};
use portcullis_domain::approval::{KeyId, Signature};
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::stream::Tip;
use portcullis_domain::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use compare::{HeadResult, compare_head, tips};
pub use sink::{FileSink, FnSink, HeadSink, Kept, SinkError, read_heads};

use crate::keys::{PublicKey, SigningKey};

/// The longest line that can be a head.
const MAX_LINE_BYTES: usize = 4096;

/// A signed statement of where a journal ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The installation.
    pub instance: InstanceId,
    /// The journal.
    pub journal: JournalId,
    /// How many events it has, more than zero.
    pub seq: u64,
    /// The hash of the last one.
    pub hash: Digest,
    /// When the statement was made.
    pub at: Timestamp,
    /// The key that signs: the host's own, no reviewer's.
    pub key: KeyId,
    /// The signature over all of it.
    pub signature: Signature,
}

/// Why a head proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The text is not a head.
    #[error("not a head: expected one line of canonical JSON as this program writes it")]
    Form,
    /// Another key signed it.
    #[error("the head is signed by another key")]
    OtherKey,
    /// The signature does not fit.
    #[error("the signature does not fit the head")]
    BadSignature,
}

impl Head {
    /// States where a journal ends.
    #[must_use]
    pub fn sign(
        instance: InstanceId,
        journal: JournalId,
        tip: Tip,
        at: Timestamp,
        key: &SigningKey,
    ) -> Self {
        let unsigned = Signature([0; 64]);
        let Tip { seq, hash } = tip;
        let head = Self { instance, journal, seq, hash, at, key: key.id(), signature: unsigned };
        Self { signature: key.sign_message(&head.message()), ..head }
    }

    /// Checks that this key signed it.
    ///
    /// # Errors
    /// [`HeadError`] when it did not.
    pub fn check(&self, key: &PublicKey) -> Result<(), HeadError> {
        if self.key != key.id() {
            Err(HeadError::OtherKey)
        } else if key.fits(&self.message(), &self.signature) {
            Ok(())
        } else {
            Err(HeadError::BadSignature)
        }
    }

    /// One line of canonical JSON, without the line's end.
    #[must_use]
    pub fn line(&self) -> String {
        let mut object = self.object();
        object.insert("signature", self.signature.hex());
        Value::Object(object).to_canonical_string()
    }

    /// Reads such a line.
    ///
    /// # Errors
    /// [`HeadError::Form`] for anything else, another spelling of the same head included.
    pub fn read(line: &[u8]) -> Result<Self, HeadError> {
        let limits = Limits::BARE.with_max_bytes(MAX_LINE_BYTES);
        let head: Self = from_slice(line, &limits).map_err(|_| HeadError::Form)?;
        let same = head.seq > 0 && head.line().as_bytes() == line;
        if same { Ok(head) } else { Err(HeadError::Form) }
    }

    fn object(&self) -> Object {
        let mut object = Object::new();
        object.insert("instance", self.instance.to_string());
        object.insert("journal", self.journal.to_string());
        object.insert("seq", self.seq);
        object.insert("hash", self.hash.to_string());
        object.insert("at", self.at.to_string());
        object.insert("key", self.key.to_string());
        object
    }

    /// The bytes that are signed.
    fn message(&self) -> Vec<u8> {
        let mut message = b"portcullis/head/v1\0".to_vec();
        let digest = Digest::of_value(Kind::Head, &Value::Object(self.object()));
        message.extend_from_slice(digest.as_bytes());
        message
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    struct Fixed(u8);

    impl portcullis_domain::ports::Entropy for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    fn head(key: &SigningKey) -> Head {
        let tip = Tip { seq: 3, hash: Digest::of(Kind::Event, b"e") };
        let (instance, journal) = (InstanceId::from_bytes([1; 16]), JournalId::from_bytes([2; 16]));
        Head::sign(instance, journal, tip, Timestamp::from_micros(5), key)
    }

    #[test]
    fn each_part_is_signed() {
        let (key, other) = (SigningKey::generate(&Fixed(1)), SigningKey::generate(&Fixed(2)));
        let base = head(&key);
        assert_eq!(base.check(&key.public()), Ok(()));
        assert_eq!(base.check(&other.public()), Err(HeadError::OtherKey));
        let named = Head { key: other.id(), ..base.clone() };
        assert_eq!(named.check(&other.public()), Err(HeadError::BadSignature));
        for changed in [
            Head { instance: InstanceId::from_bytes([9; 16]), ..base.clone() },
            Head { journal: JournalId::from_bytes([9; 16]), ..base.clone() },
            Head { seq: 2, ..base.clone() },
            Head { hash: Digest::ZERO, ..base.clone() },
            Head { at: Timestamp::from_micros(6), ..base.clone() },
            Head { signature: Signature([7; 64]), ..base.clone() },
        ] {
            assert_eq!(changed.check(&key.public()), Err(HeadError::BadSignature), "{changed:?}");
        }
    }

    #[test]
    fn only_the_line_as_written_is_read() {
        let line = head(&SigningKey::generate(&Fixed(1))).line();
        assert!(Head::read(line.as_bytes()).is_ok());
        for text in [
            String::new(),
            "{}".to_owned(),
            format!(" {line}"),
            format!("{line}\n"),
            line.replace(":3", ":3.0"),
            line.replace(":3", ":0"),
            line.replace("\"seq\"", "\"more\":1,\"seq\""),
            " ".repeat(5000),
        ] {
            assert_eq!(Head::read(text.as_bytes()), Err(HeadError::Form), "{text}");
        }
    }
}
