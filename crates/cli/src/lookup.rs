//! Finding runs and questions by what an operator types, and reading what belongs to them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::str::FromStr;

use portcullis_canon::{Limits, from_slice};
use portcullis_domain::approval::Approval;
use portcullis_domain::content::ContentRef;
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::{ApprovalFault, Grant};
use portcullis_domain::id::{QuestionId, RunId, StepId};
use portcullis_domain::ports::{EventPages, Pages, StoreError};
use portcullis_domain::proposal::Proposal;
use portcullis_domain::question::{Card, Question, QuestionStatus};
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::run::Run;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::stream::StreamKind;

use crate::again;
use crate::assemble::Database;
use crate::failure::{Code, Failure};
use crate::output::card;

/// The fewest digits that may stand for a whole id.
const MIN_DIGITS: usize = 8;

/// How many rows are searched for an id that begins so.
const MAX_SEARCHED: u64 = 20_000;

/// The largest content that is read to be shown.
const MAX_WORDS_BYTES: u64 = 64 << 20;

/// An id as it was typed: whole, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed<T> {
    /// The whole id.
    Whole(T),
    /// Prefix and at least eight digits.
    Begins(String),
}

/// A run as it was typed.
pub(crate) type RunArg = Typed<RunId>;

/// A question, or the run that waits for it, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionArg {
    /// The question.
    Question(Typed<QuestionId>),
    /// Its run.
    Run(RunArg),
}

fn typed<T: FromStr>(text: &str, prefix: &str) -> Option<Typed<T>> {
    if let Ok(id) = text.parse() {
        return Some(Typed::Whole(id));
    }
    let digits = text.strip_prefix(prefix)?.strip_prefix('_')?;
    let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ((MIN_DIGITS..32).contains(&digits.len()) && plain).then(|| Typed::Begins(text.to_owned()))
}

/// Reads a run's id from the command line.
pub(crate) fn run_arg(text: &str) -> Result<RunArg, String> {
    typed(text, RunId::PREFIX).ok_or_else(|| {
        "expected `run_` and its 32 hexadecimal digits, or `run_` and at least the first 8"
            .to_owned()
    })
}

/// Reads a question's or a run's id from the command line.
pub(crate) fn question_arg(text: &str) -> Result<QuestionArg, String> {
    let question = typed(text, QuestionId::PREFIX).map(QuestionArg::Question);
    question.or_else(|| typed(text, RunId::PREFIX).map(QuestionArg::Run)).ok_or_else(|| {
        "expected `q_` or `run_` and its 32 hexadecimal digits, or at least the first 8".to_owned()
    })
}

fn unknown(what: &str) -> Failure {
    Failure::new(Code::Unknown, format!("there is no such {what}"))
        .hint("list what there is with `portcullis runs` and `portcullis inbox`")
}

fn several(what: &str) -> Failure {
    Failure::usage(format!("more than one {what} begins so")).hint("type more of the id")
}

/// The one of `ids` that begins so.
fn only<T: ToString + Copy>(
    found: &mut Option<T>,
    ids: impl Iterator<Item = T>,
    begins: &str,
    what: &str,
) -> Result<(), Failure> {
    for id in ids.filter(|id| id.to_string().starts_with(begins)) {
        if found.replace(id).is_some() {
            return Err(several(what));
        }
    }
    Ok(())
}

/// The id of the run that was typed. Its row may be damaged.
pub(crate) async fn run_id(
    db: &dyn Database,
    scope: &Scope,
    run: &RunArg,
) -> Result<RunId, Failure> {
    let begins = match run {
        Typed::Whole(id) => {
            return raw(db, Run::TABLE, id.as_bytes())?.map(|_| *id).ok_or_else(|| unknown("run"));
        }
        Typed::Begins(begins) => begins,
    };
    let (mut found, mut pages) = (None, Pages::at_most(MAX_SEARCHED));
    while let Some(page) = pages.next_page() {
        let rows = db.runs(scope, None, page).await?.rows;
        only(&mut found, rows.iter().flatten().map(|run| run.id), begins, "run")?;
        pages.read(rows.len());
    }
    found.ok_or_else(|| unknown("run"))
}

/// Every run of which an event is recorded, in the order of their first events; the table of runs is not asked.
/// Holds 16 bytes for each run.
pub(crate) async fn recorded_runs(db: &dyn Database, scope: &Scope) -> Result<Vec<RunId>, Failure> {
    let (mut seen, mut runs) = (HashSet::new(), Vec::new());
    let mut pages = EventPages::all(None);
    while let Some(wanted) = pages.next_page() {
        let page = db.events(scope, wanted).await?;
        let streams = page.iter().filter(|event| event.stream_kind == StreamKind::Run.as_str());
        for id in streams.filter_map(|event| event.stream_id.as_slice().try_into().ok()) {
            if seen.insert(id) {
                runs.push(RunId::from_bytes(id));
            }
        }
        pages.read(&page);
    }
    Ok(runs)
}

/// The row of the run that was typed. Damaged rows of its steps are no hindrance.
pub(crate) async fn run(db: &dyn Database, scope: &Scope, typed: &RunArg) -> Result<Run, Failure> {
    run_row(db, scope, run_id(db, scope, typed).await?)
}

pub(crate) fn run_row(db: &dyn Database, scope: &Scope, id: RunId) -> Result<Run, Failure> {
    let run = row::<Run>(db, id.as_bytes())?.filter(|run| run.tenant == *scope.tenant());
    run.ok_or_else(|| unknown("run"))
}

/// The question that was typed, whatever its status; for a run, the one that it waits for.
pub(crate) async fn question(
    db: &dyn Database,
    scope: &Scope,
    typed: &QuestionArg,
) -> Result<(Run, Question), Failure> {
    let id = match typed {
        QuestionArg::Run(typed) => {
            let run = run(db, scope, typed).await?;
            let Some(id) = run.question else { return Err(asks_nobody(db, scope, &run).await?) };
            return Ok((run, question_row(db, id)?));
        }
        QuestionArg::Question(Typed::Whole(id)) => *id,
        QuestionArg::Question(Typed::Begins(begins)) => open_question(db, scope, begins).await?,
    };
    let question = question_row(db, id)?;
    Ok((run_row(db, scope, question.run)?, question))
}

/// Why there is no question of this run: it waits for a run that it started, or for nobody.
pub(crate) async fn asks_nobody(
    db: &dyn Database,
    scope: &Scope,
    run: &Run,
) -> Result<Failure, Failure> {
    let state = db.run(scope, run.id).await?;
    Ok(match state.as_ref().and_then(RunState::child) {
        Some((_, child)) => {
            let sentence = format!("the run asks nobody: it waits for {child}, which it started");
            Failure::new(Code::State, sentence)
                .hint(format!("name {child}, or what `portcullis inbox` lists"))
        }
        None => {
            let sentence = format!("the run waits for nobody: it is {}", run.status.as_str());
            Failure::new(Code::State, sentence)
        }
    })
}

/// The row of a question.
pub(crate) fn question_row(db: &dyn Database, id: QuestionId) -> Result<Question, Failure> {
    row(db, id.as_bytes())?.ok_or_else(|| unknown("question"))
}

/// The row of a step.
pub(crate) fn step_row(db: &dyn Database, id: StepId) -> Result<Step, Failure> {
    row(db, id.as_bytes())?.ok_or_else(|| unknown("step"))
}

fn raw(
    db: &dyn Database,
    table: &'static str,
    id: &[u8; 16],
) -> Result<Option<Vec<Cell>>, Failure> {
    Ok(db.begin()?.row(table, &[Cell::Blob(id.to_vec())])?)
}

fn row<T: Row>(db: &dyn Database, id: &[u8; 16]) -> Result<Option<T>, Failure> {
    let damaged = |_| StoreError::Damaged { table: T::TABLE };
    Ok(raw(db, T::TABLE, id)?.map(|cells| T::from_cells(&cells)).transpose().map_err(damaged)?)
}

async fn open_question(
    db: &dyn Database,
    scope: &Scope,
    begins: &str,
) -> Result<QuestionId, Failure> {
    let (mut found, mut pages) = (None, Pages::at_most(MAX_SEARCHED));
    while let Some(page) = pages.next_page() {
        let rows = db.questions(scope, None, Some(QuestionStatus::Open), page).await?.rows;
        only(&mut found, rows.iter().flatten().map(|q| q.id), begins, "open question")?;
        pages.read(rows.len());
    }
    found.ok_or_else(|| unknown("open question"))
}

/// A content that is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Its bytes.
    Here(Vec<u8>),
    /// Longer than the caller wants to read.
    Long,
    /// Erased, or never stored.
    Gone,
    /// Not what its digest says.
    Differs,
}

impl Words {
    /// The text, or why there is none.
    pub(crate) fn text(&self) -> Result<Cow<'_, str>, &'static str> {
        match self {
            Self::Here(bytes) => Ok(String::from_utf8_lossy(bytes)),
            Self::Long => Err("too long to be shown here"),
            Self::Gone => Err("erased"),
            Self::Differs => Err("damaged: it is not what its digest says"),
        }
    }
}

/// Reads a content of at most `max` bytes.
pub(crate) async fn words(
    db: &dyn Database,
    scope: &Scope,
    reference: ContentRef,
    max: u64,
) -> Result<Words, Failure> {
    if reference.size > max.min(MAX_WORDS_BYTES) {
        return Ok(Words::Long);
    }
    match db.content(scope, reference.digest).await {
        Ok(Some(content)) if content.reference() == reference => {
            Ok(Words::Here(content.into_bytes()))
        }
        Ok(Some(_)) | Err(StoreError::Damaged { .. }) => Ok(Words::Differs),
        Ok(None) => Ok(Words::Gone),
        Err(error) => Err(error.into()),
    }
}

/// A question with everything that it rests on, digested again.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) run: Run,
    pub(crate) step: Step,
    pub(crate) question: Question,
    pub(crate) card: Card,
    /// The card's canonical bytes, as they are stored.
    pub(crate) card_bytes: Vec<u8>,
    /// What is known of an outcome that is not known.
    pub(crate) detail: Option<Words>,
    pub(crate) goal: Words,
    pub(crate) reason: Option<String>,
    /// The answers so far.
    pub(crate) approvals: Vec<Approval>,
    /// Why it is asked although somebody said yes before.
    pub(crate) again: Option<&'static str>,
}

impl Asked {
    /// As the layout takes it.
    pub(crate) fn sheet(&self) -> card::Asked<'_> {
        card::Asked {
            question: &self.question,
            run: &self.run,
            step: self.step.index,
            started_at: self.step.started_at,
            card: &self.card,
            card_bytes: self.card_bytes.len(),
            detail: self.detail.as_ref().map(Words::text),
            goal: self.goal.text(),
            reason: self.reason.as_deref(),
            again: self.again,
        }
    }
}

fn forged(what: &str) -> Failure {
    let sentence = format!("the {what} of this question is not what its digest says");
    Failure::new(Code::Forged, sentence).hint("decide nothing; run `portcullis verify`")
}

/// Reads a run's question. Nothing of it is believed: both digests are computed again.
pub(crate) async fn asked(
    db: &dyn Database,
    scope: &Scope,
    run: Run,
    question: Question,
) -> Result<Asked, Failure> {
    let step = step_row(db, question.step)?;
    let approvals = db.approvals(scope, question.id).await?;
    let Words::Here(salt) = words(db, scope, run.salt, u64::MAX).await? else {
        return Err(forged("salt"));
    };
    let Words::Here(card_bytes) = words(db, scope, question.card, u64::MAX).await? else {
        return Err(forged("card"));
    };
    let grant = Grant {
        question: &question,
        approvals: &approvals,
        card: &card_bytes,
        salt: &salt,
        run: &run,
        instance: db.instance(),
    };
    grant.check_digests().map_err(|fault| match fault {
        ApprovalFault::Question => forged("place or term"),
        _ => forged("call"),
    })?;
    let card: Card =
        from_slice(&card_bytes, &Limits::ENVELOPE).map_err(|_| forged("form of the card"))?;
    let detail = match question.detail {
        Some(detail) => Some(words(db, scope, detail, u64::MAX).await?),
        None => None,
    };
    let goal = words(db, scope, run.goal, u64::MAX).await?;
    let reason = reason(db, scope, &step).await?;
    let again = again::earlier_yes(db, scope, &question).await?;
    Ok(Asked { run, step, question, card, card_bytes, detail, goal, reason, approvals, again })
}

/// The reason that the agent states in its proposal.
pub(crate) async fn reason(
    db: &dyn Database,
    scope: &Scope,
    step: &Step,
) -> Result<Option<String>, Failure> {
    let Some(reference) = step.proposal else { return Ok(None) };
    let Words::Here(raw) = words(db, scope, reference, u64::MAX).await? else { return Ok(None) };
    let read = Proposal::read(&raw, Some(step.index)).or_else(|_| Proposal::read(&raw, None));
    Ok(read.ok().and_then(|proposal| proposal.reason))
}

/// Why a question cannot be answered any more.
pub(crate) fn not_open(status: QuestionStatus) -> Failure {
    let why = match status {
        QuestionStatus::Open => "the question is no longer its step's latest",
        QuestionStatus::Granted => "the question was answered already: it is approved",
        QuestionStatus::Used => "the question was answered already, and the approval was used",
        QuestionStatus::Rejected => "the question was answered already: it is rejected",
        QuestionStatus::Settled => "the question was answered already",
        QuestionStatus::Expired => "the question expired before it was answered",
        QuestionStatus::Withdrawn => "the question was withdrawn",
    };
    Failure::new(Code::State, why).hint("nothing was recorded; `portcullis inbox` lists what waits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_whole_or_long_beginnings() {
        let whole = format!("run_{}", "ab".repeat(16));
        assert!(matches!(run_arg(&whole), Ok(Typed::Whole(_))));
        assert!(matches!(run_arg("run_abababab"), Ok(Typed::Begins(_))));
        for bad in [
            "",
            "run_",
            "run_abababa",
            "run_ABABABAB",
            "q_abababab",
            "abababab",
            "run_abababa\u{202e}",
        ] {
            assert!(run_arg(bad).is_err(), "{bad}");
        }
        assert!(matches!(question_arg("q_abababab"), Ok(QuestionArg::Question(_))));
        assert!(matches!(question_arg("run_abababab"), Ok(QuestionArg::Run(_))));
        assert!(question_arg("step_abababab").is_err());
    }
}
