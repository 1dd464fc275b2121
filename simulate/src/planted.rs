//! Faults that can be planted in the simulation's own doubles: each has to be found, and its seed has to find it again.

/// A planted fault. None of them exists in the product: they stand for a store, a tool host or a key ring that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The store takes a stale holder's appends: neither epoch nor sequence is looked at.
    EpochNotChecked,
    /// The store starts calls after the lease is over.
    TermNotChecked,
    /// The store says that commit 1 is stored when it is not.
    LostCommitTakenAsDone,
    /// The tool host performs a permitted call twice.
    CallMadeTwice,
    /// The key ring takes anybody's signature for that of a reviewer.
    AnySignatureCounts,
    /// The store keeps an answer and says that it did not.
    RefusedAnswerKept,
    /// The store forgets an answer that it took.
    AnswerForgotten,
    /// The store promises that an intent is synced, and only writes it.
    IntentNotSynced,
    /// A table says of a question what no event says.
    TableChanged,
}

impl Planted {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::EpochNotChecked,
        Self::TermNotChecked,
        Self::LostCommitTakenAsDone,
        Self::CallMadeTwice,
        Self::AnySignatureCounts,
        Self::RefusedAnswerKept,
        Self::AnswerForgotten,
        Self::IntentNotSynced,
        Self::TableChanged,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EpochNotChecked => "epoch-not-checked",
            Self::TermNotChecked => "term-not-checked",
            Self::LostCommitTakenAsDone => "lost-commit-taken-as-done",
            Self::CallMadeTwice => "call-made-twice",
            Self::AnySignatureCounts => "any-signature-counts",
            Self::RefusedAnswerKept => "refused-answer-kept",
            Self::AnswerForgotten => "answer-forgotten",
            Self::IntentNotSynced => "intent-not-synced",
            Self::TableChanged => "table-changed",
        }
    }

    /// The fault of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|planted| planted.name() == name)
    }
}
