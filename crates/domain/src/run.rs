//! Runs: one task from start to a terminal state. The struct is the row that the fold writes.

use portcullis_canon::Digest;
use serde::{Deserialize, Serialize};

use crate::content::ContentRef;
use crate::id::{QuestionId, RunId, ThreadId};
use crate::lease::{Epoch, Holder};
use crate::limits::Limits;
use crate::scope::Tenant;
use crate::time::Timestamp;
use crate::verdict::PolicyId;
use crate::wait::Wait;

/// Where a run stands. "Interrupted" is not stored: it is `running` with a lease that nobody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Somebody drives it, or may take it up.
    Running,
    /// A person has to answer first.
    Waiting,
    /// Done.
    Completed,
    /// Ended without being done.
    Failed,
    /// Ended by a person, or by a question that nobody answered.
    Cancelled,
}

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Waiting, Self::Completed, Self::Failed, Self::Cancelled];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True when nothing can follow but late outcomes.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

macro_rules! end_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal => $status:ident;)*) => {
        /// Why a run ended: the complete set. Each reason goes with one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum EndReason {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl EndReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The one status that it goes with.
            #[must_use]
            pub const fn status(self) -> RunStatus {
                match self { $(Self::$name => RunStatus::$status,)* }
            }
        }
    };
}

end_reasons! {
    /// The agent, a terminal tool or a reconciliation said that it is done.
    GoalCompleted = "goal_completed" => Completed;
    /// The agent said that it cannot be done.
    GoalFailed = "goal_failed" => Failed;
    /// `max_steps`.
    LimitSteps = "limit_steps" => Failed;
    /// `max_denials`.
    LimitDenials = "limit_denials" => Failed;
    /// Model calls.
    LimitModelCalls = "limit_model_calls" => Failed;
    /// Tokens.
    LimitTokens = "limit_tokens" => Failed;
    /// Cost.
    LimitCost = "limit_cost" => Failed;
    /// `max_active_ms`.
    LimitActiveTime = "limit_active_time" => Failed;
    /// `max_elapsed_ms`.
    LimitElapsedTime = "limit_elapsed_time" => Failed;
    /// `max_consecutive_failures`.
    RepeatedFailures = "repeated_tool_failures" => Failed;
    /// The same calls with the same results came back too often.
    LoopDetected = "loop_detected" => Failed;
    /// No model could be reached.
    ModelUnavailable = "model_unavailable" => Failed;
    /// The policy ended the run.
    PolicyAbort = "policy_abort" => Failed;
    /// A tool ended the run.
    ToolAbort = "tool_abort" => Failed;
    /// What is outside does not fit what is recorded.
    ReconcileConflict = "reconcile_conflict" => Failed;
    /// A step's decision ended its process twice.
    DeciderCrashed = "decider_crashed" => Failed;
    /// The agent failed in another way than the following.
    AgentError = "agent_error" => Failed;
    /// The agent's program ended before the run did.
    AgentExited = "agent_exited" => Failed;
    /// The agent did not answer in time.
    AgentSilent = "agent_silent" => Failed;
    /// The agent wrote a line that is longer than a line may be, or more than it was asked for.
    AgentFlooded = "agent_flooded" => Failed;
    /// The agent does not speak a version of the protocol that is known here.
    AgentProtocol = "agent_protocol" => Failed;
    /// The gate failed; nothing happened since the last record.
    InternalError = "internal_error" => Failed;
    /// A person said no.
    ApprovalRejected = "approval_rejected" => Cancelled;
    /// Nobody answered in time, or the grant was not used in time.
    ApprovalExpired = "approval_expired" => Cancelled;
    /// The operator ended it.
    OperatorCancelled = "operator_cancelled" => Cancelled;
    /// The run that started it ended before it.
    ParentEnded = "parent_ended" => Cancelled;
}

/// The row of one run. Every field is named by the fold and compared by `verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The run.
    pub id: RunId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Who asked for it.
    pub owner: String,
    /// The conversation that it belongs to.
    pub thread: ThreadId,
    /// The run that started it, if one did.
    pub parent: Option<RunId>,
    /// The top of its tree; itself when it has no parent.
    pub root: RunId,
    /// The task, in the owner's words; of a run that another one started, in the words of that one's agent.
    pub goal: ContentRef,
    /// The salt that keys digests of this run's arguments and results.
    pub salt: ContentRef,
    /// The bounds.
    pub limits: Limits,
    /// Name and spec digest of each advertised tool, by name: the frozen set.
    pub tools: Vec<FrozenTool>,
    /// The policy at the start.
    pub policy: PolicyId,
    /// The agent, as the operator named it.
    pub agent: String,
    /// True when the agent's process runs without confinement.
    pub unconfined_agent: bool,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it ended.
    pub reason: Option<EndReason>,
    /// A text that goes with the end: the agent's message or the operator's note.
    pub note: Option<ContentRef>,
    /// The result of a completed run.
    pub result: Option<ContentRef>,
    /// Steps opened, the current one included.
    pub step_count: u64,
    /// Failures in a row.
    pub failures: u64,
    /// Denials so far.
    pub denials: u64,
    /// Time spent deciding and executing, in microseconds.
    pub active_us: u64,
    /// The question that it waits for.
    pub question: Option<QuestionId>,
    /// The epoch of the last lease.
    pub epoch: Epoch,
    /// Who holds the lease; nobody when it was released.
    pub holder: Option<Holder>,
    /// What it waits for; nothing once it ended.
    pub waits: Option<Wait>,
    /// Since when anybody may take it up; nothing while it waits for its driver or for people.
    pub free_since: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Events in its stream.
    pub seq: u64,
    /// Hash of the last of them.
    pub hash: Digest,
}

/// One tool of a run's frozen set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenTool {
    /// The advertised name.
    pub name: String,
    /// The digest of the spec that the run started with.
    pub spec: Digest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_ends_in_a_terminal_status_and_names_differ() {
        let names: std::collections::BTreeSet<_> =
            EndReason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(names.len(), EndReason::ALL.len());
        assert!(EndReason::ALL.iter().all(|r| r.status().is_terminal()));
        let completed: Vec<_> =
            EndReason::ALL.iter().filter(|r| r.status() == RunStatus::Completed).collect();
        assert_eq!(completed, [&EndReason::GoalCompleted]);
    }
}
