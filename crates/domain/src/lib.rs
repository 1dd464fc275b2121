//! The nouns of Portcullis, the events, the pure fold, the permit and the ports.
//!
//! State is a fold of an append-only log. This crate says which facts there are ([`event`]), what they
//! change ([`fold`]), how they are chained ([`stream`]), what a person signs ([`question`], [`approval`]),
//! and what is needed before anything happens ([`permit`]). What it needs from the world stands in [`ports`].
//!
//! ```
//! use portcullis_domain::limits::Limits;
//!
//! assert!(Limits::default().check().is_ok());
//! assert!(Limits { max_steps: 0, ..Limits::default() }.check().is_err());
//! ```
//!
//! It knows nothing of IO, an async runtime, SQL, HTTP, files or processes, and it never reads a clock.

#![forbid(unsafe_code)]

pub mod approval;
pub mod budget;
pub mod child;
pub mod content;
pub mod event;
pub mod fold;
pub mod grant;
pub mod id;
pub mod label;
pub mod lease;
pub mod limits;
pub mod observation;
pub mod permit;
pub mod ports;
pub mod proposal;
pub mod question;
pub mod recovery;
pub mod refold;
pub mod refusal;
pub mod request;
pub mod row;
pub mod run;
pub mod scope;
pub mod standing;
pub mod step;
pub mod stream;
pub mod tally;
pub mod thread;
pub mod time;
pub mod tool;
pub mod verdict;
pub mod wait;
