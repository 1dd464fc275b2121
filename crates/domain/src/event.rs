//! Events: the closed list of facts that can be appended, and their wire form.
//!
//! A payload is canonical JSON of structure, ids, numbers and salted digests; text lies in contents. The
//! payload types here are wire types: a field added or renamed is a new version with a fixture of its own.
//!
//! ```
//! use portcullis_domain::event::{Body, LeaseReleased};
//! use portcullis_domain::lease::Epoch;
//!
//! let body = Body::LeaseReleased(LeaseReleased { epoch: Epoch(3) });
//! assert_eq!((body.name(), body.version()), ("lease.released", 1));
//! assert_eq!(body.payload().unwrap(), br#"{"epoch":3}"#);
//! assert_eq!(Body::read("lease.released", 1, br#"{"epoch":3}"#).unwrap(), body);
//! ```

use portcullis_canon::{Digest, Limits as JsonLimits, from_slice, to_vec};
use serde::{Deserialize, Serialize};

use crate::approval::{Signature, Statement};
use crate::budget::{Amounts, BudgetScope, Caps, HowSettled};
use crate::content::ContentRef;
use crate::id::{AttemptId, JournalId, QuestionId, RunId, StepId, ThreadId};
use crate::label::Labels;
use crate::lease::{Epoch, Holder};
use crate::limits::Limits;
use crate::observation::{Failure, Observation};
use crate::proposal::{ProposalKind, ProposalOrigin};
use crate::question::{QuestionKind, QuestionStatus};
use crate::recovery::Found;
use crate::run::{EndReason, FrozenTool};
use crate::step::{Admitted, StepStatus};
use crate::stream::Link;
use crate::tally::{Counted, ThreadLimits};
use crate::time::Timestamp;
use crate::verdict::{Facts, OnRejection, PolicyId, Reviewers, Verdict};

/// The largest payload in bytes; content is not in payloads.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// Why a stored payload is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A type or version that this program does not know. The fold stops.
    #[error(
        "event type `{kind}` version {version} is not known here; a newer version of this program wrote it"
    )]
    Unknown {
        /// The type, cut to 64 bytes.
        kind: String,
        /// The version.
        version: u32,
    },
    /// The payload does not have the form of its type.
    #[error("the payload of a `{0}` event does not have its form")]
    Payload(&'static str),
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $text:literal v $version:literal $(else $later:literal)?;)*) => {
        /// One fact, in the past tense.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Body {
            $($(#[$doc])* $name($name),)*
        }

        impl Body {
            /// Every type with each version that this program writes.
            pub const TYPES: &'static [(&'static str, u32)] =
                &[$(($text, $version), $(($text, $later),)?)*];

            /// The type's name.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $text,)* }
            }

            /// The version that this program writes. A type with two writes the later one where the body has what the
            /// earlier one has no words for, so that each body has one form.
            #[must_use]
            pub const fn version(&self) -> u32 {
                match self { $(Self::$name(_body) => events!(@version _body, $version $(, $later)?),)* }
            }

            /// The payload: canonical JSON.
            ///
            /// # Errors
            /// [`EventError::Payload`] when a value cannot be written, which is a bug of the caller.
            pub fn payload(&self) -> Result<Vec<u8>, EventError> {
                match self { $(Self::$name(body) => to_vec(body).map_err(|_| EventError::Payload($text)),)* }
            }

            /// Reads a stored payload.
            ///
            /// # Errors
            /// [`EventError`] when type, version or form are not known here.
            pub fn read(name: &str, version: u32, payload: &[u8]) -> Result<Self, EventError> {
                let limits = JsonLimits::ENVELOPE.with_max_bytes(MAX_PAYLOAD_BYTES);
                match (name, version) {
                    $(($text, $version $(| $later)?) => {
                        let body = from_slice(payload, &limits).map(Self::$name);
                        body.ok().filter(|body| body.version() == version).ok_or(EventError::Payload($text))
                    })*
                    _ => Err(EventError::Unknown { kind: name.chars().take(64).collect(), version }),
                }
            }
        }
    };
    (@version $body:ident, $version:literal) => { $version };
    (@version $body:ident, $version:literal, $later:literal) => {
        if $body.is_later() { $later } else { $version }
    };
}

events! {
    /// A run was created.
    RunCreated = "run.created" v 1 else 2;
    /// A driver took the run up.
    LeaseAcquired = "lease.acquired" v 1;
    /// A driver let the run go without ending it.
    LeaseReleased = "lease.released" v 1;
    /// A step was opened.
    StepOpened = "step.opened" v 1;
    /// The agent's raw proposal was recorded.
    StepProposed = "step.proposed" v 1;
    /// The policy answered.
    StepJudged = "step.judged" v 1;
    /// A grant was used.
    ApprovalUsed = "approval.used" v 1;
    /// The intent became durable; the effect may follow.
    StepStarted = "step.started" v 1;
    /// The call is a run of its own, and this one waits for it: in the append of its intent.
    ChildAwaited = "child.awaited" v 1;
    /// The intent to make a call once more, with the idempotency key that it had, became durable.
    StepRestarted = "step.restarted" v 1;
    /// A call's outcome is not known, and a probe, or the host, is about to be asked.
    ProbeStarted = "probe.started" v 1;
    /// What the probe, or the host, found.
    ProbeFinished = "probe.finished" v 1;
    /// The verdict was handed to a host that acts by itself, and the step ended with that: nothing was made here.
    StepAdvised = "step.advised" v 1;
    /// The step ended.
    StepFinished = "step.finished" v 1;
    /// An outcome arrived that nothing waited for any more.
    OutcomeLate = "outcome.late" v 1;
    /// A person was asked, and the run waits.
    QuestionAsked = "question.asked" v 1;
    /// A person answered.
    QuestionAnswered = "question.answered" v 1;
    /// A question ended without an answer, or its grant without a use.
    QuestionClosed = "question.closed" v 1;
    /// The run ended.
    RunFinished = "run.finished" v 1 else 2;
    /// A thread was opened.
    ThreadOpened = "thread.opened" v 1;
    /// A thread's labels grew.
    ThreadLabelled = "thread.labelled" v 1;
    /// Something of a conversation was counted.
    ThreadCounted = "thread.counted" v 1;
    /// A budget was opened: its first reservation follows in the same append.
    BudgetOpened = "budget.opened" v 1;
    /// The worst case of an attempt at a call of a model was held, before it is made.
    BudgetReserved = "budget.reserved" v 1;
    /// The attempt is over, and what it was charged is known.
    BudgetSettled = "budget.settled" v 1;
    /// An installation began to keep a journal.
    JournalOpened = "journal.opened" v 1;
    /// A content was erased; its digest stays in the chain.
    ContentErased = "content.erased" v 1;
}

/// See [`Body::RunCreated`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCreated {
    /// Who asked for it.
    pub owner: String,
    /// The conversation.
    pub thread: ThreadId,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The top of its tree.
    pub root: RunId,
    /// The task.
    pub goal: ContentRef,
    /// The salt that keys digests of arguments and results.
    pub salt: ContentRef,
    /// The bounds.
    pub limits: Limits,
    /// The frozen set, by name.
    pub tools: Vec<FrozenTool>,
    /// The policy at the start.
    pub policy: PolicyId,
    /// The agent, as the operator named it.
    pub agent: String,
    /// True when the agent's process runs without confinement.
    pub unconfined_agent: bool,
}

impl RunCreated {
    /// True when the limits bound models, for which version 1 has no words.
    const fn is_later(&self) -> bool {
        self.limits.bounds_models()
    }
}

/// How a driver came by its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseCause {
    /// It created the run.
    Begin,
    /// Nobody held the lease.
    Free,
    /// The holder's term was over.
    Expired,
    /// The holder's process is proven dead.
    HolderDead,
}

/// See [`Body::LeaseAcquired`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseAcquired {
    /// The new epoch: one more than the last.
    pub epoch: Epoch,
    /// The new holder.
    pub holder: Holder,
    /// How it came by it.
    pub cause: LeaseCause,
}

/// See [`Body::LeaseReleased`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseReleased {
    /// The epoch that ended.
    pub epoch: Epoch,
}

/// See [`Body::StepOpened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepOpened {
    /// The step's place in the run, from zero. Also the request id that a reply echoes.
    pub index: u64,
    /// How many proposals came together.
    pub batch: u32,
    /// The place among them, from zero.
    pub batch_index: u32,
}

/// See [`Body::StepProposed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepProposed {
    /// The raw bytes.
    pub proposal: ContentRef,
}

/// What a proposal turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAs {
    /// Its kind.
    pub kind: ProposalKind,
    /// Where it says it comes from.
    pub origin: ProposalOrigin,
}

/// See [`Body::StepJudged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepJudged {
    /// Where the proposal says it comes from.
    pub origin: ProposalOrigin,
    /// The call.
    pub admitted: Admitted,
    /// The answer.
    pub verdict: Verdict,
    /// The policy that gave it.
    pub policy: PolicyId,
    /// What it was handed.
    pub facts: Facts,
}

/// See [`Body::ApprovalUsed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalUsed {
    /// The question whose grant was used.
    pub question: QuestionId,
}

/// See [`Body::StepStarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepStarted {
    /// The call digest.
    pub call: Digest,
    /// The lease under which it was started.
    pub epoch: Epoch,
    /// How long it may take, in milliseconds.
    pub deadline_ms: u64,
    /// How often this step was started, this time included.
    pub start: u32,
}

/// See [`Body::ChildAwaited`]. It lets the lease go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildAwaited {
    /// The run that the call is: the one whose id follows from this run and step.
    pub child: RunId,
    /// The lease under which the call was started.
    pub epoch: Epoch,
    /// Time spent deciding since the last record of it, in microseconds.
    pub active_us: u64,
}

/// See [`Body::StepRestarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRestarted {
    /// The call digest: that of the start before.
    pub call: Digest,
    /// The lease under which it was started.
    pub epoch: Epoch,
    /// How long it may take, in milliseconds.
    pub deadline_ms: u64,
    /// How often this step was started, this time included.
    pub start: u32,
    /// Why the outcome of the start before is not known.
    pub cause: Failure,
    /// The answer of the policy of today.
    pub verdict: Verdict,
    /// The policy that gave it.
    pub policy: PolicyId,
    /// What it was handed.
    pub facts: Facts,
}

/// A probe's call, as the gate judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeCall {
    /// The call.
    pub admitted: Admitted,
    /// The answer of the policy.
    pub verdict: Verdict,
    /// The policy that gave it.
    pub policy: PolicyId,
    /// What it was handed.
    pub facts: Facts,
    /// The whole call, as a card.
    pub card: ContentRef,
    /// How long it may take, in milliseconds.
    pub deadline_ms: u64,
}

/// See [`Body::ProbeStarted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeStarted {
    /// The lease under which it is asked.
    pub epoch: Epoch,
    /// Why the outcome is not known.
    pub cause: Failure,
    /// The call of the tool's probe; absent where the host's own reconciliation is asked.
    pub call: Option<ProbeCall>,
}

/// See [`Body::ProbeFinished`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeFinished {
    /// What was found.
    pub found: Found,
    /// What the probe said, or how it failed; absent where the host was asked.
    pub observation: Option<Observation>,
}

/// What a host that acts by itself was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// It may: the policy allows it, or people said yes to exactly this call.
    Allow,
    /// It is to ask its own person. What that one answers is not known here and is no approval.
    Ask,
}

impl Advice {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
        }
    }
}

/// See [`Body::StepAdvised`]. Its run ends in the same append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepAdvised {
    /// The call digest.
    pub call: Digest,
    /// The lease under which it was said.
    pub epoch: Epoch,
    /// What was said.
    pub advice: Advice,
    /// Time spent deciding since the last record of it, in microseconds.
    pub active_us: u64,
}

/// See [`Body::StepFinished`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepFinished {
    /// `done`, `failed` or `interrupted`.
    pub status: StepStatus,
    /// What the proposal was, when no verdict says so.
    pub read: Option<ReadAs>,
    /// What came back; nothing for `complete` and `fail`.
    pub observation: Option<Observation>,
    /// Time spent deciding and executing since the last record of it, in microseconds.
    pub active_us: u64,
}

/// See [`Body::OutcomeLate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeLate {
    /// The epoch under which the effect was started.
    pub epoch: Epoch,
    /// What came back.
    pub observation: Observation,
}

/// See [`Body::QuestionAsked`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionAsked {
    /// The question.
    pub question: QuestionId,
    /// What it is about.
    pub kind: QuestionKind,
    /// The question digest.
    pub digest: Digest,
    /// The call digest.
    pub call: Digest,
    /// The card.
    pub card: ContentRef,
    /// Who has to answer.
    pub reviewers: Reviewers,
    /// What a no does.
    pub on_rejection: OnRejection,
    /// How often a yes can be used.
    pub uses: u32,
    /// Until when it can be answered.
    pub expires_at: Option<Timestamp>,
    /// How long a yes can be used, in milliseconds.
    pub grant_ttl_ms: Option<u64>,
    /// Why the outcome is not known, for a question about one.
    pub cause: Option<Failure>,
    /// What is known of it: one sentence.
    pub detail: Option<ContentRef>,
    /// Time spent deciding since the last record of it, in microseconds.
    pub active_us: u64,
}

/// See [`Body::QuestionAnswered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionAnswered {
    /// The question.
    pub question: QuestionId,
    /// The key's owner, as the operator's configuration named it.
    pub person: String,
    /// What was signed.
    pub statement: Statement,
    /// The signature.
    pub signature: Signature,
}

/// See [`Body::QuestionClosed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionClosed {
    /// The question.
    pub question: QuestionId,
    /// `expired` or `withdrawn`.
    pub status: QuestionStatus,
}

/// See [`Body::RunFinished`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFinished {
    /// Why.
    pub reason: EndReason,
    /// A text that goes with it.
    pub note: Option<ContentRef>,
    /// The result of a completed run.
    pub result: Option<ContentRef>,
    /// Who ended it: a label, for a cancelled run.
    pub by: Option<String>,
}

impl RunFinished {
    /// True for the reason that version 1 does not have.
    const fn is_later(&self) -> bool {
        matches!(self.reason, EndReason::ParentEnded)
    }
}

/// See [`Body::ThreadOpened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadOpened {
    /// Who opened it.
    pub owner: String,
}

/// See [`Body::ThreadLabelled`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadLabelled {
    /// The labels that were joined.
    pub labels: Labels,
    /// The run that read them.
    pub run: RunId,
    /// The step that read them.
    pub step: StepId,
}

/// See [`Body::ThreadCounted`]. The event names the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadCounted {
    /// The run that it is about.
    pub run: RunId,
    /// What is counted.
    pub counted: Counted,
    /// The bounds of the conversation, as whoever counts has them.
    pub limits: ThreadLimits,
}

impl ThreadCounted {
    /// The salt that becomes the key of the window.
    fn key(&self) -> Option<ContentRef> {
        match self.counted {
            Counted::Call(call) | Counted::Question(call) => call.trace?.key,
            Counted::Denial | Counted::Answer(_) => None,
        }
    }
}

/// See [`Body::BudgetOpened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetOpened {
    /// What it is about.
    pub scope: BudgetScope,
    /// What may be spent at most.
    pub caps: Caps,
}

/// See [`Body::BudgetReserved`]. The event names the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetReserved {
    /// The attempt.
    pub attempt: AttemptId,
    /// The run whose agent makes it.
    pub run: RunId,
    /// The lease under which it is reserved.
    pub epoch: Epoch,
    /// The model, as the operator names it.
    pub model: String,
    /// Bytes of the request.
    pub bytes: u64,
    /// What it may cost at most: one call.
    pub projected: Amounts,
    /// Whether the model has a price, zero included.
    pub priced: bool,
    /// How long it may take, in milliseconds.
    pub deadline_ms: u64,
    /// Other caps from now on: only a day's can change.
    pub caps: Option<Caps>,
}

/// See [`Body::BudgetSettled`]. The event names the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSettled {
    /// The attempt.
    pub attempt: AttemptId,
    /// How it went.
    pub how: HowSettled,
    /// What is charged, at most what was held.
    pub charged: Amounts,
    /// What was used beyond that.
    pub excess: Amounts,
}

/// See [`Body::JournalOpened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalOpened {
    /// The journal.
    pub journal: JournalId,
}

/// See [`Body::ContentErased`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentErased {
    /// The content.
    pub content: Digest,
    /// Who asked for it: a label.
    pub by: String,
}

impl Body {
    /// The contents that this event names.
    #[must_use]
    pub fn contents(&self) -> Vec<ContentRef> {
        match self {
            Self::RunCreated(body) => vec![body.goal, body.salt],
            Self::StepProposed(body) => vec![body.proposal],
            Self::StepFinished(body) => body.observation.iter().filter_map(|o| o.content).collect(),
            Self::OutcomeLate(body) => body.observation.content.into_iter().collect(),
            Self::ProbeStarted(body) => body.call.iter().map(|call| call.card).collect(),
            Self::ProbeFinished(body) => {
                body.observation.iter().filter_map(|o| o.content).collect()
            }
            Self::QuestionAsked(body) => std::iter::once(body.card).chain(body.detail).collect(),
            Self::QuestionAnswered(body) => {
                body.statement.note.into_iter().chain(body.statement.result).collect()
            }
            Self::RunFinished(body) => body.note.into_iter().chain(body.result).collect(),
            Self::ThreadCounted(body) => body.key().into_iter().collect(),
            Self::LeaseAcquired(_)
            | Self::LeaseReleased(_)
            | Self::StepOpened(_)
            | Self::StepJudged(_)
            | Self::ApprovalUsed(_)
            | Self::StepStarted(_)
            | Self::ChildAwaited(_)
            | Self::StepRestarted(_)
            | Self::StepAdvised(_)
            | Self::QuestionClosed(_)
            | Self::ThreadOpened(_)
            | Self::ThreadLabelled(_)
            | Self::BudgetOpened(_)
            | Self::BudgetReserved(_)
            | Self::BudgetSettled(_)
            | Self::JournalOpened(_)
            | Self::ContentErased(_) => Vec::new(),
        }
    }

    /// The tool specs that this event names.
    #[must_use]
    pub fn specs(&self) -> Vec<Digest> {
        match self {
            Self::RunCreated(body) => body.tools.iter().map(|tool| tool.spec).collect(),
            Self::StepJudged(body) => vec![body.admitted.spec],
            Self::ProbeStarted(body) => body.call.iter().map(|call| call.admitted.spec).collect(),
            _ => Vec::new(),
        }
    }
}

/// One event as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Everything that the hash covers.
    pub link: Link,
    /// The fact.
    pub body: Body,
    /// The hash.
    pub hash: Digest,
}
