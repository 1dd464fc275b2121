//! Why a person is asked again about a call to which somebody said yes already.

use portcullis_canon::Digest;
use portcullis_domain::ports::Pages;
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::verdict::Reviewers;

use crate::assemble::Database;
use crate::failure::Failure;

/// What of the earlier question does not hold any more, by the question that took its place.
pub(crate) fn why(before: &Question, reviewers: &Reviewers, call: Digest) -> &'static str {
    if before.reviewers != *reviewers {
        "the rules ask other people now"
    } else if before.call != call {
        "what would run, or the rule that asks, is not what was approved"
    } else {
        "an answer counts no more: its key, its person's role or its term has changed"
    }
}

/// True when enough people had said yes for the call to happen.
pub(crate) fn was_granted(question: &Question) -> bool {
    question.kind == QuestionKind::Approval && question.yes >= question.reviewers.count
}

/// Why this question is asked although an earlier one of its step was granted; nothing where none was.
pub(crate) async fn earlier_yes(
    db: &dyn Database,
    scope: &Scope,
    question: &Question,
) -> Result<Option<&'static str>, Failure> {
    if question.kind != QuestionKind::Approval {
        return Ok(None);
    }
    let (mut last, mut pages) = (None, Pages::all());
    while let Some(page) = pages.next_page() {
        let gone = Some(QuestionStatus::Withdrawn);
        let rows = db.questions(scope, Some(question.run), gone, page).await?.rows;
        pages.read(rows.len());
        let mut own = rows.into_iter().flatten().filter(|before| before.step == question.step);
        last = own.next_back().or(last);
    }
    let granted = last.filter(|before| before.id != question.id && was_granted(before));
    Ok(granted.map(|before| why(&before, &question.reviewers, question.call)))
}
