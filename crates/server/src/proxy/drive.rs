//! One call's run: taken up where it stands, driven to its end, and read back from the record.

use std::convert::Infallible;

use portcullis_canon::Object;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::StoreError;
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::RunStatus;
use portcullis_engine::{Attached, GateError, HeldRun, Progress};
use portcullis_mcp::Listening;

use super::answer::Answer;
use super::past::Past;
use super::rules::{Next, again, first};
use super::{Asked, Proxy};

/// What the record says of a call that came to nothing.
const ENDED: &str = "the call came to nothing; the step before says why";

impl Proxy {
    /// What is next for a call, and does it if it is for this process to do.
    pub(super) async fn next(&self, asked: &Asked<'_>) -> Result<Next, GateError> {
        let Some((number, past)) = self.latest(asked).await? else {
            return self.fresh(asked, 0).await;
        };
        if let Some(ended) = self.ended(&past).await? {
            let window = self.settings.repeat_window;
            return match again(&ended, self.parts().clock.now(), window) {
                Some(answer) => Ok(Next::Answer(answer)),
                None => self.fresh(asked, number.saturating_add(1)).await,
            };
        }
        match self.open_question(&past) {
            Some(question) => Ok(Next::Wait(Answer::asked(question.kind))),
            None => self.take_up(asked, past.state.run.id).await,
        }
    }

    /// The question that a person has to answer first.
    fn open_question<'a>(&self, past: &'a Past) -> Option<&'a Question> {
        let waits = past.state.run.status == RunStatus::Waiting;
        let question = past.state.question.as_ref().filter(|_| waits)?;
        let in_time = !question.is_over(self.parts().clock.now());
        (question.status == QuestionStatus::Open && in_time).then_some(question)
    }

    /// Goes on with a run that another process left, or whose call was approved.
    async fn take_up(&self, asked: &Asked<'_>, run: RunId) -> Result<Next, GateError> {
        if self.is_closing() {
            return Ok(Next::Answer(Answer::unavailable()));
        }
        match self.gate.attach(&self.scope, run).await {
            Ok(Attached::Held(held, progress)) => self.conclude(asked, held, progress).await,
            Ok(Attached::Waiting(_)) => {
                self.tell_asked(run).await?;
                Ok(Next::Again)
            }
            Ok(Attached::Ended(_)) => Ok(Next::Again),
            Ok(Attached::Child(_)) => Err(GateError::Bug("a call of a host started a run")),
            Err(error) => refused(error),
        }
    }

    /// Drives a run to where it rests, and answers from what is recorded.
    pub(super) async fn conclude(
        &self,
        asked: &Asked<'_>,
        mut held: HeldRun,
        progress: Progress,
    ) -> Result<Next, GateError> {
        let run = held.run();
        // The host hears how far it is for as long as it is driven, and nothing is driven slower for that.
        let driven = tokio::select! {
            biased;
            driven = drive(&mut held, asked, progress) => driven,
            never = told_on(asked, self.board.listen(run)) => match never {},
        };
        if let Err(error) = driven {
            return refused(error);
        }
        let past = self.past(run).await?.ok_or(GateError::Bug("a run that was driven is gone"))?;
        match self.ended(&past).await? {
            Some(ended) => Ok(first(&ended).map_or(Next::Again, Next::Answer)),
            None => {
                self.tell_asked(run).await?;
                Ok(Next::Again)
            }
        }
    }

    /// Says to the operator which question a run waits for.
    pub(super) async fn tell_asked(&self, run: RunId) -> Result<(), GateError> {
        let Some(past) = self.past(run).await? else { return Ok(()) };
        let tool = past.call.as_ref().and_then(|call| call.admitted.as_ref());
        if let Some((question, admitted)) = self.open_question(&past).zip(tool) {
            self.notes.asked(question.id, question.kind, &admitted.tool);
        }
        Ok(())
    }
}

/// Tells the host how far its call is, until that is dropped.
async fn told_on(asked: &Asked<'_>, mut listening: Listening) -> Infallible {
    loop {
        let progress = listening.next().await;
        asked.notices.goes_on(progress).await;
    }
}

/// The call, then the word that ends a run whose call came to nothing.
async fn drive(
    held: &mut HeldRun,
    asked: &Asked<'_>,
    mut progress: Progress,
) -> Result<(), GateError> {
    loop {
        progress = match progress {
            // The first step is the call's.
            Progress::Open => {
                let first = held.state().await?.run.step_count <= 1;
                held.propose(if first { proposal(asked) } else { failure() }).await?
            }
            Progress::Allowed => held.execute().await?,
            Progress::Observed => held.step().await?,
            Progress::Waiting(_) | Progress::Child(_) | Progress::Ended(_) => return Ok(()),
        };
    }
}

/// Ends a run that was taken up for its question alone, if it has none: nothing of it is executed.
pub(super) async fn end(mut held: HeldRun, mut progress: Progress) -> Result<(), GateError> {
    loop {
        progress = match progress {
            Progress::Observed => held.step().await?,
            Progress::Open => match held.state().await?.run.step_count {
                0 | 1 => return held.close().await,
                _ => held.propose(failure()).await?,
            },
            Progress::Ended(_) => return Ok(()),
            Progress::Allowed | Progress::Waiting(_) | Progress::Child(_) => {
                return held.close().await;
            }
        };
    }
}

fn proposal(asked: &Asked<'_>) -> Vec<u8> {
    let mut object = Object::new();
    object.insert("kind", "tool_call");
    object.insert("tool", asked.tool.as_str());
    object.insert("arguments", asked.arguments.clone());
    object.to_canonical()
}

fn failure() -> Vec<u8> {
    let mut object = Object::new();
    object.insert("kind", "fail");
    object.insert("origin", "operator");
    object.insert("message", ENDED);
    object.to_canonical()
}

/// What the gate could not do, as far as that says how the call stands.
fn refused(error: GateError) -> Result<Next, GateError> {
    match error {
        error if is_others(&error) => Ok(Next::Wait(Answer::in_progress())),
        GateError::Store(StoreError::OutcomeOpen { .. }) => Ok(Next::Answer(Answer::blocked())),
        GateError::Store(StoreError::ThreadBounded { limit }) => {
            Ok(Next::Answer(Answer::limited(limit.refusal(), None)))
        }
        error => Err(error),
    }
}

/// Whether a run is held by somebody else, or somebody else was first.
pub(super) fn is_others(error: &GateError) -> bool {
    matches!(
        error,
        GateError::Store(
            StoreError::Leased { .. }
                | StoreError::LeaseLost
                | StoreError::Stale
                | StoreError::RunState { .. }
                | StoreError::QuestionState { .. }
        )
    )
}
