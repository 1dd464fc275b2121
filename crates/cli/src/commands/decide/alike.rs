//! Open questions about the same call: one card, one signature, one use for each.

use portcullis_domain::ports::Pages;
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::run::RunStatus;
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;

use crate::assemble::Database;
use crate::failure::{Code, Failure};
use crate::lookup::{self, Asked, Words, words};
use crate::output::text;

/// The most questions that one signature covers.
const MAX_COVERED: usize = 64;

/// Open questions that are looked at for one that is alike.
const MAX_LOOKED_AT: u64 = 20_000;

/// The open questions whose card has the same bytes, which ask the same people, and whose no does the same; without the one
/// that was asked for. Each is checked as that one was; one that cannot be read, or is past its time, is left where it is.
pub(super) async fn alike(
    db: &dyn Database,
    scope: &Scope,
    asked: &Asked,
    now: Timestamp,
) -> Result<Vec<Asked>, Failure> {
    let mut found = Vec::new();
    let mut pages = Pages::at_most(MAX_LOOKED_AT);
    while let Some(page) = pages.next_page() {
        let rows = db.questions(scope, None, Some(QuestionStatus::Open), page).await?.rows;
        pages.read(rows.len());
        for question in rows.into_iter().flatten().filter(|other| may_be(asked, other, now)) {
            if let Some(other) = same(db, scope, asked, question).await? {
                found.push(other);
            }
        }
        if found.len() >= MAX_COVERED {
            let sentence = format!("more than {MAX_COVERED} questions ask for the same call");
            return Err(Failure::new(Code::State, sentence).hint(
                "nothing was decided; decide on them one by one, or cancel what runs too often",
            ));
        }
    }
    Ok(found)
}

/// What the row alone says.
fn may_be(asked: &Asked, other: &Question, now: Timestamp) -> bool {
    let this = &asked.question;
    other.id != this.id
        && other.kind == QuestionKind::Approval
        && other.card.size == this.card.size
        && other.reviewers == this.reviewers
        && other.on_rejection == this.on_rejection
        && other.uses == this.uses
        && other.expires_at.is_none_or(|end| end > now)
}

async fn same(
    db: &dyn Database,
    scope: &Scope,
    asked: &Asked,
    question: Question,
) -> Result<Option<Asked>, Failure> {
    let Words::Here(card) = words(db, scope, question.card, u64::MAX).await? else {
        return Ok(None);
    };
    if card != asked.card_bytes {
        return Ok(None);
    }
    let Ok(run) = lookup::run_row(db, scope, question.run) else { return Ok(None) };
    if run.status != RunStatus::Waiting || run.question != Some(question.id) {
        return Ok(None);
    }
    Ok(lookup::asked(db, scope, run, question).await.ok())
}

/// A row for each, as it is shown before the decision.
pub(super) fn rows(others: &[Asked]) -> Vec<String> {
    let mut rows = Vec::new();
    if others.is_empty() {
        return rows;
    }
    let count = others.len().saturating_add(1);
    rows.push(format!(
        "ONE ANSWER TO {count} QUESTIONS about this very call, each of which it allows once:"
    ));
    for other in others {
        let quoted = |text: &str| text::one_line(text, 60);
        let (question, run) = (other.question.id, other.run.id);
        rows.push(format!("  {question}  {run}  step {}", other.step.index));
        let goal = other.goal.text();
        let goal = goal.as_ref().map_or_else(|why| (*why).to_owned(), |goal| quoted(goal));
        rows.push(format!("      asked by  | {}", quoted(&other.run.owner)));
        rows.push(format!("      goal      | {goal}"));
        if let Some(why) = other.again {
            rows.push(format!("      asked again: {why}"));
        }
    }
    rows
}
