//! Steps: one proposal in a run and what became of it. The struct is the row that the fold writes.

use portcullis_canon::Digest;
use serde::{Deserialize, Serialize};

use crate::content::ContentRef;
use crate::id::{QuestionId, RunId, StepId};
use crate::observation::Observation;
use crate::proposal::{ProposalKind, ProposalOrigin};
use crate::time::Timestamp;
use crate::tool::EffectClass;
use crate::verdict::{PolicyId, Verdict};

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Opened; the proposal is awaited, read or judged.
    Deciding,
    /// A person is asked.
    Awaiting,
    /// The intent is durable; the effect may be happening.
    Executing,
    /// The outcome is not known, and a probe is asked.
    Probing,
    /// It happened, or the run ended with it.
    Done,
    /// It did not happen, or it failed.
    Failed,
    /// It was cut off.
    Interrupted,
    /// A host that acts by itself was told what the verdict is. Nothing was made here, and what it did is not known.
    Advised,
}

impl StepStatus {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deciding => "deciding",
            Self::Awaiting => "awaiting",
            Self::Executing => "executing",
            Self::Probing => "probing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Advised => "advised",
        }
    }

    /// True when the effect was started and what came of it is not recorded.
    #[must_use]
    pub const fn is_started(self) -> bool {
        matches!(self, Self::Executing | Self::Probing)
    }

    /// True when nothing more can happen to it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Interrupted | Self::Advised)
    }
}

/// A call as it was admitted: what a verdict was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admitted {
    /// The tool.
    pub tool: String,
    /// The spec that it was judged against.
    pub spec: Digest,
    /// The tool's class in that spec.
    pub effect: EffectClass,
    /// Digest of tool and canonical arguments, keyed by the run's salt.
    pub request: Digest,
    /// The call digest: what exactly an approval would bind.
    pub call: Digest,
}

/// The row of one step. Every field is named by the fold and compared by `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step.
    pub id: StepId,
    /// Its run.
    pub run: RunId,
    /// Its place in the run, from zero.
    pub index: u64,
    /// How many proposals came together with this one.
    pub batch: u32,
    /// Its place among them, from zero.
    pub batch_index: u32,
    /// Where it stands.
    pub status: StepStatus,
    /// The raw proposal, verbatim but for declared secrets.
    pub proposal: Option<ContentRef>,
    /// What the proposal asks for, once it could be read.
    pub kind: Option<ProposalKind>,
    /// Where the proposal says it comes from.
    pub origin: Option<ProposalOrigin>,
    /// The call, once it was admitted.
    pub admitted: Option<Admitted>,
    /// The latest verdict.
    pub verdict: Option<Verdict>,
    /// The policy that gave it.
    pub policy: Option<PolicyId>,
    /// The latest question.
    pub question: Option<QuestionId>,
    /// How often a process began to judge the recorded proposal.
    pub attempts: u32,
    /// How often the effect was started.
    pub starts: u32,
    /// What came back.
    pub observation: Option<Observation>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When the effect was last started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl Step {
    /// The request that its proposal answers: the number of the first step of its batch.
    #[must_use]
    pub fn request(&self) -> u64 {
        self.index.saturating_sub(u64::from(self.batch_index))
    }

    /// What the loop detector compares: the request and the fingerprint of what came back.
    #[must_use]
    pub fn fingerprint(&self) -> Option<(Digest, Digest)> {
        let observed = self.observation.as_ref().and_then(|o| o.fingerprint)?;
        self.admitted.as_ref().map(|admitted| (admitted.request, observed))
    }
}
