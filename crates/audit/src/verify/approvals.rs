//! Questions and answers: both digests made again from what was asked, and the signature of each answer.

use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::{Event, QuestionAnswered, QuestionAsked};
use portcullis_domain::fold::RunState;
use portcullis_domain::ports::{KeyRefusal, StoreError};
use portcullis_domain::question::call_digest;

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
            (Some(_), Some(_)) => {}
            // Erased, or missing or changed, which is reported where the content is named.
            _ => self.report.cards_unchecked += 1,
        }
        Ok(())
    }

    /// A content's bytes when they are what the reference says.
    fn whole(&mut self, named: ContentRef) -> Result<Option<Vec<u8>>, Stop> {
        let stored = match self.ledger.content(named.digest) {
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
        let Some(keys) = self.options.keys else {
            signatures.unchecked += 1;
            return Ok(());
        };
        match keys.verify(&answered.statement, &answered.signature) {
            Ok(reviewer) if reviewer.person == answered.person => {
                signatures.checked += 1;
                let other = !reviewer.roles.iter().any(|has| Some(has) == role);
                signatures.other_role += u64::from(other);
            }
            Ok(_) => self.broken(Break::PersonMismatch { at, question })?,
            Err(KeyRefusal::UnknownKey) => signatures.unknown_key += 1,
            Err(KeyRefusal::NotValid) => signatures.not_valid += 1,
            Err(KeyRefusal::BadSignature) => self.broken(Break::BadSignature { at, question })?,
        }
        Ok(())
    }
}
