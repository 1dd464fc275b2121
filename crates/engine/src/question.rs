//! Asking a person: the question, its digests, and the run that waits.

use std::time::Duration;

use portcullis_canon::Digest;
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, QuestionAsked};
use portcullis_domain::id::{QuestionId, StepId};
use portcullis_domain::ports::NewEvent;
use portcullis_domain::question::{Card, QuestionKind, Terms};
use portcullis_domain::verdict::{OnRejection, Reviewers};

use crate::core::{Batch, Core, Progress};
use crate::error::GateError;

/// The role that answers questions about unknown outcomes of calls that nobody had to approve.
const OUTCOME_ROLE: &str = "operator";

/// A question, before it has an id.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) kind: QuestionKind,
    pub(crate) card: Card,
    pub(crate) call: Digest,
    pub(crate) reviewers: Reviewers,
    pub(crate) on_rejection: OnRejection,
}

/// "Did this call happen?", asked of those who had to approve it, or else of the operator.
pub(crate) fn outcome_question(card: Card, call: Digest) -> Question {
    let role = card
        .reviewers
        .as_ref()
        .map_or(OUTCOME_ROLE, |reviewers| reviewers.role.as_str())
        .to_owned();
    Question {
        kind: QuestionKind::UnknownOutcome,
        card,
        call,
        reviewers: Reviewers { role, count: 1 },
        on_rejection: OnRejection::Observe,
    }
}

impl Core {
    /// Appends a question; the run waits and the lease is released.
    pub(crate) async fn put_question(
        &mut self,
        before: Vec<NewEvent>,
        specs: Vec<Vec<u8>>,
        question: Question,
    ) -> Result<Progress, GateError> {
        let step = self.open_step_id()?;
        let active_us = self.take_active_us();
        self.ready = None;
        self.record(move |core| {
            let (event, content) = core.question_asked(step, &question, active_us);
            let mut events = before.clone();
            events.push(event);
            Ok(Batch { events, contents: vec![content], specs: specs.clone() })
        })
        .await
    }

    /// The event that asks, and the card's content.
    pub(crate) fn question_asked(
        &self,
        step: StepId,
        question: &Question,
        active_us: u64,
    ) -> (NewEvent, Content) {
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
            uses,
        };
        let card = Content::seal(question.card.value().to_canonical(), self.parts.entropy.as_ref());
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
            active_us,
        };
        (
            NewEvent {
                stream: run.id.into(),
                step: Some(step),
                at: now,
                body: Body::QuestionAsked(body),
            },
            card,
        )
    }
}
