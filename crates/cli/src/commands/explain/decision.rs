//! What was decided about a step, from its folded facts alone.

use portcullis_domain::observation::{Observation, ObservationKind};
use portcullis_domain::proposal::ProposalKind;
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::step::Step;
use portcullis_domain::verdict::Verdict;

use super::Folded;
use crate::waits::Counts;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing: the agent has proposed nothing yet.
    Open,
    /// Nothing yet: the proposal is recorded.
    Unjudged,
    /// It could not be admitted, so no rule was asked.
    NotAdmitted(Option<&'static str>),
    /// It asks for nothing: the agent's own end of its run.
    Said(&'static str),
    /// The rules let it happen.
    Allowed,
    /// The rules ask, and nobody has answered enough.
    Asked(Option<&'static str>),
    /// The rules ask, and enough people said yes.
    Approved,
    /// Enough people said yes by the record, and by the keys that are configured their answers do not count.
    NotCounted,
    /// Enough people said yes by the record, and whose keys count is not known here.
    Untold,
    /// A person said no.
    Rejected,
    /// It does not happen.
    Denied(Option<&'static str>),
    /// It was started, nobody knows what came of it, and a person is asked.
    Parked(Option<&'static str>),
    /// A person said what came of it.
    Settled,
    /// A person said to run it again.
    RunAgain,
    /// Nobody answered, or used the answer, in time.
    Expired,
    /// Its question was withdrawn when the run ended.
    Withdrawn,
}

impl Decision {
    pub(super) fn of(folded: &Folded) -> Self {
        let step = &folded.step;
        let observed = step.observation.as_ref();
        let kind = observed.map(|observation| observation.kind);
        let refusal = observed.and_then(refusal);
        match (&folded.question, kind) {
            (Some(question), _) if question.status != QuestionStatus::Withdrawn => {
                match (Self::of_question(step, question, refusal), folded.counts) {
                    (Self::Approved | Self::RunAgain, Some(Counts::No(_))) => Self::NotCounted,
                    (Self::Approved | Self::RunAgain, Some(Counts::Untold)) => Self::Untold,
                    (decision, _) => decision,
                }
            }
            (_, Some(ObservationKind::InvalidProposal)) => Self::NotAdmitted(refusal),
            (_, Some(ObservationKind::Denied)) => Self::Denied(refusal),
            (Some(_), _) => Self::Withdrawn,
            (None, _) => Self::of_verdict(step),
        }
    }

    fn of_question(step: &Step, question: &Question, refusal: Option<&'static str>) -> Self {
        let cause = question.cause.map(|cause| cause.as_str());
        match (question.kind, question.status) {
            (QuestionKind::Approval, QuestionStatus::Open) => Self::Asked(reason(step)),
            (QuestionKind::UnknownOutcome, QuestionStatus::Open) => Self::Parked(cause),
            // Leave was used, and the call could not begin.
            (_, QuestionStatus::Used) if refusal.is_some() => Self::Denied(refusal),
            (QuestionKind::Approval, QuestionStatus::Granted | QuestionStatus::Used) => {
                Self::Approved
            }
            (QuestionKind::UnknownOutcome, QuestionStatus::Granted | QuestionStatus::Used) => {
                Self::RunAgain
            }
            (_, QuestionStatus::Rejected) => Self::Rejected,
            (_, QuestionStatus::Settled) => Self::Settled,
            (_, QuestionStatus::Expired) => Self::Expired,
            (_, QuestionStatus::Withdrawn) => Self::Withdrawn,
        }
    }

    fn of_verdict(step: &Step) -> Self {
        match (&step.verdict, step.kind, step.proposal) {
            (Some(Verdict::Allow { .. }), _, _) => Self::Allowed,
            (Some(Verdict::Ask { .. }), _, _) => Self::Asked(reason(step)),
            (Some(Verdict::Deny { .. } | Verdict::Abort { .. }), _, _) => {
                Self::Denied(reason(step))
            }
            (None, Some(kind @ (ProposalKind::Complete | ProposalKind::Fail)), _) => {
                Self::Said(kind.as_str())
            }
            (None, _, Some(_)) => Self::Unjudged,
            (None, _, None) => Self::Open,
        }
    }

    /// The stable name.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Unjudged => "unjudged",
            Self::NotAdmitted(_) => "not_admitted",
            Self::Said(_) => "said",
            Self::Allowed => "allowed",
            Self::Asked(_) => "asked",
            Self::Approved => "approved",
            Self::NotCounted => "not_counted",
            Self::Untold => "untold",
            Self::Rejected => "rejected",
            Self::Denied(_) => "denied",
            Self::Parked(_) => "parked",
            Self::Settled => "settled",
            Self::RunAgain => "run_again",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// The name of what is behind it.
    pub(super) const fn because(&self) -> Option<&'static str> {
        match self {
            Self::NotAdmitted(why) | Self::Asked(why) | Self::Denied(why) | Self::Parked(why) => {
                *why
            }
            Self::Said(kind) => Some(kind),
            _ => None,
        }
    }

    /// In words of our own.
    pub(super) const fn words(&self) -> &'static str {
        match self {
            Self::Open => "nothing is decided: the agent has proposed nothing yet",
            Self::Unjudged => "nothing is decided: the proposal is recorded and not judged yet",
            Self::NotAdmitted(_) => "refused before any rule was asked: it is no admissible call",
            Self::Said(_) => "nothing to decide: the agent says that its run is over",
            Self::Allowed => "allowed: the rules let it happen",
            Self::Asked(_) => "asked: the rules want people to decide",
            Self::Approved => "allowed: the rules ask, and enough people said yes",
            Self::NotCounted => {
                "not decided: people said yes, and by the keys that are configured it does not count"
            }
            Self::Untold => {
                "not known: people said yes, and whether it counts cannot be told here, since the configuration of the run cannot be read"
            }
            Self::Rejected => "denied: the rules ask, and a person said no",
            Self::Denied(_) => "denied",
            Self::Parked(_) => "parked: it was started, and nobody knows what came of it",
            Self::Settled => "settled: it was started, and a person said what came of it",
            Self::RunAgain => "to run again: it was started, and a person said so",
            Self::Expired => "ended: nobody answered, or used the answer, in time",
            Self::Withdrawn => "never decided: the run ended before the question did",
        }
    }
}

fn reason(step: &Step) -> Option<&'static str> {
    step.verdict.as_ref().and_then(Verdict::reason).map(|reason| reason.as_str())
}

fn refusal(observation: &Observation) -> Option<&'static str> {
    observation.refusal.map(|refusal| refusal.as_str())
}
