//! Whether recorded answers amount to leave to run: checked again at the instant of use, from the signatures up.

use std::collections::BTreeSet;

use portcullis_domain::approval::Approval;
use portcullis_domain::id::InstanceId;
use portcullis_domain::ports::{Reviewer, ReviewerKeys};
use portcullis_domain::question::{Question, call_digest};
use portcullis_domain::run::Run;

use crate::error::ApprovalFault;

/// Checks a granted question. Nothing that a table says is believed: the digests are computed again and each
/// signature is verified with the keys that the operator configured.
pub(crate) fn check(
    question: &Question,
    approvals: &[Approval],
    card: &[u8],
    salt: &[u8],
    run: &Run,
    instance: InstanceId,
    keys: &dyn ReviewerKeys,
) -> Result<(), ApprovalFault> {
    if call_digest(card, salt) != question.call {
        return Err(ApprovalFault::Card);
    }
    if question.terms(instance, &run.tenant).digest() != question.digest {
        return Err(ApprovalFault::Question);
    }
    let mut people = BTreeSet::new();
    for approval in
        approvals.iter().filter(|a| a.question == question.id && a.statement.answer.grants())
    {
        let reviewer = signer(question, approval, run, keys)?;
        if reviewer.person != approval.person || !people.insert(reviewer.person) {
            return Err(ApprovalFault::People);
        }
    }
    let needed = usize::try_from(question.reviewers.count).unwrap_or(usize::MAX);
    if people.len() >= needed { Ok(()) } else { Err(ApprovalFault::TooFew) }
}

/// Who signed an answer, if the answer counts for the question.
pub(crate) fn signer(
    question: &Question,
    approval: &Approval,
    run: &Run,
    keys: &dyn ReviewerKeys,
) -> Result<Reviewer, ApprovalFault> {
    let statement = &approval.statement;
    if !statement.covers.contains(&question.digest) {
        return Err(ApprovalFault::Covers);
    }
    if question.expires_at.is_some_and(|end| statement.at > end) {
        return Err(ApprovalFault::Late);
    }
    let reviewer = keys.verify(statement, &approval.signature)?;
    if !reviewer.roles.contains(&question.reviewers.role) {
        return Err(ApprovalFault::Role);
    }
    // Four eyes: where more than one person is needed, the one who asked is not among them.
    if question.reviewers.count > 1 && reviewer.person == run.owner {
        return Err(ApprovalFault::People);
    }
    Ok(reviewer)
}
