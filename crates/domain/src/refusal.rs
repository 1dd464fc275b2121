//! Why something did not happen: one closed list in stable snake_case.
//!
//! A refusal is a value, not an error. Texts for models and people are rendered from it elsewhere.

use serde::{Deserialize, Serialize};

/// The reason of a refusal, as recorded and as shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    // The proposal cannot be read.
    /// Larger than a proposal may be.
    TooLarge,
    /// Not one well-formed JSON value in strict form.
    NotJson,
    /// Nested deeper than 256.
    TooDeep,
    /// A key stands twice in one object.
    RepeatedKey,
    /// The value is not an object.
    NotAnObject,
    /// A field that the protocol does not have.
    UnknownField,
    /// A field with a value of the wrong type.
    WrongType,
    /// No kind.
    NoKind,
    /// A kind that the protocol does not have.
    UnknownKind,
    /// An origin that the protocol does not have.
    UnknownOrigin,
    /// The reply echoes another request.
    WrongRequest,
    /// More calls in a batch than it may have.
    BatchTooLong,
    /// A batch without a call.
    BatchEmpty,
    // The call cannot be admitted.
    /// A tool call without a tool.
    NoTool,
    /// The tool is not in the run's frozen set.
    UnknownTool,
    /// The arguments do not fit the tool's schema.
    ArgumentsInvalid,
    /// A number that no integer or double holds exactly.
    NumberNotExact,
    /// The arguments name a parameter that the operator fixed or the gate fills.
    FixedParameter,
    // The policy said no.
    /// The effect class is denied.
    ClassDenied,
    /// The effect class has no rule.
    ClassUnmapped,
    /// The policy failed.
    PolicyFailed,
    /// The policy took longer than it may.
    PolicyTimeout,
    /// The policy ended the run.
    PolicyAborted,
    // A person is asked, or was.
    /// The effect class asks.
    ClassAsks,
    /// A person said no.
    Rejected,
    // The machine said no.
    /// Nobody could be asked: no reviewer is configured for the role.
    NoReviewer,
    /// Every place for a blocking tool is taken by a call that outlived its deadline.
    NoCapacity,
    /// It is not known what an earlier call of the same tool did; the question about it is named beside.
    OutcomeUnknown,
    // Several calls that came together were refused as a whole; the one that is named beside is why.
    /// It is not read-only, and only such calls are made together.
    BatchNotReadOnly,
    /// It would end the run, and nothing comes beside that.
    BatchTerminal,
    /// The policy denies it.
    BatchDenied,
    /// The policy asks a person about it, and a person is asked about one call.
    BatchAsks,
    /// It is more than the run may still make.
    BatchOverLimit,
    // A run that was to be started may not be.
    /// So many runs stand above this one already.
    ChildTooDeep,
    /// The run has started as many as it may.
    ChildTooMany,
    /// It was to have a tool or a limit beyond those of the run that starts it.
    ChildWider,
    // A limit of the whole conversation is met.
    /// It is older than it may become.
    ThreadElapsed,
    /// So many denials that no call begins for the rest of its window.
    ThreadDenials,
    /// As many calls began in the window as may.
    ThreadCalls,
    /// As many calls that can change something.
    ThreadChanges,
    /// People were asked in the window as often as they may be.
    ThreadQuestions,
    /// The call, or a cycle that it would begin once more, came back with the same results too often.
    ThreadLoop,
}

impl Refusal {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotJson => "not_json",
            Self::TooDeep => "too_deep",
            Self::RepeatedKey => "repeated_key",
            Self::NotAnObject => "not_an_object",
            Self::UnknownField => "unknown_field",
            Self::WrongType => "wrong_type",
            Self::NoKind => "no_kind",
            Self::UnknownKind => "unknown_kind",
            Self::UnknownOrigin => "unknown_origin",
            Self::WrongRequest => "wrong_request",
            Self::BatchTooLong => "batch_too_long",
            Self::BatchEmpty => "batch_empty",
            Self::NoTool => "no_tool",
            Self::UnknownTool => "unknown_tool",
            Self::ArgumentsInvalid => "arguments_invalid",
            Self::NumberNotExact => "number_not_exact",
            Self::FixedParameter => "fixed_parameter",
            Self::ClassDenied => "class_denied",
            Self::ClassUnmapped => "class_unmapped",
            Self::PolicyFailed => "policy_failed",
            Self::PolicyTimeout => "policy_timeout",
            Self::PolicyAborted => "policy_aborted",
            Self::ClassAsks => "class_asks",
            Self::Rejected => "rejected",
            Self::NoReviewer => "no_reviewer",
            Self::NoCapacity => "no_capacity",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::BatchNotReadOnly => "batch_not_read_only",
            Self::BatchTerminal => "batch_terminal",
            Self::BatchDenied => "batch_denied",
            Self::BatchAsks => "batch_asks",
            Self::BatchOverLimit => "batch_over_limit",
            Self::ChildTooDeep => "child_too_deep",
            Self::ChildTooMany => "child_too_many",
            Self::ChildWider => "child_wider",
            Self::ThreadElapsed => "thread_elapsed",
            Self::ThreadDenials => "thread_denials",
            Self::ThreadCalls => "thread_calls",
            Self::ThreadChanges => "thread_changes",
            Self::ThreadQuestions => "thread_questions",
            Self::ThreadLoop => "thread_loop",
        }
    }

    /// True when the rules or a person said no, and not the machine: what counts toward the denials of a conversation.
    #[must_use]
    pub const fn is_a_denial(self) -> bool {
        matches!(
            self,
            Self::ClassDenied
                | Self::ClassUnmapped
                | Self::PolicyAborted
                | Self::Rejected
                | Self::BatchDenied
        )
    }

    /// True when a limit of the whole conversation is met.
    #[must_use]
    pub const fn bounds_a_conversation(self) -> bool {
        matches!(
            self,
            Self::ThreadElapsed
                | Self::ThreadDenials
                | Self::ThreadCalls
                | Self::ThreadChanges
                | Self::ThreadQuestions
                | Self::ThreadLoop
        )
    }
}
