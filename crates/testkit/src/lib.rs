//! What tests of consumers and back ends use: contract suites, scripted ports, crash points.
//!
//! ```
//! use portcullis_canon::Object;
//! use portcullis_testkit::permit::permit_for;
//!
//! // A tool is called in a test as it is by the gate: with a permit, and only once.
//! let permit = permit_for("files.list", Object::from_iter([("path", ".")]));
//! assert_eq!(permit.tool(), "files.list");
//! ```
//!
//! For whoever depends on it: [`trial`] runs tools, a policy and a loop under crashes, [`policy_table`] checks a policy,
//! [`arguments`] draws from a JSON Schema, [`render`] judges what people are shown, and [`doubles`] mean no good.
//!
//! It knows nothing of any store, policy, tool or agent that it tests: they are handed to it behind their ports. Only
//! [`trial`] uses the engine, behind a feature of that name that is on by default.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod counter;
pub mod crash;
pub mod doubles;
pub mod forge;
pub mod killer;
pub mod permit;
pub mod policy_table;
pub mod ports;
pub mod preload;
pub mod recording_store;
pub mod render;
pub mod scenario;
pub mod skip;
pub mod stage;
pub mod store_contract;
pub mod tool_contract;
pub mod tree;
#[cfg(feature = "trial")]
pub mod trial;

mod block_on;
mod dice;
mod store_reads;

pub use block_on::block_on;
