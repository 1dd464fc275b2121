//! What a gate is put together from.

use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::lease::Holder;
use portcullis_domain::ports::{
    BoxFuture, Clock, Entropy, Policy, Processes, ReviewerKeys, Spawn, Store, ToolOutput,
};
use portcullis_domain::question::Card;
use portcullis_domain::tally::ThreadLimits;

use crate::tools::Tools;

/// The ports that a gate needs, and its timing.
#[derive(Clone)]
pub struct Parts {
    /// Where the record is.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Tasks and blocking work.
    pub spawn: Arc<dyn Spawn>,
    /// Which process this is.
    pub processes: Arc<dyn Processes>,
    /// Who may answer.
    pub keys: Arc<dyn ReviewerKeys>,
    /// What may happen.
    pub policy: Arc<dyn Policy>,
    /// What can be called.
    pub tools: Arc<Tools>,
    /// Asked when an outcome is unknown and the tool declares nothing that says it; without it a person is.
    pub reconcile: Option<Arc<dyn Reconcile>>,
    /// The bounds of conversations, over all runs of a thread; nothing where none is counted.
    pub conversation: Option<ThreadLimits>,
    /// How long things may take.
    pub timing: Timing,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The term of a lease. It is renewed each third of it, until a call that is polled in the run's own task is past its
    /// deadline by a whole term.
    pub lease: Duration,
    /// How long the policy may think. A later answer is a deny.
    pub policy: Duration,
    /// How long a record of what happened is tried again when the store cannot take it.
    pub record: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            policy: Duration::from_secs(1),
            record: Duration::from_secs(10),
        }
    }
}

/// What a reconciliation found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// It happened, and this came back.
    Happened(ToolOutput),
    /// It did not happen.
    DidNotHappen,
    /// It cannot be said; a person is asked.
    Unknown,
    /// What is outside fits neither; the run ends.
    Conflict,
}

/// Looks outside for what became of a call whose outcome is unknown.
pub trait Reconcile: Send + Sync {
    /// What became of the call. A panic, and a wait longer than the deadline of the call's tool, count as
    /// [`Reconciled::Unknown`]. That it is asked, and what it found, is in the record.
    fn reconcile(&self, card: &Card) -> BoxFuture<'_, Reconciled>;
}

impl Parts {
    pub(crate) fn holder(&self) -> Holder {
        let mut bytes = [0_u8; 16];
        self.entropy.fill(&mut bytes);
        let nonce = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Holder { process: self.processes.current(), nonce }
    }
}
