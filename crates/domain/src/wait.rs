//! What a run that has not ended waits for: folded with its events, so that no run stands still without a name for it.

use serde::{Deserialize, Serialize};

use crate::event::Body;
use crate::fold::RunState;
use crate::question::{QuestionKind, QuestionStatus};
use crate::time::Timestamp;

/// What a run waits for: one of these at every record until it ends, and nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// For the holder of its lease. Whether that one is alive says the lease's term.
    Driver,
    /// For people to say yes or no.
    People,
    /// For people to say what became of a call.
    Outcome,
    /// For the run that one of its calls is. Whether that one has ended says its own row; then anybody may take this one up.
    Child,
    /// For anybody to take it up: enough people said yes.
    Grant,
    /// For anybody to take it up.
    Resume,
}

impl Wait {
    /// Every wait.
    pub const ALL: [Self; 6] =
        [Self::Driver, Self::People, Self::Outcome, Self::Child, Self::Grant, Self::Resume];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::People => "people",
            Self::Outcome => "outcome",
            Self::Child => "child",
            Self::Grant => "grant",
            Self::Resume => "resume",
        }
    }

    /// True when anybody may take the run up.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Grant | Self::Resume)
    }
}

impl RunState {
    /// What the run waits for.
    fn wait(&self) -> Option<Wait> {
        if self.run.status.is_terminal() {
            return None;
        }
        let question = self.question.as_ref().filter(|q| Some(q.id) == self.run.question);
        let held = self.run.holder.is_some();
        Some(match question.map(|question| (question.status, question.kind)) {
            Some((QuestionStatus::Open, QuestionKind::Approval)) => Wait::People,
            Some((QuestionStatus::Open, QuestionKind::UnknownOutcome)) => Wait::Outcome,
            _ if held => Wait::Driver,
            Some((QuestionStatus::Granted, _)) => Wait::Grant,
            _ if self.child().is_some() => Wait::Child,
            _ => Wait::Resume,
        })
    }

    /// Names the wait in the run's row, and since when the run is free to be taken up.
    pub(crate) fn name_wait(&mut self, body: &Body, at: Timestamp) {
        self.run.waits = self.wait();
        let free = self.run.waits.is_some_and(Wait::is_free);
        let since = if frees(body) { None } else { self.run.free_since };
        self.run.free_since = free.then(|| since.unwrap_or(at));
    }
}

/// The events that can set a run free. The third schema names them too, for the runs of before.
const fn frees(body: &Body) -> bool {
    matches!(
        body,
        Body::RunCreated(_)
            | Body::LeaseReleased(_)
            | Body::QuestionAnswered(_)
            | Body::StepFinished(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_has_the_name_of_its_wire_form() {
        for wait in Wait::ALL {
            let wire = portcullis_canon::to_text(&wait).unwrap();
            assert_eq!(wire, format!("\"{}\"", wait.as_str()));
        }
        let free: Vec<_> = Wait::ALL.into_iter().filter(|wait| wait.is_free()).collect();
        assert_eq!(free, [Wait::Grant, Wait::Resume]);
    }
}
