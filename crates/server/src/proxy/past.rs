//! What the record says of a request: its last run, and how that ended.

use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::content::ContentRef;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::{Page, StoreError};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::Step;
use portcullis_domain::time::Timestamp;
use portcullis_engine::GateError;

use super::{Asked, Proxy};

/// A run of a request, with the step that made its call.
pub(super) struct Past {
    pub(super) state: RunState,
    pub(super) call: Option<Step>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) reason: EndReason,
    pub(super) at: Timestamp,
    /// Whether the call can change something. One that was never admitted changed nothing.
    pub(super) changes: bool,
    /// Whether the call was begun.
    pub(super) started: bool,
    /// What came back.
    pub(super) seen: Option<Seen>,
    /// The words that go with the end of the run.
    pub(super) note: Option<String>,
}

/// What came back of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) kind: ObservationKind,
    pub(super) failure: Option<Failure>,
    pub(super) refusal: Option<Refusal>,
    /// Null when it was erased.
    pub(super) value: Value,
}

impl Seen {
    /// A member of what came back that is a text.
    pub(super) fn text(&self, member: &str) -> Option<&str> {
        self.value.get(member).and_then(Value::as_str)
    }
}

impl Proxy {
    /// The last run of a request, with its number. Numbers have no gaps: each begins after the one before it has ended.
    pub(super) async fn latest(&self, asked: &Asked<'_>) -> Result<Option<(u64, Past)>, GateError> {
        let (mut there, mut missing) = (None, 0_u64);
        while self.state(asked.run(missing)).await?.is_some() {
            there = Some(missing);
            missing = missing.saturating_mul(2).saturating_add(1);
        }
        let Some(mut last) = there else { return Ok(None) };
        while missing.saturating_sub(last) > 1 {
            let middle = last.midpoint(missing);
            if self.state(asked.run(middle)).await?.is_some() {
                last = middle;
            } else {
                missing = middle;
            }
        }
        let past = self.past(asked.run(last)).await?;
        Ok(past.map(|past| (last, past)))
    }

    pub(super) async fn state(&self, run: RunId) -> Result<Option<RunState>, GateError> {
        Ok(self.parts().store.run(&self.scope, run).await?)
    }

    /// A run and the step of its call.
    pub(super) async fn past(&self, run: RunId) -> Result<Option<Past>, GateError> {
        let Some(state) = self.state(run).await? else { return Ok(None) };
        let page = Page { offset: 0, limit: 1 };
        let mut steps = self.parts().store.steps(&self.scope, run, page).await?.rows;
        let damaged = StoreError::Damaged { table: "steps" };
        let call = steps.pop().transpose().map_err(|_| damaged)?;
        Ok(Some(Past { state, call }))
    }

    /// How a run ended, with the words that were said; nothing while it goes on.
    pub(super) async fn ended(&self, past: &Past) -> Result<Option<Ended>, GateError> {
        let run = &past.state.run;
        let Some((reason, at)) = run.reason.zip(run.finished_at) else { return Ok(None) };
        let call = past.call.as_ref();
        let admitted = call.and_then(|call| call.admitted.as_ref());
        let seen = match call.and_then(|call| call.observation.as_ref()) {
            Some(observation) => Some(Seen {
                kind: observation.kind,
                failure: observation.failure,
                refusal: observation.refusal,
                value: self.value(observation.content).await?,
            }),
            None => None,
        };
        let note = match run.note {
            Some(_) => self.text(run.note).await?,
            None => None,
        };
        Ok(Some(Ended {
            reason,
            at,
            changes: admitted.is_some_and(|admitted| admitted.effect.changes_something()),
            started: call.is_some_and(|call| call.starts > 0),
            seen,
            note,
        }))
    }

    async fn bytes(&self, reference: Option<ContentRef>) -> Result<Option<Vec<u8>>, GateError> {
        let Some(reference) = reference else { return Ok(None) };
        let content = self.parts().store.content(&self.scope, reference.digest).await?;
        Ok(content
            .filter(|content| content.reference() == reference)
            .map(|content| content.into_bytes()))
    }

    /// A content as a value; null when it was erased or cannot be read.
    pub(super) async fn value(&self, reference: Option<ContentRef>) -> Result<Value, GateError> {
        let bytes = self.bytes(reference).await?;
        Ok(bytes.and_then(|bytes| parse(&bytes, &Limits::ENVELOPE).ok()).unwrap_or_default())
    }

    async fn text(&self, reference: Option<ContentRef>) -> Result<Option<String>, GateError> {
        let bytes = self.bytes(reference).await?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}
