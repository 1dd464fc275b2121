//! One life of the process: it begins the run or takes it up, drives it, and has its questions answered.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use portcullis_canon::{Limits as JsonLimits, from_slice};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::{Page, Store, StoreError};
use portcullis_domain::question::{Card, Question};
use portcullis_domain::scope::Scope;
use portcullis_engine::operator::{self, Answered, SignedAnswer};
use portcullis_engine::{Attached, Driven, Gate, GateError, Parts, Task};

use super::people::{Asked, People};
use super::report::Rest;
use super::watch::Shown;
use super::{Effects, Loop, Rule};

/// How often a run may come to rest before it counts as stuck.
const MOST_RESTS: u32 = 100;

/// What one process is made of.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) parts: Parts,
    pub(super) task: Task,
    pub(super) drive: Arc<Loop>,
    pub(super) people: Arc<Rule>,
    pub(super) effects: Arc<Effects>,
    /// Effects before the latest call.
    pub(super) before: Arc<AtomicUsize>,
    /// The cards that people said yes to.
    pub(super) shown: Arc<Shown>,
    /// How often people had a call run again.
    pub(super) run_again: Arc<AtomicU64>,
}

impl Life {
    /// Lives until the run rests for good.
    pub(super) async fn live(self) -> Rest {
        match self.on().await {
            Ok(rest) => rest,
            Err(error) => Rest::Stuck(format!("the run does not go on: {error}")),
        }
    }

    async fn on(&self) -> Result<Rest, GateError> {
        let (gate, scope) = (Gate::new(self.parts.clone()), Scope::of_file_owner());
        let (run, mut attached) = match self.known(&scope).await? {
            Some(run) => (run, gate.attach(&scope, run).await?),
            None => {
                let held = gate.begin(&scope, self.task.clone()).await?;
                (held.run(), Attached::Held(held, portcullis_engine::Progress::Open))
            }
        };
        for _ in 0..MOST_RESTS {
            let driven = match attached {
                Attached::Ended(reason) => Driven::Ended(reason),
                Attached::Waiting(question) => Driven::Waiting(question),
                Attached::Child(child) => Driven::Child(child),
                Attached::Held(held, _) => (self.drive)(held).await?,
            };
            match driven {
                Driven::Ended(reason) => return Ok(Rest::Ended(reason)),
                Driven::Child(_) => {
                    return Ok(Rest::Stuck(
                        "a trial drives one run, and this one starts another".to_owned(),
                    ));
                }
                Driven::Stopped => return Ok(Rest::Stuck("the loop stopped".to_owned())),
                Driven::Waiting(question) => {
                    if !self.answer(&scope, run, question).await? {
                        return Ok(Rest::Waits);
                    }
                }
            }
            attached = gate.attach(&scope, run).await?;
        }
        Ok(Rest::Stuck(format!("the run came to rest {MOST_RESTS} times and has not ended")))
    }

    /// The run that a process before this one began.
    async fn known(&self, scope: &Scope) -> Result<Option<RunId>, GateError> {
        let page = Page { offset: 0, limit: 1 };
        let rows = self.parts.store.runs(scope, None, page).await?.rows;
        match rows.into_iter().next() {
            None => Ok(None),
            Some(Ok(run)) => Ok(Some(run.id)),
            Some(Err(_)) => Err(StoreError::Damaged { table: "runs" }.into()),
        }
    }

    /// Has people answer; false when they have no answer.
    async fn answer(
        &self,
        scope: &Scope,
        run: RunId,
        question: QuestionId,
    ) -> Result<bool, GateError> {
        let store: &dyn Store = self.parts.store.as_ref();
        let state = store.run(scope, run).await?.ok_or(StoreError::NotFound("run"))?;
        let question = state.question.filter(|asked| asked.id == question);
        let question = question.ok_or(StoreError::NotFound("question"))?;
        let shown = store.content(scope, question.card.digest).await?;
        let shown = shown.ok_or(StoreError::NotFound("card"))?;
        let card: Card = from_slice(shown.bytes(), &JsonLimits::ENVELOPE)
            .map_err(|_| StoreError::Damaged { table: "contents" })?;
        let effects = (self.effects)();
        let happened = effects.len() > self.before.load(Ordering::Acquire);
        let asked = Asked { question: &question, card: &card, effects: &effects, happened };
        let Some(answer) = (self.people)(&asked) else { return Ok(false) };
        if answer.grants() {
            let mut cards = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            cards.insert(question.step, shown.bytes().to_vec());
        }
        // A question about an outcome asks a role that nobody may have asked for people before.
        let _everybody = self.parts.keys.people(&question.reviewers.role);
        for person in (0..).map_while(People::name) {
            let signed = self.signed(&question, &person, answer);
            match operator::answer(&self.parts, scope, signed).await? {
                Answered::MoreNeeded { .. } => {}
                Answered::Granted | Answered::GoesOn | Answered::Ended(_) => break,
            }
        }
        if answer == Answer::RunAgain {
            self.run_again.fetch_add(1, Ordering::AcqRel);
        }
        Ok(true)
    }

    fn signed(&self, question: &Question, person: &str, answer: Answer) -> SignedAnswer {
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: People::key(person),
            at: self.parts.clock.now(),
            note: None,
            result: None,
        };
        let signature = People::sign(&statement);
        SignedAnswer {
            run: question.run,
            question: question.id,
            shown: question.digest,
            statement,
            signature,
            note: None,
            result: None,
        }
    }
}
