//! Models: provider adapters, prices, steps rendered as messages, record and replay, and the agent that asks.
//!
//! ```
//! use portcullis_models::{Dialect, Turn};
//! use portcullis_domain::ports::Stop;
//!
//! // What a provider speaks is a pure function in both directions.
//! let turn = Dialect::OpenAi.turn(&Turn::User("tidy up".to_owned()));
//! assert_eq!(turn, r#"{"content":"tidy up","role":"user"}"#);
//!
//! let body = br#"{"choices":[{"finish_reason":"length","message":{"content":"I will","tool_calls":[
//!     {"id":"a","function":{"name":"files__delete","arguments":"{\"path\":\"/\"}"}}]}}]}"#;
//! let reply = Dialect::OpenAi.read(body)?;
//! assert_eq!(reply.stop, Stop::MaxTokens);
//! assert!(reply.uses.is_empty(), "what was cut off asks for nothing");
//! # Ok::<(), portcullis_domain::ports::ModelFailure>(())
//! ```
//!
//! This crate knows nothing of the store, the engine or a policy. Keys never come here: an exchange names a credential, and
//! the [`Transport`] puts it in; [`OverEgress`] is that of a real
//! process. Nothing here retries, sleeps, reads a clock or spends: the [`ModelHandle`] that a
//! [`ModelAgent`] is given accounts.
//!
//! In reading order: [`Transport`]; [`Dialect`], [`Head`] and [`Turn`]; [`Provider`]; [`PriceList`] and [`parse_amount`];
//! [`Transcript`], [`Profile`] and [`FenceSeed`]; [`ModelAgent`]; [`Recorder`], [`Replayer`] and [`ScriptedModel`].
//!
//! [`ModelHandle`]: portcullis_domain::ports::ModelHandle

#![forbid(unsafe_code)]

mod agent;
mod dialect;
mod money;
mod names;
mod over_egress;
mod price;
mod provider;
mod raw;
mod render;
mod reply;
mod strict;
mod tape;
mod transport;

pub use agent::{AgentSetup, ModelAgent};
pub use dialect::{Assembler, Dialect, Frame, Head, HeadError, Turn, TurnResult, named_use};
pub use money::{AmountError, parse_amount, show_amount};
pub use names::wire_name;
pub use over_egress::OverEgress;
pub use price::{MAX_PRICE_FILE_BYTES, PriceError, PriceList, StatedPrice};
pub use provider::{BaseError, MAX_RETRY_AFTER, Provider, ProviderConfig};
pub use render::{FenceSeed, Profile, Said, StepResult, Transcript};
pub use strict::NotStrict;
pub use tape::{Manifest, Recorder, Replayer, ScriptedModel, TapeError};
pub use transport::{
    Answer, Exchange, KeyHeader, KeyUse, MAX_REPLY_BYTES, Pieces, Transport, TransportFailure,
    TransportFault,
};
