//! Ed25519 keys: one's own, kept in a file that nobody else can read, and those of the people who may answer.

mod public;
mod ring;
mod signing;

pub use public::{PublicFileError, PublicKey, PublicKeyError};
pub use ring::{KeyEntry, Keyring, KeyringError};
pub use signing::{KeyFileError, SigningKey};
