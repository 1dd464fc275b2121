//! Agents: a script of proposals, and any program that speaks the agent protocol.
//!
//! ```
//! use portcullis_agents::Scripted;
//!
//! let script = br#"
//! {"kind":"tool_call","tool":"files.list"}
//! {"kind":"complete","result":"listed"}
//! "#;
//! assert_eq!(Scripted::read(script)?.len(), 2);
//! # Ok::<(), portcullis_agents::ScriptError>(())
//! ```
//!
//! An agent here is a source of bytes. This crate knows nothing of the gate, of policies, tools, the record or what is
//! confined how: it hands views over, hands raw proposals back, and names how an agent failed. It does not read a
//! proposal, and what is wrong with one is the gate's to say.
//!
//! In reading order: [`Scripted`]; [`Exec`] and its [`Deadlines`]. The protocol is described in
//! `docs/agent-protocol.md`.

#![forbid(unsafe_code)]

mod exec;
mod scripted;

pub use exec::{
    Deadlines, Ending, Exec, MAX_LINE_BYTES, MAX_VIEW_BYTES, PROTOCOL_VERSION, STDERR_TAIL_BYTES,
    StartError,
};
pub use scripted::{ScriptError, Scripted};
