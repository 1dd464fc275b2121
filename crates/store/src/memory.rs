//! The store in memory: for simulations, tests and short-lived embeddings. It keeps the same rows as SQLite.
//!
//! ```
//! use portcullis_domain::ports::{Entropy, Store};
//! use portcullis_domain::time::Timestamp;
//! use portcullis_store::memory::MemoryStore;
//!
//! struct Fixed;
//! impl Entropy for Fixed {
//!     fn fill(&self, bytes: &mut [u8]) {
//!         bytes.fill(7);
//!     }
//! }
//!
//! let store = MemoryStore::new(Timestamp::from_micros(0), &Fixed);
//! assert_eq!(store.instance(), store.handle(vec![]).instance());
//! ```

mod apply;
mod ledger;
mod raw;
mod read;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, ContentErased};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    Append, BoxFuture, Committed, Condition, DamagedRow, Durability, Entropy, EventFilter,
    LeaseTerm, NewEvent, Notice, Observer, OpenOutcome, Page, Reminder, Rows, Store, StoreError,
    StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::{Scope, Tenant};
use portcullis_domain::step::Step;
use portcullis_domain::stream::{Stream, Tip};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

use crate::admit::{self, Chain, Prepared};
use crate::{observe, stored};

use apply::View;
pub use raw::Raw;
use raw::State;
pub(crate) use read::{checked_content, checked_spec};

/// A fault that a test wants of the next append, or renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The medium fails before the commit: nothing is stored.
    BeforeCommit,
    /// The disk is full before the commit: nothing is stored.
    Full,
    /// The commit happens and its answer is lost.
    AfterCommit,
}

/// A handle to tables in memory. Handles made by [`MemoryStore::handle`] share them.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    observers: Vec<Arc<dyn Observer>>,
}

struct Shared {
    instance: InstanceId,
    journal: JournalId,
    state: Mutex<Arc<State>>,
    faults: Mutex<VecDeque<Option<Fault>>>,
    renewal_faults: Mutex<VecDeque<Option<Fault>>>,
    /// Held from before the state is let go until the observers have seen the commit, so that they see
    /// commits in order.
    telling: Mutex<()>,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("instance", &self.shared.instance)
            .finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// A new installation with its first event.
    pub fn new(now: Timestamp, entropy: &dyn Entropy) -> Self {
        let instance = InstanceId::draw(now, entropy);
        let journal = JournalId::draw(now, entropy);
        let chain = Chain { instance, journal, tip: Tip::START };
        let mut state = State::default();
        let opened = admit::open_journal(&chain, &Tenant::local(), now)
            .and_then(|(event, payload)| stored::stored_event(&event, payload));
        // Its payload is one id, which can always be written.
        state.raw.events.extend(opened);
        state.index(instance);
        Self {
            shared: Arc::new(Shared {
                instance,
                journal,
                state: Mutex::new(Arc::new(state)),
                faults: Mutex::default(),
                renewal_faults: Mutex::default(),
                telling: Mutex::default(),
            }),
            observers: Vec::new(),
        }
    }

    /// Another handle to the same tables, with observers of its own.
    #[must_use]
    pub fn handle(&self, observers: Vec<Arc<dyn Observer>>) -> Self {
        Self { shared: Arc::clone(&self.shared), observers }
    }

    /// The same installation once more, as it is now: what is appended to one is not in the other.
    pub fn fork(&self) -> Result<Self, StoreError> {
        let state = self.snapshot()?;
        let Shared { instance, journal, .. } = *self.shared;
        Ok(Self {
            shared: Arc::new(Shared {
                instance,
                journal,
                state: Mutex::new(state),
                faults: Mutex::default(),
                renewal_faults: Mutex::default(),
                telling: Mutex::default(),
            }),
            observers: Vec::new(),
        })
    }

    /// Plans a fault for each of the next appends, of whatever handle; `None` lets one pass.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        if let Ok(mut planned) = self.shared.faults.lock() {
            planned.extend(faults);
        }
    }

    /// Plans a fault for each of the next renewals of a lease, of whatever handle; `None` lets one pass.
    pub fn plan_renewals(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        if let Ok(mut planned) = self.shared.renewal_faults.lock() {
            planned.extend(faults);
        }
    }

    /// How many of the planned renewals are still to come.
    #[must_use]
    pub fn planned_renewals(&self) -> usize {
        self.shared.renewal_faults.lock().map_or(0, |planned| planned.len())
    }

    /// Changes the raw tables behind the store's back, as somebody with an editor would.
    pub fn tamper<T>(&self, edit: impl FnOnce(&mut Raw) -> T) -> Result<T, StoreError> {
        let mut state = self.lock()?;
        let state = Arc::make_mut(&mut state);
        let edited = edit(&mut state.raw);
        state.index(self.shared.instance);
        Ok(edited)
    }

    fn lock(&self) -> Result<MutexGuard<'_, Arc<State>>, StoreError> {
        // After a panic the tables may hold half an append.
        self.shared.state.lock().map_err(|_| StoreError::Closed)
    }

    /// The tables as they are now; later appends do not change what is handed out.
    fn snapshot(&self) -> Result<Arc<State>, StoreError> {
        self.lock().map(|state| Arc::clone(&state))
    }

    fn next_fault(of: &Mutex<VecDeque<Option<Fault>>>) -> Option<Fault> {
        of.lock().ok().and_then(|mut planned| planned.pop_front()).flatten()
    }

    fn append_now(&self, scope: &Scope, append: Append) -> Result<Committed, StoreError> {
        // Nothing here survives the process: the answer is what a file's would be for this append alone.
        let durability = append.durability;
        let prepared = Prepared::of(append)?;
        let mut state = self.lock()?;
        let chain = Chain {
            instance: self.shared.instance,
            journal: self.shared.journal,
            tip: state.journal_tip()?,
        };
        let admitted = admit::admit(&mut View::of(&state), &chain, scope.tenant(), prepared)?;
        let fault = Self::next_fault(&self.shared.faults);
        match fault {
            Some(Fault::BeforeCommit) => return Err(StoreError::Medium { code: 0 }),
            Some(Fault::Full) => return Err(StoreError::Full),
            Some(Fault::AfterCommit) | None => {}
        }
        let events = apply::apply(Arc::make_mut(&mut state), scope.tenant(), admitted)?;
        let telling = self.shared.telling.lock();
        drop(state);
        observe::tell(&self.observers, &events);
        drop(telling);
        match fault {
            Some(_) => Err(StoreError::InDoubt),
            None => Ok(Committed { events, durability }),
        }
    }

    fn renew_now(
        &self,
        scope: &Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.lock()?;
        let held = state.run_state(run)?.filter(|held| held.run.tenant == *scope.tenant());
        let term = renewed(held.as_ref(), state.leases.get(&run).copied(), epoch, now, until)?;
        let fault = Self::next_fault(&self.shared.renewal_faults);
        match fault {
            Some(Fault::BeforeCommit) => return Err(StoreError::Medium { code: 0 }),
            Some(Fault::Full) => return Err(StoreError::Full),
            Some(Fault::AfterCommit) | None => {}
        }
        Arc::make_mut(&mut state).leases.insert(run, term);
        if fault.is_some() { Err(StoreError::InDoubt) } else { Ok(()) }
    }
}

/// The prolonged term of a lease that still runs.
///
/// # Errors
/// [`StoreError::NotFound`] or [`StoreError::LeaseLost`].
pub(crate) fn renewed(
    state: Option<&RunState>,
    term: Option<LeaseTerm>,
    epoch: Epoch,
    now: Timestamp,
    until: Timestamp,
) -> Result<LeaseTerm, StoreError> {
    let state = state.ok_or(StoreError::NotFound("run"))?;
    let held = state.run.holder.is_some() && state.run.epoch == epoch;
    let term = term.filter(|term| held && term.epoch == epoch && term.until > now);
    let term = term.ok_or(StoreError::LeaseLost)?;
    Ok(LeaseTerm { epoch, until: term.until.max(until) })
}

/// Whether a reminder is the first of its question, or of its grant, and still has a meaning.
///
/// # Errors
/// [`StoreError::NotFound`], [`StoreError::QuestionState`] or [`StoreError::Stale`].
pub(crate) fn can_remind(
    question: Option<&Question>,
    before: bool,
    reminder: Reminder,
) -> Result<(), StoreError> {
    let question = question.ok_or(StoreError::NotFound("question"))?;
    let status = question.status;
    if status != reminder.status || question.ends_at().is_none() {
        return Err(StoreError::QuestionState { status });
    }
    if before { Err(StoreError::Stale) } else { Ok(()) }
}

/// The append that erases a content.
pub(crate) fn erasure(instance: InstanceId, content: Digest, by: &str, at: Timestamp) -> Append {
    let body = Body::ContentErased(ContentErased { content, by: by.to_owned() });
    Append {
        condition: Condition::Late,
        events: vec![NewEvent { stream: Stream::from(instance), step: None, at, body }],
        contents: Vec::new(),
        specs: Vec::new(),
        durability: Durability::Synced,
    }
}

impl Store for MemoryStore {
    fn instance(&self) -> InstanceId {
        self.shared.instance
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        Box::pin(async move { self.append_now(scope, append) })
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.renew_now(scope, run, epoch, now, until) })
    }

    fn run<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<RunState>, StoreError>> {
        Box::pin(async move { self.snapshot()?.own_run(scope.tenant(), run) })
    }

    fn lease<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<LeaseTerm>, StoreError>> {
        Box::pin(async move {
            let state = self.snapshot()?;
            let own = state.own_run(scope.tenant(), run)?.is_some();
            Ok(state.leases.get(&run).copied().filter(|_| own))
        })
    }

    fn thread<'a>(
        &'a self,
        scope: &'a Scope,
        thread: ThreadId,
    ) -> BoxFuture<'a, Result<Option<Thread>, StoreError>> {
        Box::pin(async move {
            let thread = self.snapshot()?.thread(thread)?;
            Ok(thread.filter(|thread| thread.tenant == *scope.tenant()))
        })
    }

    fn budget<'a>(
        &'a self,
        scope: &'a Scope,
        budget: BudgetId,
    ) -> BoxFuture<'a, Result<Option<Budget>, StoreError>> {
        Box::pin(async move {
            let budget = self.snapshot()?.budget(budget)?;
            Ok(budget.filter(|budget| budget.tenant == *scope.tenant()))
        })
    }

    fn held_budgets<'a>(
        &'a self,
        scope: &'a Scope,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Budget>, StoreError>> {
        Box::pin(async move { self.snapshot()?.held_budgets(scope.tenant(), page) })
    }

    fn content<'a>(
        &'a self,
        scope: &'a Scope,
        digest: Digest,
    ) -> BoxFuture<'a, Result<Option<Content>, StoreError>> {
        Box::pin(async move { self.snapshot()?.own_content(scope.tenant(), digest) })
    }

    fn spec(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<u8>>, StoreError>> {
        Box::pin(async move { self.snapshot()?.checked_spec(digest) })
    }

    fn runs<'a>(
        &'a self,
        scope: &'a Scope,
        status: Option<RunStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        Box::pin(async move { self.snapshot()?.runs(scope.tenant(), status, page) })
    }

    fn children<'a>(
        &'a self,
        scope: &'a Scope,
        parent: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        Box::pin(async move { self.snapshot()?.children(scope.tenant(), parent, page) })
    }

    fn orphans<'a>(
        &'a self,
        scope: &'a Scope,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        Box::pin(async move { self.snapshot()?.orphans(scope.tenant(), page) })
    }

    fn steps<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Step>, StoreError>> {
        Box::pin(async move { self.snapshot()?.steps(scope.tenant(), run, page) })
    }

    fn questions<'a>(
        &'a self,
        scope: &'a Scope,
        run: Option<RunId>,
        status: Option<QuestionStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Question>, StoreError>> {
        Box::pin(async move { self.snapshot()?.questions(scope.tenant(), run, status, page) })
    }

    fn due<'a>(
        &'a self,
        scope: &'a Scope,
        notice: Notice,
        page: Page,
    ) -> BoxFuture<'a, Result<Vec<Result<Question, DamagedRow>>, StoreError>> {
        Box::pin(async move { self.snapshot()?.due(scope.tenant(), notice, page) })
    }

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut state = self.lock()?;
            let asked = state.own_question(scope.tenant(), reminder.question)?;
            let noted = (reminder.question, reminder.status);
            can_remind(asked.as_ref(), state.reminders.contains_key(&noted), reminder)?;
            Arc::make_mut(&mut state).reminders.insert(noted, reminder.at);
            Ok(())
        })
    }

    fn approvals<'a>(
        &'a self,
        scope: &'a Scope,
        question: QuestionId,
    ) -> BoxFuture<'a, Result<Vec<Approval>, StoreError>> {
        Box::pin(async move { self.snapshot()?.own_approvals(scope.tenant(), question) })
    }

    fn open_outcomes<'a>(
        &'a self,
        scope: &'a Scope,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Vec<OpenOutcome>, StoreError>> {
        Box::pin(async move { self.snapshot()?.open_outcomes(scope.tenant(), owner) })
    }

    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        filter: EventFilter,
    ) -> BoxFuture<'a, Result<Vec<StoredEvent>, StoreError>> {
        Box::pin(async move { self.snapshot()?.events(scope.tenant(), filter) })
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let append = erasure(self.shared.instance, content, by, at);
        Box::pin(async move { self.append_now(scope, append).map(drop) })
    }
}
