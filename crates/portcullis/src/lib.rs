//! The library's public face: what a builder depends on to put the gate before their own agent.
//!
//! [`engine`] is the gate and the driver, [`domain`] the words and the ports, [`store`], [`tools`], [`policy`],
//! [`agents`] and [`audit`] what stands behind them. [`system`] has the ports that a real process needs.
//!
//! ```
//! use portcullis::policy::ClassTable;
//! use portcullis::system::{OsEntropy, SystemClock};
//!
//! let clock = SystemClock::new();
//! let entropy = OsEntropy;
//! let policy = ClassTable::default();
//! # let _ = (clock, entropy, policy);
//! ```
//!
//! It knows nothing of the command, of configuration files or of a terminal.

#![forbid(unsafe_code)]

pub mod system;

/// The examples of the guide compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding.md")]
struct Adding;

pub use portcullis_agents as agents;
pub use portcullis_audit as audit;
pub use portcullis_canon as canon;
pub use portcullis_domain as domain;
pub use portcullis_egress as egress;
pub use portcullis_engine as engine;
pub use portcullis_models as models;
pub use portcullis_policy as policy;
pub use portcullis_sandbox as sandbox;
pub use portcullis_store as store;
pub use portcullis_tools as tools;
