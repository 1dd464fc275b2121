//! One state of the model: the record, what each process knows, and what the world counted.

use std::fmt;
use std::hash::{Hash, Hasher};

use portcullis_domain::event::StepJudged;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::QuestionId;
use portcullis_domain::ports::LeaseTerm;
use portcullis_domain::question::{Card, QuestionStatus};
use portcullis_domain::run::RunStatus;
use portcullis_domain::time::Timestamp;
use portcullis_store::memory::MemoryStore;

pub(crate) const REJECTED: &str = "a person says no";
pub(crate) const EXPIRED: &str = "a question or a grant expires";
pub(crate) const UNKNOWN: &str = "a person is asked about an outcome";
pub(crate) const LATE: &str = "an outcome comes late";
pub(crate) const TWICE: &str = "a call is run again by a person's word";

/// A call that may run.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) judged: StepJudged,
    pub(crate) card: Card,
    pub(crate) grant: Option<QuestionId>,
    /// When it was judged: the lease has to run then.
    pub(crate) at: Timestamp,
}

/// What a process knows.
#[derive(Clone)]
pub(crate) enum Local {
    Idle,
    /// It saw this, and whether the holder is proven dead.
    Looked {
        state: Box<RunState>,
        at: Timestamp,
        dead: bool,
    },
    /// It holds the lease, and saw this last.
    Holds {
        state: Box<RunState>,
    },
    /// It may record the intent.
    Ready {
        state: Box<RunState>,
        ready: Box<Ready>,
    },
    /// It does not know whether the intent was recorded.
    Doubt {
        state: Box<RunState>,
    },
    /// It has a receipt.
    May {
        state: Box<RunState>,
    },
    /// The call was made.
    Made {
        state: Box<RunState>,
    },
}

impl Local {
    const fn number(&self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Looked { .. } => 1,
            Self::Holds { .. } => 2,
            Self::Ready { .. } => 3,
            Self::Doubt { .. } => 4,
            Self::May { .. } => 5,
            Self::Made { .. } => 6,
        }
    }

    pub(crate) fn state(&self) -> Option<&RunState> {
        match self {
            Self::Idle => None,
            Self::Looked { state, .. }
            | Self::Holds { state }
            | Self::Ready { state, .. }
            | Self::Doubt { state }
            | Self::May { state }
            | Self::Made { state } => Some(state),
        }
    }
}

/// A state.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) store: MemoryStore,
    /// The run as the store has it.
    pub(crate) run: Box<RunState>,
    pub(crate) term: Option<LeaseTerm>,
    pub(crate) now: Timestamp,
    pub(crate) local: [Local; 2],
    /// Whether the process crashed since it last took the lease: then it is proven dead.
    pub(crate) dead: [bool; 2],
    // What the world counts.
    pub(crate) effects: u32,
    /// Effects that may be: by the policy alone, or by grants.
    pub(crate) leave: u32,
    pub(crate) granted: u32,
    pub(crate) uses: u32,
    // What is left of the bounds.
    pub(crate) crashes: u8,
    pub(crate) leaps: u8,
    pub(crate) doubts: u8,
    pub(crate) again: u8,
    // What happened, as far as the record's tip does not say it.
    pub(crate) finished_by_another: bool,
    pub(crate) refused_as_wrong: bool,
    // What happened, and the tip says it too.
    pub(crate) finished: bool,
    pub(crate) rejected: bool,
    pub(crate) expired: bool,
    pub(crate) asked_about_outcome: bool,
    pub(crate) late: bool,
    /// The journal's end.
    pub(crate) tip: Vec<u8>,
}

impl Node {
    /// Everything that tells two states apart. The tip of the chain covers the whole record.
    fn key(&self) -> impl Hash + Eq + '_ {
        let locals: Vec<_> = self
            .local
            .iter()
            .map(|local| {
                let seen = local.state().map(|state| (state.run.seq, state.run.epoch));
                let at = match local {
                    Local::Looked { at, dead, .. } => Some((at.micros(), *dead)),
                    Local::Ready { ready, .. } => Some((ready.at.micros(), ready.grant.is_some())),
                    _ => None,
                };
                (local.number(), seen, at)
            })
            .collect();
        (
            (&self.tip, self.term.map(|term| (term.epoch, term.until.micros())), self.now.micros()),
            (locals, self.dead),
            (self.effects, self.leave, self.granted, self.uses),
            (self.crashes, self.leaps, self.doubts, self.again),
            (self.finished_by_another, self.refused_as_wrong, self.late),
        )
    }

    pub(crate) fn ended(&self) -> bool {
        self.run.run.status.is_terminal()
    }

    /// A question that waits, a holder with a term, or a run that anybody may take.
    pub(crate) fn names_what_it_waits_for(&self) -> bool {
        let asked = self.run.question.as_ref().is_some_and(|question| {
            matches!(question.status, QuestionStatus::Open | QuestionStatus::Granted)
        });
        let held = self.term.is_some_and(|term| term.epoch == self.run.run.epoch);
        match (self.run.run.status, self.run.run.holder.is_some()) {
            (RunStatus::Waiting, holder) => asked && (held || !holder),
            (RunStatus::Running, true) => held,
            (RunStatus::Running, false) => true,
            _ => true,
        }
    }

    /// Whether only time keeps the run from going on, within bounds that have no more of it.
    pub(crate) fn until_later(&self) -> bool {
        self.leaps == 0 && self.term.is_some_and(|term| term.until > self.now)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key().hash(hasher);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("status", &self.run.run.status)
            .field("epoch", &self.run.run.epoch)
            .field("step", &self.run.step().map(|step| step.status))
            .field("local", &self.local.each_ref().map(Local::number))
            .field("effects", &self.effects)
            .field("leave", &self.leave)
            .finish_non_exhaustive()
    }
}
