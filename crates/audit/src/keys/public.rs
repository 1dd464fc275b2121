//! Public keys: their text, their id, and the strict check of a signature.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::VerifyingKey;
use portcullis_canon::{Digest, Kind};
use portcullis_domain::approval::{KeyId, Signature};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::guarded::{FileError, Folder, Guard, beside};

/// The most bytes that a key's file may have.
pub(super) const MAX_FILE_BYTES: usize = 1024;

const SCHEME: &str = "ed25519:";

/// A text that is not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a public key: expected `ed25519:` and 64 lower-case hexadecimal digits of a valid key"
)]
pub struct PublicKeyError;

/// Why a public key cannot be had from a file.
#[derive(Debug, thiserror::Error)]
pub enum PublicFileError {
    /// The file or its folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds something else.
    #[error(
        "`{path}` does not hold a public key: expected one line, `ed25519:` and 64 hexadecimal digits"
    )]
    Form {
        /// Where.
        path: String,
    },
}

/// An Ed25519 public key, written `ed25519:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`PublicKeyError`] when they are no point of the curve, or one of those few under which a signature
    /// can fit more than one message.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, PublicKeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| PublicKeyError)?;
        // A point has spellings that decompress alike; only the canonical one names a key.
        let canonical = key.to_edwards().compress().to_bytes() == *bytes;
        if key.is_weak() || !canonical { Err(PublicKeyError) } else { Ok(Self(key)) }
    }

    /// Opens a public key's file: one line, in a file and folder that nobody but this user can write.
    ///
    /// # Errors
    /// [`PublicFileError`] says what to put right.
    pub fn open(path: &Path) -> Result<Self, PublicFileError> {
        let (folder, name) = beside(path, Guard::Readable)?;
        Self::read(&folder, &name)
    }

    pub(super) fn read(folder: &Folder, name: &str) -> Result<Self, PublicFileError> {
        let bytes = folder.read(name, Guard::Readable, MAX_FILE_BYTES)?;
        std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.strip_suffix('\n').unwrap_or(text).parse().ok())
            .ok_or_else(|| PublicFileError::Form { path: folder.shown(name) })
    }

    pub(super) fn of(key: &ed25519_dalek::SigningKey) -> Self {
        Self(key.verifying_key())
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The key's name: the digest of its bytes.
    #[must_use]
    pub fn id(&self) -> KeyId {
        Digest::of(Kind::Key, self.as_bytes())
    }

    /// True when the signature is this key's over the message. Strict: one signature has one spelling.
    #[must_use]
    pub fn fits(&self, message: &[u8], signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.0.verify_strict(message, &signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let hex = text.strip_prefix(SCHEME).ok_or(PublicKeyError)?;
        let bytes = hex_bytes(hex.as_bytes()).ok_or(PublicKeyError)?;
        Self::from_bytes(&bytes)
    }
}

/// Exactly 64 lower-case hex digits.
pub(super) fn hex_bytes(hex: &[u8]) -> Option<[u8; 32]> {
    if hex.len() != 64 {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0_u8; 32];
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0, |sum, next| Some(sum << 4 | digit(*next)?))?;
    }
    Some(bytes)
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        let key = PublicKey::of(&ed25519_dalek::SigningKey::from_bytes(&[1; 32]));
        let text = key.to_string();
        assert_eq!(text.len(), 8 + 64);
        assert_eq!(text.parse(), Ok(key));
        for other in [
            text.to_uppercase(),
            text.replacen("ed25519:", "", 1),
            format!("{text} "),
            format!("{text}0"),
            text.replacen("ed25519:", "rsa:", 1),
            String::new(),
        ] {
            assert_eq!(other.parse::<PublicKey>(), Err(PublicKeyError), "{other}");
        }
    }

    #[test]
    fn weak_and_odd_points_are_refused() {
        // The neutral element, a point of order two, and the neutral element in a second spelling.
        let mut one = [0_u8; 32];
        one[0] = 1;
        let mut minus_one = [0xff_u8; 32];
        minus_one[0] = 0xec;
        minus_one[31] = 0x7f;
        let mut one_again = [0xff_u8; 32];
        one_again[0] = 0xee;
        one_again[31] = 0x7f;
        for bytes in [one, minus_one, one_again, [0; 32]] {
            assert_eq!(PublicKey::from_bytes(&bytes), Err(PublicKeyError));
        }
    }
}
