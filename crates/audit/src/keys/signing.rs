//! One's own key: drawn, kept in a file of mode 0600, opened with every check, wiped when dropped.

use std::fmt;
use std::path::Path;

use ed25519_dalek::Signer as _;
use portcullis_domain::approval::{KeyId, Signature, Statement};
use portcullis_domain::ports::Entropy;
use zeroize::Zeroizing;

use super::public::{MAX_FILE_BYTES, PublicFileError, PublicKey, hex_bytes};
use crate::guarded::{FileError, Folder, Guard, beside, check_name};

/// The first line of a private key's file.
const FORM: &[u8] = b"portcullis-private-key-v1\n";

/// Why a private key cannot be had from a file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file or its folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// What the file holds is not a private key of this program.
    #[error("`{path}` does not hold a private key of this program")]
    Form {
        /// Where.
        path: String,
    },
    /// The public key beside it is another one's.
    #[error("`{path}` is not the public key of the private key beside it")]
    OtherPublic {
        /// Where.
        path: String,
    },
}

/// An Ed25519 private key. No clone, no wire form; a debug print shows its id.
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// Draws a key that lies in no file.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut seed = Zeroizing::new([0_u8; 32]);
        entropy.fill(seed.as_mut());
        Self(ed25519_dalek::SigningKey::from_bytes(&seed))
    }

    /// Draws a key and keeps it: `NAME.key` and, for everybody's eyes, `NAME.pub`.
    ///
    /// The folder is made when it is missing; others can neither read nor write it.
    ///
    /// # Errors
    /// [`FileError::Exists`] when there is such a key: none is ever overwritten. Else whatever is wrong
    /// with name, folder or disk.
    pub fn create(folder: &Path, name: &str, entropy: &dyn Entropy) -> Result<Self, KeyFileError> {
        Self::create_as(folder, &Files::of_person(name)?, entropy)
    }

    /// Opens the key `NAME.key` of the folder, or draws it when there is none: for keys that nobody has
    /// to set up.
    ///
    /// # Errors
    /// As [`SigningKey::create`] and [`SigningKey::open`].
    pub fn open_or_create(
        folder: &Path,
        name: &str,
        entropy: &dyn Entropy,
    ) -> Result<Self, KeyFileError> {
        Self::open_or_create_as(folder, &Files::of_person(name)?, entropy)
    }

    /// Opens the host's own key, `host.head-key`, with which heads are signed, or draws it when there is none.
    ///
    /// Its names differ from those of people's keys, so that [`Keyring::load_dir`](super::Keyring::load_dir)
    /// never takes it for a reviewer's: whoever runs the gate can use it, and must not be able to approve.
    ///
    /// # Errors
    /// As [`SigningKey::create`] and [`SigningKey::open`].
    pub fn for_heads(folder: &Path, entropy: &dyn Entropy) -> Result<Self, KeyFileError> {
        Self::open_or_create_as(folder, &Files::of_host(), entropy)
    }

    fn create_as(
        folder: &Path,
        files: &Files,
        entropy: &dyn Entropy,
    ) -> Result<Self, KeyFileError> {
        let folder = Folder::make_private(folder)?;
        let key = Self::generate(entropy);
        folder.create(&files.private, &key.text())?;
        key.publish(&folder, files)?;
        Ok(key)
    }

    fn open_or_create_as(
        folder: &Path,
        files: &Files,
        entropy: &dyn Entropy,
    ) -> Result<Self, KeyFileError> {
        match Self::create_as(folder, files, entropy) {
            Err(KeyFileError::File(FileError::Exists { .. })) => {}
            other => return other,
        }
        let held = Folder::open(folder, Guard::Private)?;
        let key = Self::read(&held, &files.private)?;
        // Whoever drew it may have died between the two files.
        key.publish(&held, files)?;
        Ok(key)
    }

    /// Opens a private key's file: a plain file of this user, mode 0600, in a folder that nobody else can write.
    ///
    /// # Errors
    /// [`KeyFileError`] says what to put right.
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        let (folder, name) = beside(path, Guard::Readable)?;
        Self::read(&folder, &name)
    }

    fn read(folder: &Folder, name: &str) -> Result<Self, KeyFileError> {
        let text = folder.read(name, Guard::Private, MAX_FILE_BYTES)?;
        let seed = text
            .strip_prefix(FORM)
            .and_then(|rest| rest.strip_suffix(b"\n"))
            .and_then(hex_bytes)
            .map(Zeroizing::new)
            .ok_or_else(|| KeyFileError::Form { path: folder.shown(name) })?;
        Ok(Self(ed25519_dalek::SigningKey::from_bytes(&seed)))
    }

    fn text(&self) -> Zeroizing<Vec<u8>> {
        let seed = self.0.as_bytes();
        let mut text = Zeroizing::new(Vec::with_capacity(FORM.len() + 2 * seed.len() + 1));
        text.extend_from_slice(FORM);
        for byte in seed {
            for digit in [byte >> 4, byte & 15] {
                text.push(if digit < 10 { b'0' + digit } else { b'a' + (digit - 10) });
            }
        }
        text.push(b'\n');
        text
    }

    /// Puts the public key beside the private one, or checks the one that is there.
    fn publish(&self, folder: &Folder, files: &Files) -> Result<(), KeyFileError> {
        let file = &files.public;
        match folder.create(file, format!("{}\n", self.public()).as_bytes()) {
            Err(FileError::Exists { .. }) => match PublicKey::read(folder, file) {
                Ok(there) if there == self.public() => Ok(()),
                Err(PublicFileError::File(error)) => Err(error.into()),
                Ok(_) | Err(PublicFileError::Form { .. }) => {
                    Err(KeyFileError::OtherPublic { path: folder.shown(file) })
                }
            },
            other => Ok(other?),
        }
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey::of(&self.0)
    }

    /// The key's name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.public().id()
    }

    /// Signs a person's answer. A statement that names another key gets a signature that nobody accepts.
    #[must_use]
    pub fn sign(&self, statement: &Statement) -> Signature {
        self.sign_message(&statement.message())
    }

    /// Signs bytes that begin with the domain of what they say.
    pub(crate) fn sign_message(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message).to_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.id()).finish()
    }
}

/// The names of a key's two files.
struct Files {
    private: String,
    public: String,
}

impl Files {
    fn of_person(name: &str) -> Result<Self, FileError> {
        let files = Self { private: format!("{name}.key"), public: format!("{name}.pub") };
        check_name(name)?;
        check_name(&files.private)?;
        Ok(files)
    }

    fn of_host() -> Self {
        Self { private: "host.head-key".to_owned(), public: "host.head-pub".to_owned() }
    }
}
