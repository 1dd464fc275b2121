//! Chain verification, signed heads, and keys.
//!
//! A record is worth what somebody else can check. This crate signs answers and heads ([`keys`]), says
//! where a journal ended ([`head`]), and walks a whole store again to find what was changed behind the
//! gate's back ([`verify`]).
//!
//! ```
//! use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
//! use portcullis_domain::ports::{Entropy, ReviewerKeys};
//!
//! struct Fixed;
//! impl Entropy for Fixed {
//!     fn fill(&self, bytes: &mut [u8]) {
//!         bytes.fill(7);
//!     }
//! }
//!
//! let key = SigningKey::generate(&Fixed);
//! let entry = KeyEntry::new(key.public(), "ann", ["operator"]);
//! let ring = Keyring::new([entry])?;
//! assert_eq!(ring.people("operator").len(), 1);
//! # Ok::<(), portcullis_audit::keys::KeyringError>(())
//! ```
//!
//! It knows nothing of the engine, of SQL, of agents or of policies, and it never reads a clock.

#![forbid(unsafe_code)]

mod guarded;

pub mod keys;

pub mod head;
pub mod verify;

pub use guarded::FileError;
pub use head::{Head, HeadResult, compare_head};
pub use verify::{Break, Options, Report, VerifyError, verify};
