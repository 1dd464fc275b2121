//! What a run that has not ended waits for: its driver, somebody to take it up, or people.

use portcullis_domain::approval::Approval;
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::{ApprovalFault, Grant};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::StoreError;
use portcullis_domain::question::{Question, QuestionKind};
use portcullis_domain::run::Run;
use portcullis_domain::time::Timestamp;
use portcullis_domain::wait::Wait;

use crate::failure::{Code, Failure};
use crate::lookup;
use crate::output::text;
use crate::reading::{Driver, Reading};

/// The most bytes of a role in a sentence.
const ROLE_BYTES: usize = 80;

/// What a run waits for: what its row names, and how that stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// A process drives it, and its lease runs.
    Driver { process: u32, until: Timestamp },
    /// Nobody drives it, and nobody has to answer: it is to be taken up.
    Resume { since: Option<Timestamp> },
    /// A run that it started; once that has ended, this one is to be taken up.
    Child { child: RunId, ended: bool },
    /// People have to say yes or no.
    People(Asked),
    /// People have to say what became of a call.
    Outcome(Asked),
    /// Enough people said yes: it is to be taken up.
    Grant(Asked, Counts),
    /// Its question cannot be read.
    Damaged(QuestionId),
    /// Its row names nothing that a run can wait for.
    Unnamed,
}

/// Whether the answers to a granted question count, as the gate will judge it when the run is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Enough of the right people signed a yes.
    Yes,
    /// They do not, by the keys that are configured.
    No(ApprovalFault),
    /// The configuration that the run was begun with cannot be read, so whose keys count is not known here.
    Untold,
}

impl Counts {
    /// The gate's own judgement of the people, with the keys that its run's configuration names.
    pub(crate) fn of(
        reading: &Reading,
        run: &Run,
        question: &Question,
        approvals: &[Approval],
    ) -> Self {
        let Some(keys) = reading.keys_of(run.id) else { return Self::Untold };
        let instance = reading.db().instance();
        // Card and salt are for the digests, which the gate computes again; whether people count needs neither.
        let grant = Grant { question, approvals, card: &[], salt: &[], run, instance };
        match grant.check_people(reading.now(), &keys) {
            Ok(()) => Self::Yes,
            Err(fault) => Self::No(fault),
        }
    }

    /// True or false, and nothing where it cannot be told.
    pub(crate) const fn told(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No(_) => Some(false),
            Self::Untold => None,
        }
    }
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
    /// What the run of this row waits for; nothing once it ended. A question that cannot be read hides no run.
    pub(crate) async fn stored(reading: &Reading, run: &Run) -> Result<Option<Self>, Failure> {
        let asked = match run.waits {
            Some(Wait::People | Wait::Outcome | Wait::Grant) => run.question,
            _ => None,
        };
        let Some(id) = asked else { return Self::of(reading, run, None, &[]).await };
        let question = match lookup::question_row(reading.db(), id) {
            Ok(question) => question,
            Err(failure) if matches!(failure.code(), Code::Damaged | Code::Unknown) => {
                return Ok(Some(Self::Damaged(id)));
            }
            Err(failure) => return Err(failure),
        };
        let approvals = match run.waits {
            Some(Wait::Grant) => reading.db().approvals(&reading.scope, id).await,
            _ => Ok(Vec::new()),
        };
        match approvals {
            Ok(approvals) => Self::of(reading, run, Some(&question), &approvals).await,
            Err(StoreError::Damaged { .. }) => Ok(Some(Self::Damaged(id))),
            Err(error) => Err(error.into()),
        }
    }

    /// What `run` waits for; nothing once it ended. `question` is the one that it names, `approvals` are the answers to it.
    pub(crate) async fn of(
        reading: &Reading,
        run: &Run,
        question: Option<&Question>,
        approvals: &[Approval],
    ) -> Result<Option<Self>, Failure> {
        if run.status.is_terminal() {
            return Ok(None);
        }
        let now = reading.now();
        Ok(Some(match (run.waits, question) {
            (Some(Wait::Driver), _) => match reading.driver(run).await? {
                Driver::Process { process, until } => Self::Driver { process, until },
                Driver::Nobody { since } => Self::Resume { since },
            },
            (Some(Wait::Child), _) => Self::child(reading, run).await?,
            (Some(Wait::Resume), _) => Self::Resume { since: run.free_since },
            (Some(Wait::People), Some(question)) => Self::People(Asked::of(question, now)),
            (Some(Wait::Outcome), Some(question)) => Self::Outcome(Asked::of(question, now)),
            (Some(Wait::Grant), Some(question)) => {
                let counts = Counts::of(reading, run, question, approvals);
                Self::Grant(Asked::of(question, now), counts)
            }
            (Some(_), None) | (None, _) => run.question.map_or(Self::Unnamed, Self::Damaged),
        }))
    }

    /// The run for which this one waits, and whether that has ended.
    async fn child(reading: &Reading, run: &Run) -> Result<Self, Failure> {
        let state = match reading.db().run(&reading.scope, run.id).await {
            Ok(state) => state,
            Err(StoreError::Damaged { .. }) => return Ok(Self::Unnamed),
            Err(error) => return Err(error.into()),
        };
        let Some((_, child)) = state.as_ref().and_then(RunState::child) else {
            return Ok(Self::Unnamed);
        };
        let below = match reading.db().run(&reading.scope, child).await {
            Ok(below) => below,
            Err(StoreError::Damaged { .. }) => return Ok(Self::Child { child, ended: false }),
            Err(error) => return Err(error.into()),
        };
        // One that was never begun is begun by whoever takes this one up.
        let ended = below.is_none_or(|below| below.run.status.is_terminal());
        Ok(Self::Child { child, ended })
    }

    /// The stable name.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Driver { .. } => Wait::Driver.as_str(),
            Self::Resume { .. } => Wait::Resume.as_str(),
            Self::Child { .. } => Wait::Child.as_str(),
            Self::People(_) => Wait::People.as_str(),
            Self::Outcome(_) => Wait::Outcome.as_str(),
            Self::Grant(..) => Wait::Grant.as_str(),
            Self::Damaged(_) | Self::Unnamed => "damaged",
        }
    }

    /// The name, and the question where there is one: for a column.
    pub(crate) fn brief(&self) -> String {
        let name = self.as_str();
        match self {
            Self::People(asked) | Self::Outcome(asked) | Self::Grant(asked, _) => {
                format!("{name} {}", asked.question)
            }
            Self::Damaged(question) => format!("{name} {question}"),
            Self::Child { child, .. } => format!("{name} {child}"),
            Self::Driver { .. } | Self::Resume { .. } | Self::Unnamed => name.to_owned(),
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
            Self::Child { child, ended: false } => format!("{child}, which it started"),
            Self::Child { child, ended: true } => {
                format!("nobody: {child}, which it started, has ended; take it up with `resume`")
            }
            Self::People(asked) | Self::Outcome(asked) => {
                let more = asked.needed.saturating_sub(asked.yes);
                let role = text::one_line(&asked.role, ROLE_BYTES);
                let (what, question, until) = (asked.what(), asked.question, asked.until());
                format!("{more} more of `{role}` {what} ({question}), {until}")
            }
            Self::Grant(asked, counts) => {
                let (question, until) = (asked.question, asked.until());
                let counted = match counts {
                    Counts::Yes => String::new(),
                    Counts::No(fault) => format!(", but the answers do not count ({fault})"),
                    Counts::Untold => {
                        ", and whether the answers count cannot be told: the configuration of the run cannot be read"
                            .to_owned()
                    }
                };
                format!("nobody: answered ({question}){counted}; take it up with `resume`, {until}")
            }
            Self::Damaged(question) => {
                format!("{question}, which cannot be read; run `portcullis verify`")
            }
            Self::Unnamed => "nothing that its row names; run `portcullis verify`".to_owned(),
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
            (
                Waits::Child { child: RunId::from_bytes([2; 16]), ended: false },
                "run_02020202020202020202020202020202, which it started",
            ),
            (Waits::Child { child: RunId::from_bytes([2; 16]), ended: true }, "nobody: run_02"),
            (Waits::People(asked(None, false)), "1 more of `a\\x1B[2J` b` to say yes"),
            (Waits::People(asked(Some(at), true)), "1 more of"),
            (Waits::Grant(asked(Some(at), false), Counts::Yes), "nobody: answered (q_01"),
            (
                Waits::Grant(asked(Some(at), false), Counts::No(ApprovalFault::TooFew)),
                "nobody: answered (q_01010101010101010101010101010101), but the answers do not count (not enough",
            ),
            (
                Waits::Grant(asked(None, false), Counts::Untold),
                "nobody: answered (q_01010101010101010101010101010101), and whether the answers count cannot be told",
            ),
            (Waits::Outcome(asked(None, false)), "1 more of"),
            (Waits::Unnamed, "nothing that its row names"),
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
