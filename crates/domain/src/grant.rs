//! Whether recorded answers amount to leave to run: from the signatures up.
//!
//! The gate asks at the instant of use, and `verify` asks again of each grant that was used. Nothing that a
//! table or an event says is believed: the digests are computed again, and each signature is checked with the
//! keys that the operator configured.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_canon::{Limits, from_slice};

use crate::approval::{Approval, Signature, Statement};
use crate::id::InstanceId;
use crate::ports::{KeyRefusal, Reviewer, ReviewerKeys};
use crate::question::{Card, Question, call_digest};
use crate::run::Run;
use crate::time::Timestamp;

/// Why recorded answers do not amount to leave to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalFault {
    /// The state tables do not say what the events say.
    #[error("the stored state is not the fold of its events")]
    State,
    /// The question's digest is not that of its terms.
    #[error("the question does not fit its digest")]
    Question,
    /// The card is not the one whose digest the question names, or asks other people than the question.
    #[error("the card does not fit its question")]
    Card,
    /// The answer is not signed as it must be.
    #[error("{0}")]
    Key(#[from] KeyRefusal),
    /// The signer does not have the role.
    #[error("the signer does not have the role that was asked")]
    Role,
    /// The answer was signed for another question.
    #[error("the answer was given to another question")]
    Covers,
    /// The answer was signed before the question was asked or after its end, or is used too late.
    #[error("the answer was not given or used in time")]
    Time,
    /// One person twice, or the asker where more than one person is needed.
    #[error("the people who answered are not the people who were needed")]
    People,
    /// Fewer people said yes than are needed.
    #[error("not enough people said yes")]
    TooFew,
}

impl ApprovalFault {
    /// True when asking again can mend it: the people or their keys are not what they were.
    #[must_use]
    pub const fn asks_again(self) -> bool {
        matches!(self, Self::Key(_) | Self::Role | Self::People | Self::TooFew)
    }
}

/// A grant and all that it has to be checked against.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The question.
    pub question: &'a Question,
    /// The answers to it.
    pub approvals: &'a [Approval],
    /// The card's canonical bytes.
    pub card: &'a [u8],
    /// The run's salt.
    pub salt: &'a [u8],
    /// The run.
    pub run: &'a Run,
    /// The installation.
    pub instance: InstanceId,
}

impl Grant<'_> {
    /// Whether the grant is leave to run at `used_at`.
    ///
    /// # Errors
    /// The first [`ApprovalFault`].
    pub fn amounts(
        &self,
        used_at: Timestamp,
        keys: &dyn ReviewerKeys,
    ) -> Result<(), ApprovalFault> {
        self.check_digests()?;
        self.check_people(used_at, keys)
    }

    /// Whether enough of the right people said yes in time. It needs neither card nor salt, which may have been
    /// erased since: what was signed names who had to answer.
    ///
    /// # Errors
    /// The first [`ApprovalFault`].
    pub fn check_people(
        &self,
        used_at: Timestamp,
        keys: &dyn ReviewerKeys,
    ) -> Result<(), ApprovalFault> {
        let question = self.question;
        let mut people = BTreeSet::new();
        let mut last = question.asked_at;
        for approval in self
            .approvals
            .iter()
            .filter(|a| a.question == question.id && a.statement.answer.grants())
        {
            let reviewer =
                signer(question, &approval.statement, &approval.signature, &self.run.owner, keys)?;
            if reviewer.person != approval.person || !people.insert(reviewer.person) {
                return Err(ApprovalFault::People);
            }
            last = last.max(approval.statement.at);
        }
        // By the signed times, since nobody signed the recorded one.
        let ttl = question.grant_ttl_ms.map(Duration::from_millis);
        if ttl.is_some_and(|ttl| used_at > last.after(ttl)) {
            return Err(ApprovalFault::Time);
        }
        let needed = usize::try_from(question.reviewers.count).unwrap_or(usize::MAX);
        if people.len() >= needed { Ok(()) } else { Err(ApprovalFault::TooFew) }
    }

    /// Whether card, terms and digests belong together.
    ///
    /// # Errors
    /// [`ApprovalFault::Card`] or [`ApprovalFault::Question`].
    pub fn check_digests(&self) -> Result<(), ApprovalFault> {
        let question = self.question;
        if call_digest(self.card, self.salt) != question.call {
            return Err(ApprovalFault::Card);
        }
        let card: Card =
            from_slice(self.card, &Limits::ENVELOPE).map_err(|_| ApprovalFault::Card)?;
        if card.asks(question.kind).as_ref() != Some(&question.reviewers) {
            return Err(ApprovalFault::Card);
        }
        if question.terms(self.instance, &self.run.tenant).digest() != question.digest {
            return Err(ApprovalFault::Question);
        }
        Ok(())
    }
}

/// Who signed an answer, if the answer counts for the question.
///
/// # Errors
/// The first [`ApprovalFault`].
pub fn signer(
    question: &Question,
    statement: &Statement,
    signature: &Signature,
    owner: &str,
    keys: &dyn ReviewerKeys,
) -> Result<Reviewer, ApprovalFault> {
    if !statement.covers.contains(&question.digest) {
        return Err(ApprovalFault::Covers);
    }
    if statement.at < question.asked_at || question.expires_at.is_some_and(|end| statement.at > end)
    {
        return Err(ApprovalFault::Time);
    }
    let reviewer = keys.verify(statement, signature)?;
    if !reviewer.roles.contains(&question.reviewers.role) {
        return Err(ApprovalFault::Role);
    }
    if !question.reviewers.counts(&reviewer.person, owner) {
        return Err(ApprovalFault::People);
    }
    Ok(reviewer)
}
