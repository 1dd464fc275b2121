//! The gate: the only passage from a proposal to an effect, and the driver, a gate with an agent.
//!
//! A [`Gate`] creates a run or goes on with one and hands out a [`HeldRun`]. A host that keeps its own loop
//! calls [`HeldRun::step`], [`HeldRun::propose`] and [`HeldRun::execute`]; [`Driving`] does the same with an
//! agent, and a [`Runner`] does it for many runs at once. What people do beside a run stands in [`operator`]; [`recheck`] asks
//! a policy again about what is recorded, and [`diff`] compares two runs.
//!
//! Per step there are two synced appends and one that is only written: the raw proposal; verdict, use of a
//! grant and intent; outcome and the next step. The effect runs between the last two, in a task that the engine
//! owns or at a place of its bounded pool.
//!
//! ```
//! use portcullis_engine::Tools;
//!
//! // The advertised set is the callable set; this gate can reach nothing.
//! let tools = Tools::register(Vec::new())?;
//! # Ok::<(), portcullis_engine::RegisterError>(())
//! ```
//!
//! It knows nothing of SQLite, HTTP, MCP, files, processes or providers, and names no async runtime.

#![forbid(unsafe_code)]

mod account;
mod child;
pub mod diff;
mod driver;
mod error;
mod gate;
mod held;
pub mod operator;
mod parts;
pub mod recheck;
mod runner;
mod spawn;
pub mod spend;
pub mod sweep;
mod tools;

mod admit;
mod advise;
mod batch;
mod compose;
mod core;
mod count;
mod effect;
mod execute;
mod heartbeat;
mod judge;
mod late;
mod observe;
mod owned;
mod question;
mod recover;
mod refold;
mod retrace;
mod step;
mod take;
mod view;

pub use crate::core::Progress;
pub use account::{Engaged, Retry};
pub use advise::{Advised, Asking};
pub use child::next_of_tree;
pub use driver::{Driven, Driving};
pub use error::{GateError, RegisterError};
pub use gate::{Attached, Gate};
pub use held::HeldRun;
pub use parts::{Parts, Reconcile, Reconciled, Timing};
pub use portcullis_domain::grant::ApprovalFault;
pub use runner::{Agents, Answers, Job, Load, Rest, Room, Runner, TakenUp, Ticket, Unserved};
pub use take::Task;
pub use tools::Tools;
