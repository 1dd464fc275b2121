//! A store that keeps what is appended and answers nothing else.

use std::sync::{Mutex, PoisonError};

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::content::Content;
use portcullis_domain::event::Event;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    Append, BoxFuture, Committed, DamagedRow, EventFilter, LeaseTerm, NewEvent, Notice,
    OpenOutcome, Page, Reminder, Rows, Store, StoreError, StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::stream::{Link, payload_digest};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

/// Says yes to every append without looking at its condition, and keeps it; every read is [`StoreError::Closed`].
///
/// Each append gets a journal of its own, so that nothing here stands in for a real store's chain.
#[derive(Debug, Default)]
pub struct RecordingStore {
    appends: Mutex<Vec<Append>>,
}

impl RecordingStore {
    /// A store without appends.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was appended so far, in order.
    #[must_use]
    pub fn appends(&self) -> Vec<Append> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, scope: &Scope, append: Append) -> Result<Committed, StoreError> {
        let events = self.linked(scope, &append.events)?;
        let durability = append.durability;
        self.appends.lock().unwrap_or_else(PoisonError::into_inner).push(append);
        Ok(Committed { events, durability })
    }

    fn linked(&self, scope: &Scope, new: &[NewEvent]) -> Result<Vec<Event>, StoreError> {
        let mut previous = Digest::ZERO;
        let numbered = (1_u64..).zip(new);
        numbered
            .map(|(seq, event)| {
                let payload = event.body.payload().map_err(|_| StoreError::NotAdmitted)?;
                let link = Link {
                    instance: self.instance(),
                    journal: JournalId::from_bytes([1; 16]),
                    journal_seq: seq,
                    journal_prev: previous,
                    tenant: scope.tenant().clone(),
                    stream: event.stream,
                    stream_seq: seq,
                    stream_prev: previous,
                    step: event.step,
                    at: event.at,
                    kind: event.body.name().to_owned(),
                    version: event.body.version(),
                    payload: payload_digest(&payload),
                };
                previous = link.hash();
                Ok(Event { link, body: event.body.clone(), hash: previous })
            })
            .collect()
    }
}

fn closed<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, StoreError>> {
    Box::pin(std::future::ready(Err(StoreError::Closed)))
}

impl Store for RecordingStore {
    fn instance(&self) -> InstanceId {
        InstanceId::from_bytes([1; 16])
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        Box::pin(async move { self.record(scope, append) })
    }

    fn renew<'a>(
        &'a self,
        _: &'a Scope,
        _: RunId,
        _: Epoch,
        _: Timestamp,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        closed()
    }

    fn run<'a>(
        &'a self,
        _: &'a Scope,
        _: RunId,
    ) -> BoxFuture<'a, Result<Option<RunState>, StoreError>> {
        closed()
    }

    fn lease<'a>(
        &'a self,
        _: &'a Scope,
        _: RunId,
    ) -> BoxFuture<'a, Result<Option<LeaseTerm>, StoreError>> {
        closed()
    }

    fn thread<'a>(
        &'a self,
        _: &'a Scope,
        _: ThreadId,
    ) -> BoxFuture<'a, Result<Option<Thread>, StoreError>> {
        closed()
    }

    fn budget<'a>(
        &'a self,
        _: &'a Scope,
        _: BudgetId,
    ) -> BoxFuture<'a, Result<Option<Budget>, StoreError>> {
        closed()
    }

    fn held_budgets<'a>(
        &'a self,
        _: &'a Scope,
        _: Page,
    ) -> BoxFuture<'a, Result<Rows<Budget>, StoreError>> {
        closed()
    }

    fn content<'a>(
        &'a self,
        _: &'a Scope,
        _: Digest,
    ) -> BoxFuture<'a, Result<Option<Content>, StoreError>> {
        closed()
    }

    fn spec(&self, _: Digest) -> BoxFuture<'_, Result<Option<Vec<u8>>, StoreError>> {
        closed()
    }

    fn runs<'a>(
        &'a self,
        _: &'a Scope,
        _: Option<RunStatus>,
        _: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        closed()
    }

    fn children<'a>(
        &'a self,
        _: &'a Scope,
        _: RunId,
        _: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        closed()
    }

    fn orphans<'a>(
        &'a self,
        _: &'a Scope,
        _: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        closed()
    }

    fn steps<'a>(
        &'a self,
        _: &'a Scope,
        _: RunId,
        _: Page,
    ) -> BoxFuture<'a, Result<Rows<Step>, StoreError>> {
        closed()
    }

    fn questions<'a>(
        &'a self,
        _: &'a Scope,
        _: Option<RunId>,
        _: Option<QuestionStatus>,
        _: Page,
    ) -> BoxFuture<'a, Result<Rows<Question>, StoreError>> {
        closed()
    }

    fn due<'a>(
        &'a self,
        _: &'a Scope,
        _: Notice,
        _: Page,
    ) -> BoxFuture<'a, Result<Vec<Result<Question, DamagedRow>>, StoreError>> {
        closed()
    }

    fn remind<'a>(&'a self, _: &'a Scope, _: Reminder) -> BoxFuture<'a, Result<(), StoreError>> {
        closed()
    }

    fn approvals<'a>(
        &'a self,
        _: &'a Scope,
        _: QuestionId,
    ) -> BoxFuture<'a, Result<Vec<Approval>, StoreError>> {
        closed()
    }

    fn open_outcomes<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<OpenOutcome>, StoreError>> {
        closed()
    }

    fn events<'a>(
        &'a self,
        _: &'a Scope,
        _: EventFilter,
    ) -> BoxFuture<'a, Result<Vec<StoredEvent>, StoreError>> {
        closed()
    }

    fn erase<'a>(
        &'a self,
        _: &'a Scope,
        _: Digest,
        _: &'a str,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        closed()
    }
}
