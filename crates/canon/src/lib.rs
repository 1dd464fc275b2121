//! Strict JSON, canonical bytes, digests, schemas and text that is safe on a terminal.
//!
//! Everything that comes from outside passes [`parse`] once; everything that is hashed or stored
//! passes [`Value::to_canonical`]. What the encoder writes the parser accepts, and encodes to the
//! same bytes again.
//!
//! ```
//! use portcullis_canon::{Digest, Kind, Limits, parse};
//!
//! let value = parse(br#"{"b": 1e1, "a": "x"}"#, &Limits::BARE)?;
//! assert_eq!(value.to_canonical_string(), r#"{"a":"x","b":10}"#);
//!
//! let digest = Digest::of_value(Kind::Arguments, &value);
//! assert_eq!(digest.to_string().parse(), Ok(digest));
//! # Ok::<(), portcullis_canon::ParseError>(())
//! ```
//!
//! This crate knows nothing of agents, runs, tools or policies: only bytes, values and text. It
//! does no input or output.
//!
//! In reading order: [`Limits`]; [`Value`], [`Object`] and [`Number`]; [`parse`]; [`Digest`];
//! [`to_value`] and [`from_value`] for types that derive serde's traits; [`Schema`]; [`sanitize`].

#![forbid(unsafe_code)]

mod limits;
mod number;
mod object;
mod value;

mod encode;
mod parse;
mod scan;

mod bridge;
mod digest;
pub mod sanitize;
mod schema;

pub use bridge::{BridgeError, DecodeError, from_slice, from_value, to_text, to_value, to_vec};
pub use digest::{Digest, DigestError, Hasher, Kind};
pub use limits::{DEFAULT_MAX_BYTES, Limits, MAX_NUMBER_BYTES, MAX_NUMBER_EXPONENT};
pub use number::{Number, NumberError};
pub use object::{Iter, Object};
pub use parse::{Fault, ParseError, parse};
pub use schema::{Schema, SchemaError, Violation, Violations};
pub use value::Value;
