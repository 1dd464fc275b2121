//! What a run that has not ended waits for: its driver, somebody to take it up, or people.

use portcullis_domain::id::QuestionId;
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::run::Run;
use portcullis_domain::time::Timestamp;

use crate::failure::Failure;
use crate::output::text;
use crate::reading::{Driver, Reading};

/// The most bytes of a role in a sentence.
const ROLE_BYTES: usize = 80;

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A process drives it, and its lease runs.
    Driver { process: u32, until: Timestamp },
    /// Nobody drives it, and nobody has to answer: it is to be taken up.
    Resume { since: Option<Timestamp> },
    /// People have to answer.
    People(Asked),
    /// Enough people said yes: it is to be taken up.
    Grant(Asked),
    /// Its question cannot be read.
    Damaged(QuestionId),
}

/// A question that is waited on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) question: QuestionId,
    pub(crate) kind: QuestionKind,
    pub(crate) role: String,
    /// How many people.
    pub(crate) needed: u32,
    /// How many said yes.
    pub(crate) yes: u32,
    pub(crate) until: Option<Timestamp>,
    /// Its time is past: the next `run` or `resume` closes it.
    pub(crate) overdue: bool,
}

impl Asked {
    fn of(question: &Question, now: Timestamp) -> Self {
        Self {
            question: question.id,
            kind: question.kind,
            role: question.reviewers.role.clone(),
            needed: question.reviewers.count,
            yes: question.yes,
            until: question.ends_at(),
            overdue: question.is_over(now),
        }
    }

    fn until(&self) -> String {
        match (self.until, self.overdue) {
            (None, _) => "without a limit in time".to_owned(),
            (Some(until), false) => format!("until {until}"),
            (Some(until), true) => format!("which ended {until}; the next `resume` closes it"),
        }
    }

    fn what(&self) -> &'static str {
        match self.kind {
            QuestionKind::Approval => "to say yes",
            QuestionKind::UnknownOutcome => "to say what became of the call",
        }
    }
}

impl Waits {
    /// What `run` waits for; nothing once it ended. `question` is the latest of its open step.
    pub(crate) async fn of(
        reading: &Reading,
        run: &Run,
        question: Option<&Question>,
    ) -> Result<Option<Self>, Failure> {
        if run.status.is_terminal() {
            return Ok(None);
        }
        let now = reading.now();
        let driver = reading.driver(run).await?;
        let open = question.filter(|question| question.status == QuestionStatus::Open);
        let granted = question.filter(|question| question.status == QuestionStatus::Granted);
        Ok(Some(match (open, driver, granted) {
            (Some(open), _, _) => Self::People(Asked::of(open, now)),
            (None, Driver::Process { process, until }, _) => Self::Driver { process, until },
            (None, _, Some(granted)) => Self::Grant(Asked::of(granted, now)),
            (None, Driver::Nobody { since }, None) => Self::Resume { since },
        }))
    }

    /// The stable name.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Driver { .. } => "driver",
            Self::Resume { .. } => "resume",
            Self::People(_) => "people",
            Self::Grant(_) => "grant",
            Self::Damaged(_) => "damaged",
        }
    }

    /// In words, as one safe line.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Driver { process, until } => {
                format!("its driver, process {process}, whose lease runs until {until}")
            }
            Self::Resume { since: None } => "nobody: take it up with `resume`".to_owned(),
            Self::Resume { since: Some(since) } => {
                format!("nobody since {since}: take it up with `resume`")
            }
            Self::People(asked) => {
                let more = asked.needed.saturating_sub(asked.yes);
                let role = text::one_line(&asked.role, ROLE_BYTES);
                let (what, question, until) = (asked.what(), asked.question, asked.until());
                format!("{more} more of `{role}` {what} ({question}), {until}")
            }
            Self::Grant(asked) => {
                let (question, until) = (asked.question, asked.until());
                format!("nobody: answered ({question}); take it up with `resume`, {until}")
            }
            Self::Damaged(question) => {
                format!("{question}, which cannot be read; run `portcullis verify`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(until: Option<Timestamp>, overdue: bool) -> Asked {
        Asked {
            question: QuestionId::from_bytes([1; 16]),
            kind: QuestionKind::Approval,
            role: "a\u{1b}[2J`\nb".to_owned(),
            needed: 2,
            yes: 1,
            until,
            overdue,
        }
    }

    #[test]
    fn each_wait_is_one_safe_line() {
        let at = Timestamp::from_micros(1_790_000_000_000_000);
        let cases = [
            (Waits::Driver { process: 7, until: at }, "its driver, process 7, whose lease runs"),
            (Waits::Resume { since: None }, "nobody: take it up"),
            (Waits::Resume { since: Some(at) }, "nobody since 2026-09-21T"),
            (Waits::People(asked(None, false)), "1 more of `a\\x1B[2J` b` to say yes"),
            (Waits::People(asked(Some(at), true)), "1 more of"),
            (Waits::Grant(asked(Some(at), false)), "nobody: answered (q_01"),
            (Waits::Damaged(QuestionId::from_bytes([1; 16])), "q_01"),
        ];
        for (waits, begins) in cases {
            let words = waits.words();
            assert!(words.starts_with(begins), "{words}");
            assert_eq!(portcullis_canon::sanitize::line(&words), words);
        }
        let overdue = Waits::People(asked(Some(at), true)).words();
        assert!(overdue.contains("which ended 2026-09-21T"), "{overdue}");
    }
}
