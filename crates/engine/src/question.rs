//! Asking a person: the question, its digests, and the run that waits.

use std::time::Duration;

use portcullis_canon::Digest;
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, QuestionAsked};
use portcullis_domain::id::{QuestionId, StepId};
use portcullis_domain::observation::Failure;
use portcullis_domain::ports::NewEvent;
use portcullis_domain::question::{Card, QuestionKind, Terms};
use portcullis_domain::tally::{Counted, Counting};
use portcullis_domain::verdict::{OnRejection, Reviewers};

use crate::core::{Batch, Core, Progress};
use crate::error::GateError;

/// A question, before it has an id.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) kind: QuestionKind,
    pub(crate) card: Card,
    pub(crate) call: Digest,
    pub(crate) reviewers: Reviewers,
    pub(crate) on_rejection: OnRejection,
    /// Why the outcome is not known, and one sentence about it.
    pub(crate) cause: Option<(Failure, String)>,
}

/// "Did this call happen?", asked of those who had to approve it, or else of the operator.
pub(crate) fn outcome_question(
    card: Card,
    call: Digest,
    cause: Failure,
    detail: &str,
) -> Result<Question, GateError> {
    let kind = QuestionKind::UnknownOutcome;
    let reviewers =
        card.asks(kind).ok_or(GateError::Bug("an outcome that nobody is asked about"))?;
    Ok(Question {
        kind,
        card,
        call,
        reviewers,
        on_rejection: OnRejection::Observe,
        cause: Some((cause, detail.to_owned())),
    })
}

impl Core {
    /// Appends a question; the run waits and the lease is released. `counting` is the call that it asks leave for.
    pub(crate) async fn put_question(
        &mut self,
        before: Vec<NewEvent>,
        specs: Vec<Vec<u8>>,
        question: Question,
        counting: Option<Counting>,
    ) -> Result<Progress, GateError> {
        let step = self.open_step_id()?;
        let active_us = self.take_active_us();
        self.ready = None;
        self.record(move |core| {
            let (event, contents) = core.question_asked(step, &question, active_us);
            let mut events = before.clone();
            events.push(event);
            let counted = |counting| core.counted(step, Counted::Question(counting));
            events.extend(counting.and_then(counted));
            Ok(Batch { events, contents, specs: specs.clone(), ..Batch::default() })
        })
        .await
    }

    /// The event that asks, and its contents.
    pub(crate) fn question_asked(
        &self,
        step: StepId,
        question: &Question,
        active_us: u64,
    ) -> (NewEvent, Vec<Content>) {
        let now = self.parts.clock.now();
        let run = &self.state.run;
        let id = QuestionId::draw(now, self.parts.entropy.as_ref());
        let expires_at = run.limits.question_ttl_ms.map(|ms| now.after(Duration::from_millis(ms)));
        let uses = 1;
        let terms = Terms {
            instance: self.parts.store.instance(),
            tenant: &run.tenant,
            run: run.id,
            step,
            question: id,
            kind: question.kind,
            call: question.call,
            expires_at,
            reviewers: &question.reviewers,
            uses,
            grant_ttl_ms: run.limits.grant_ttl_ms,
        };
        let card = Content::seal(question.card.to_canonical(), self.parts.entropy.as_ref());
        let detail = question
            .cause
            .as_ref()
            .map(|(_, text)| Content::seal(text.clone().into_bytes(), self.parts.entropy.as_ref()));
        let body = QuestionAsked {
            question: id,
            kind: question.kind,
            digest: terms.digest(),
            call: question.call,
            card: card.reference(),
            reviewers: question.reviewers.clone(),
            on_rejection: question.on_rejection,
            uses,
            expires_at,
            grant_ttl_ms: run.limits.grant_ttl_ms,
            cause: question.cause.as_ref().map(|(cause, _)| *cause),
            detail: detail.as_ref().map(Content::reference),
            active_us,
        };
        let body = Body::QuestionAsked(body);
        let event = NewEvent { stream: run.id.into(), step: Some(step), at: now, body };
        (event, std::iter::once(card).chain(detail).collect())
    }
}
