//! A model of one call under approval, lease and crash, explored exhaustively.
//!
//! Two holders, one or two reviewers, a clock that can leap past every term, and crashes are actions. Everything that
//! is decided is decided by the product's own code: the store in memory admits and folds each append, [`ClassTable`]
//! gives the verdict, the grant is checked with real keys, and an effect needs a real receipt. What is modelled is only
//! the order in which the engine does these things, in steps as small as its appends.
//!
//! Budgets do not exist in the product yet. The bound on effects is the uses of a grant; when there are budgets, what is
//! reserved and what is settled belong into [`Node`], and "spent is at most the cap" beside the properties.

mod call;
mod moves;
mod node;

use std::fmt;

use portcullis_policy::ClassTable;
use stateright::{Checker as _, HasDiscoveries, Model, Property};

use call::Call;
pub(crate) use node::{Local, Node};

/// A holder or a person, by number.
pub(crate) type Who = usize;

/// How much is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Reviewers that the policy asks; none means that it allows the call.
    pub reviewers: u32,
    /// Crashes.
    pub crashes: u8,
    /// Leaps of the clock, each past every term.
    pub leaps: u8,
    /// Appends whose answer is lost.
    pub doubts: u8,
    /// Answers that a call is to be run again.
    pub again: u8,
    /// A wrong step that is planted.
    pub wrong: Option<Wrong>,
}

/// A step that the engine does not take, for a look at whether it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A call whose outcome is not known is simply made again.
    RecoveryMakesTheCall,
    /// The call is made before its intent is recorded.
    CallBeforeIntent,
    /// An overtaken holder writes under the epoch of the one who overtook it.
    BorrowedEpoch,
    /// An intent in doubt is taken as stored.
    DoubtTakenAsStored,
    /// The one who asks goes on holding the run.
    GrantNotUsed,
}

impl Wrong {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::RecoveryMakesTheCall,
        Self::CallBeforeIntent,
        Self::BorrowedEpoch,
        Self::DoubtTakenAsStored,
        Self::GrantNotUsed,
    ];

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RecoveryMakesTheCall => "recovery-makes-the-call",
            Self::CallBeforeIntent => "call-before-intent",
            Self::BorrowedEpoch => "borrowed-epoch",
            Self::DoubtTakenAsStored => "doubt-taken-as-stored",
            Self::GrantNotUsed => "grant-not-used",
        }
    }
}

/// What an exploration found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// How deep the last of them lies.
    pub depth: usize,
    /// Properties that do not hold, each with the actions that lead there.
    pub broken: Vec<(&'static str, String)>,
    /// Things that should come and never did.
    pub never: Vec<&'static str>,
}

/// Explores all states within the bounds.
#[must_use]
pub fn explore(bounds: Bounds) -> Explored {
    // A wrong step is looked for only until it is found, on one thread: then the way there is the shortest.
    let (threads, until) = match bounds.wrong {
        Some(_) => (1, HasDiscoveries::AnyFailures),
        None => (std::thread::available_parallelism().map_or(1, usize::from), HasDiscoveries::All),
    };
    let checker =
        Gate::new(bounds).checker().threads(threads).finish_when(until).spawn_bfs().join();
    let mut found = Explored {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken: Vec::new(),
        never: Vec::new(),
    };
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        let path = discoveries.get(property.name);
        match (property.expectation, path) {
            (stateright::Expectation::Sometimes, None)
                if bounds.wrong.is_none() && checker.model().expects(property.name) =>
            {
                found.never.push(property.name);
            }
            (stateright::Expectation::Always, Some(path)) => {
                let actions: Vec<String> =
                    path.clone().into_actions().iter().map(ToString::to_string).collect();
                found.broken.push((property.name, actions.join(", ")));
            }
            _ => {}
        }
    }
    found
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A process looks at the run.
    Look(Who),
    /// It takes the lease on what it saw.
    Take(Who),
    /// It does what the state of the step asks for: judges, asks, or asks about an outcome.
    Decide(Who),
    /// It records the intent of a call that may run.
    Start(Who),
    /// The same, and the answer of the store is lost.
    StartInDoubt(Who, bool),
    /// It looks what became of an intent in doubt.
    Settle(Who),
    /// It makes the call.
    Call(Who),
    /// It records what came of it.
    Finish(Who),
    /// It loses all that it knows.
    Crash(Who),
    /// Time leaps past every term.
    Leap,
    /// A person answers the open question.
    Answer(Who, Word),
    /// What is past its time is ended.
    Sweep,
    /// The operator ends the run.
    Cancel,
}

/// What a person can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Yes,
    No,
    Happened,
    DidNot,
    Again,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The model.
pub(crate) struct Gate {
    pub(crate) bounds: Bounds,
    pub(crate) rules: ClassTable,
    pub(crate) call: Call,
}

impl Gate {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, rules: Call::rules(bounds.reviewers), call: Call::new() }
    }

    /// Whether something has to come within these bounds.
    fn expects(&self, name: &str) -> bool {
        match name {
            node::REJECTED => self.bounds.reviewers > 0,
            node::EXPIRED => self.bounds.leaps > 0 && self.bounds.reviewers > 0,
            node::UNKNOWN => self.bounds.crashes > 0,
            node::LATE => self.bounds.crashes > 0 || self.bounds.leaps > 0,
            // Each of those who are asked has to say it.
            node::TWICE => {
                u32::from(self.bounds.again) >= self.bounds.reviewers.max(1)
                    && self.bounds.crashes > 0
            }
            _ => true,
        }
    }
}

impl Model for Gate {
    type State = Node;
    type Action = Action;

    fn init_states(&self) -> Vec<Node> {
        self.begin().into_iter().collect()
    }

    fn actions(&self, node: &Node, actions: &mut Vec<Action>) {
        self.offer(node, actions);
    }

    fn next_state(&self, node: &Node, action: Action) -> Option<Node> {
        self.make(node, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("effects are at most the leave for them", |_, node: &Node| {
                node.effects <= node.leave
            }),
            Property::always("uses of an approval are at most what is needed", |_, node: &Node| {
                node.uses <= node.granted
            }),
            Property::always(
                "a run that has not ended names what it waits for",
                |_, node: &Node| node.names_what_it_waits_for(),
            ),
            Property::always("a run that has not ended can go on", |gate: &Self, node: &Node| {
                let mut actions = Vec::new();
                gate.offer(node, &mut actions);
                let goes = actions.iter().any(|action| {
                    !matches!(action, Action::Leap | Action::Cancel | Action::Crash(_))
                });
                node.ended() || goes || node.until_later()
            }),
            Property::always("only the holder finishes a step", |_, node: &Node| {
                !node.finished_by_another
            }),
            Property::always("the store admits what the engine composes", |_, node: &Node| {
                !node.refused_as_wrong
            }),
            Property::always("a finished record verifies", |gate: &Self, node: &Node| {
                !node.ended() || gate.call.verifies(&node.store)
            }),
            Property::sometimes("the call is made and recorded", |_, node: &Node| {
                node.ended() && node.effects == 1 && node.finished
            }),
            Property::sometimes(node::REJECTED, |_, node: &Node| node.rejected),
            Property::sometimes(node::EXPIRED, |_, node: &Node| node.expired),
            Property::sometimes(node::UNKNOWN, |_, node: &Node| node.asked_about_outcome),
            Property::sometimes(node::LATE, |_, node: &Node| node.late),
            Property::sometimes(node::TWICE, |_, node: &Node| node.effects == 2),
        ]
    }
}
