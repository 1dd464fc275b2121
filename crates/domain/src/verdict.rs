//! Verdicts: the policy's answer to one call, and what it was handed to decide on.

use portcullis_canon::Digest;
use serde::{Deserialize, Serialize};

use crate::label::Labels;
use crate::proposal::ProposalOrigin;
use crate::refusal::Refusal;
use crate::scope::Tenant;

/// Who has to answer a question: `count` different people of one role.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reviewers {
    /// The role, as the operator's configuration names it.
    pub role: String,
    /// How many distinct people.
    pub count: u32,
}

impl Reviewers {
    /// Whether this person's answer counts in a run of `owner`. Four eyes: where more than one person is needed, the
    /// one who asked is none of them.
    #[must_use]
    pub fn counts(&self, person: &str, owner: &str) -> bool {
        self.count < 2 || person != owner
    }

    /// Whether as many of these people as are needed can answer in a run of `owner`.
    #[must_use]
    pub fn are_met<'a>(&self, people: impl IntoIterator<Item = &'a str>, owner: &str) -> bool {
        let able = people.into_iter().filter(|person| self.counts(person, owner)).count();
        self.count > 0 && usize::try_from(self.count).is_ok_and(|needed| able >= needed)
    }
}

/// What a person's no does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRejection {
    /// The run ends as cancelled.
    EndRun,
    /// The agent observes the refusal and goes on.
    Observe,
}

impl OnRejection {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EndRun => "end_run",
            Self::Observe => "observe",
        }
    }
}

/// The policy's answer. `rules` are the decisive rules in normal form, most restrictive first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// It happens.
    Allow {
        /// The decisive rules.
        rules: Vec<String>,
    },
    /// A person decides.
    Ask {
        /// Why a person is asked.
        reason: Refusal,
        /// The decisive rules.
        rules: Vec<String>,
        /// Who has to answer.
        reviewers: Reviewers,
        /// What a no does.
        on_rejection: OnRejection,
    },
    /// It does not happen; the agent observes the reason.
    Deny {
        /// Why not.
        reason: Refusal,
        /// The decisive rules.
        rules: Vec<String>,
    },
    /// It does not happen and the run ends.
    Abort {
        /// Why not.
        reason: Refusal,
        /// The decisive rules.
        rules: Vec<String>,
    },
}

impl Verdict {
    /// The stable name of the outcome.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Allow { .. } => "allow",
            Self::Ask { .. } => "ask",
            Self::Deny { .. } => "deny",
            Self::Abort { .. } => "abort",
        }
    }

    /// The decisive rules in normal form.
    #[must_use]
    pub fn rules(&self) -> &[String] {
        match self {
            Self::Allow { rules }
            | Self::Ask { rules, .. }
            | Self::Deny { rules, .. }
            | Self::Abort { rules, .. } => rules,
        }
    }

    /// Why it does not simply happen.
    #[must_use]
    pub const fn reason(&self) -> Option<Refusal> {
        match self {
            Self::Allow { .. } => None,
            Self::Ask { reason, .. } | Self::Deny { reason, .. } | Self::Abort { reason, .. } => {
                Some(*reason)
            }
        }
    }
}

/// What a policy may look at beside the call. It is stored with the verdict, so that asking again is exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The tenant.
    pub tenant: Tenant,
    /// The run's owner.
    pub owner: String,
    /// Where the proposal says it comes from.
    pub origin: ProposalOrigin,
    /// Steps opened before this one.
    pub steps: u64,
    /// Failures in a row.
    pub failures: u64,
    /// Denials so far.
    pub denials: u64,
    /// Active time so far, in microseconds.
    pub active_us: u64,
    /// What the run's thread has read.
    pub labels: Labels,
    /// The thread's label sequence; commit 1 is refused when it has moved on.
    pub label_seq: u64,
}

/// The identity of a whole policy: recorded with every verdict, bound by no approval.
pub type PolicyId = Digest;
