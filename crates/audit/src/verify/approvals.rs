//! Questions and answers: both digests made again from what was asked, the signature of each answer, and
//! whether the answers to each grant that was used were leave to run.

use portcullis_canon::{Limits, from_slice};
use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::{Event, QuestionAnswered, QuestionAsked};
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::{ApprovalFault, Grant};
use portcullis_domain::ports::{KeyRefusal, ReviewerKeys, StoreError};
use portcullis_domain::question::{Card, call_digest};

use super::report::{Break, Place};
use super::{Stop, Walk};

impl Walk<'_> {
    pub(super) fn check_question(
        &mut self,
        state: &RunState,
        asked: &QuestionAsked,
        event: &Event,
        at: Place,
    ) -> Result<(), Stop> {
        let question = asked.question;
        let terms = state
            .question
            .as_ref()
            .map(|question| question.terms(event.link.instance, &state.run.tenant).digest());
        if terms != Some(asked.digest) {
            self.broken(Break::DigestMismatch { at, question, which: "question" })?;
        }
        let card = self.whole(asked.card)?;
        let salt = self.whole(state.run.salt)?;
        match (card, salt) {
            (Some(card), Some(salt)) if call_digest(&card, &salt) != asked.call => {
                self.broken(Break::DigestMismatch { at, question, which: "call" })?;
            }
            (Some(card), Some(_)) => {
                let shown = from_slice::<Card>(&card, &Limits::ENVELOPE).ok();
                let asks = shown.and_then(|card| card.asks(asked.kind));
                if asks.as_ref() != Some(&asked.reviewers) {
                    self.broken(Break::ReviewersMismatch { at, question })?;
                }
            }
            // Erased, or missing or changed, which is reported where the content is named.
            _ => self.report.cards_unchecked += 1,
        }
        Ok(())
    }

    /// A content's bytes when they are what the reference says.
    pub(super) fn whole(&mut self, named: ContentRef) -> Result<Option<Vec<u8>>, Stop> {
        let stored = match self.reader.read(|ledger| ledger.content(named.digest)) {
            Err(StoreError::Damaged { .. }) => None,
            stored => stored?,
        };
        let content = stored.and_then(|stored| {
            let salt = stored.salt.as_slice().try_into().ok()?;
            Some(Content::from_stored(salt, stored.bytes))
        });
        Ok(content.filter(|content| content.reference() == named).map(Content::into_bytes))
    }

    pub(super) fn check_answer(
        &mut self,
        state: &RunState,
        answered: &QuestionAnswered,
        at: Place,
    ) -> Result<(), Stop> {
        let question = answered.question;
        let role = state.question.as_ref().map(|question| &question.reviewers.role);
        let signatures = &mut self.report.signatures;
        match self.options.keys.iter().map(|keys| signed(*keys, answered, role)).max() {
            None => signatures.unchecked += 1,
            Some(Signed::ByUnknown) => signatures.unknown_key += 1,
            Some(Signed::ByAnother) => self.broken(Break::PersonMismatch { at, question })?,
            Some(Signed::OutOfUse) => signatures.not_valid += 1,
            Some(Signed::OtherRole) => {
                signatures.checked += 1;
                signatures.other_role += 1;
            }
            Some(Signed::WithRole) => signatures.checked += 1,
            Some(Signed::Falsely) => self.broken(Break::BadSignature { at, question })?,
        }
        Ok(())
    }

    /// The state is that after the use.
    pub(super) fn check_use(
        &mut self,
        state: &RunState,
        event: &Event,
        at: Place,
    ) -> Result<(), Stop> {
        if self.options.keys.is_empty() {
            self.report.grants.unchecked += 1;
            return Ok(());
        }
        // The fold admits a use only of the latest question.
        let Some(question) = &state.question else { return Ok(()) };
        let (card, salt) = (self.whole(question.card)?, self.whole(state.run.salt)?);
        let grant = Grant {
            question,
            approvals: &state.approvals,
            card: card.as_deref().unwrap_or_default(),
            salt: salt.as_deref().unwrap_or_default(),
            run: &state.run,
            instance: event.link.instance,
        };
        let used_at = event.link.at;
        let whole = card.is_some() && salt.is_some();
        let judged = self.options.keys.iter().map(|keys| match whole {
            true => grant.amounts(used_at, *keys),
            // Counted where the question is; what was signed does not need them.
            false => grant.check_people(used_at, *keys),
        });
        match judged.reduce(more_telling) {
            None | Some(Ok(())) => {
                self.report.grants.checked += 1;
                Ok(())
            }
            Some(Err(fault)) => {
                let (question, why) = (question.id, fault.to_string());
                self.broken(Break::NoLeave { at, question, why })
            }
        }
    }
}

/// How an answer is signed by one set of keys. Of several sets the last in this order counts: a signature that does
/// not fit its key fits it in no other set either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Signed {
    ByUnknown,
    ByAnother,
    OutOfUse,
    OtherRole,
    WithRole,
    Falsely,
}

fn signed(keys: &dyn ReviewerKeys, answered: &QuestionAnswered, role: Option<&String>) -> Signed {
    match keys.verify(&answered.statement, &answered.signature) {
        Ok(reviewer) if reviewer.person != answered.person => Signed::ByAnother,
        Ok(reviewer) if reviewer.roles.iter().any(|has| Some(has) == role) => Signed::WithRole,
        Ok(_) => Signed::OtherRole,
        Err(KeyRefusal::UnknownKey) => Signed::ByUnknown,
        Err(KeyRefusal::NotValid) => Signed::OutOfUse,
        Err(KeyRefusal::BadSignature) => Signed::Falsely,
    }
}

/// Leave by one set of keys is leave; else a set that knows the signers says more of why it is none.
fn more_telling(
    one: Result<(), ApprovalFault>,
    other: Result<(), ApprovalFault>,
) -> Result<(), ApprovalFault> {
    match (one, other) {
        (Ok(()), _) | (_, Ok(())) => Ok(()),
        (Err(ApprovalFault::Key(KeyRefusal::UnknownKey)), fault) | (fault, Err(_)) => fault,
    }
}
