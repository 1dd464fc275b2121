//! The ports: what the core needs from the world, as traits.
//!
//! Futures are boxed and `Send` and name no runtime.

mod agent;
mod clock;
mod keys;
mod model;
mod pages;
mod policy;
mod process;
mod spawn;
mod store;
mod tool;

use std::future::Future;
use std::pin::Pin;

pub use agent::{AdvertisedTool, Agent, AgentFailure, SeenStep, View};
pub use clock::{Clock, Entropy, Monotonic};
pub use keys::{KeyRefusal, Reviewer, ReviewerKeys};
pub use model::{
    Charge, MAX_PLAUSIBLE_TOKENS, MAX_TOOL_USES, Model, ModelCall, ModelFailure, ModelFault,
    ModelHandle, ModelName, ModelNameError, ModelOutcome, ModelReply, Price, Projection, Rates,
    Shown, Stop, ToolUse, Usage, Watch,
};
pub use pages::{EventPages, Pages};
pub use policy::{Policy, PolicyFailure, ProposedCall};
pub use process::Processes;
pub use spawn::{Place, Spawn, SpawnError, Tell, Work};
pub use store::{
    Append, Committed, Condition, DamagedRow, Disposition, Durability, EventFilter, LeaseTerm,
    Ledger, Ledgers, MAX_PAGE, NewEvent, Notice, Observer, OpenOutcome, Page, Reminder, Rows,
    Store, StoreError, StoredContent, StoredEvent, TakeLease,
};
pub use tool::{Lack, ToolFailure, ToolOutput, ToolSource};

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
