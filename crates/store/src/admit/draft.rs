//! The append in the making: each event chained, folded, and its rows gathered.

use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, Event, RunCreated};
use portcullis_domain::fold::{FoldError, RunState};
use portcullis_domain::id::{BudgetId, RunId, ThreadId};
use portcullis_domain::ports::{Condition, LeaseTerm, NewEvent, StoreError, TakeLease};
use portcullis_domain::question::Question;
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Step;
use portcullis_domain::stream::{Stream, StreamKind, Tip};
use portcullis_domain::thread::Thread;

use super::budgets::Budgets;
use super::condition::Subject;
use super::contents::{Named, contents, specs};
use super::prepare::Payload;
use super::{Admitted, Base, Chain, Changed, TermChange, counts, family, link};

pub(super) struct Draft<'a> {
    base: &'a mut dyn Base,
    chain: Chain,
    tenant: &'a Tenant,
    take: Option<TakeLease>,
    /// The run that the append is about; `None` for the installation.
    run: Option<RunId>,
    had_holder: bool,
    state: Option<Changed<RunState>>,
    /// Whether an event of the run's stream was pushed.
    touched: bool,
    thread: Option<Changed<Thread>>,
    budgets: Budgets,
    system: Option<Tip>,
    named: Named,
    out: Admitted,
}

impl<'a> Draft<'a> {
    pub(super) fn begin(
        base: &'a mut dyn Base,
        chain: Chain,
        tenant: &'a Tenant,
        condition: &Condition,
        subject: Subject,
    ) -> Self {
        let take = match condition {
            Condition::Driver { take, .. } => *take,
            _ => None,
        };
        let (run, state) = match subject {
            Subject::Run(state) => (Some(state.run.id), Some(Changed { row: *state, new: false })),
            Subject::NewRun(run) => (Some(run), None),
            Subject::System => (None, None),
        };
        let status_before = state.as_ref().map(|state| state.row.run.status);
        let had_holder = state.as_ref().is_some_and(|state| state.row.run.holder.is_some());
        Self {
            base,
            chain,
            tenant,
            take,
            run,
            had_holder,
            state,
            touched: false,
            thread: None,
            budgets: Budgets::default(),
            system: None,
            named: Named::default(),
            out: Admitted {
                events: Vec::new(),
                payloads: Vec::new(),
                tip: chain.tip,
                run: None,
                status_before,
                steps: Vec::new(),
                questions: Vec::new(),
                approvals: Vec::new(),
                thread: None,
                budgets: Vec::new(),
                contents: Vec::new(),
                specs: Vec::new(),
                erased: Vec::new(),
                term: TermChange::Keep,
            },
        }
    }

    /// Chains and folds one event.
    pub(super) fn push(&mut self, new: NewEvent, payload: Payload) -> Result<(), StoreError> {
        let tip = self.stream_tip(&new)?;
        let event = link(&self.chain, self.tenant, tip, new, payload.digest)?;
        match event.link.stream.kind {
            StreamKind::Run => self.fold_run(&event)?,
            StreamKind::Thread => self.fold_thread(&event)?,
            StreamKind::System => self.fold_system(&event)?,
            StreamKind::Budget => {
                let state = self.state.as_ref().map(|state| &state.row);
                self.budgets.fold(self.base, self.tenant, state, &event)?;
            }
            StreamKind::Grant | StreamKind::Channel => return Err(StoreError::NotAdmitted),
        }
        self.named.read(&event);
        self.chain.tip = Tip { seq: event.link.journal_seq, hash: event.hash };
        self.out.events.push(event);
        self.out.payloads.push(payload.bytes);
        Ok(())
    }

    /// Checks contents and specs and hands out the whole.
    pub(super) fn finish(
        mut self,
        brought: Vec<Content>,
        offered: Vec<Vec<u8>>,
    ) -> Result<Admitted, StoreError> {
        if self.state.as_ref().is_some_and(|state| state.row.complete().is_err()) {
            return Err(StoreError::NotAdmitted);
        }
        self.check_counts()?;
        self.out.contents = contents(self.base, self.tenant, &self.named, brought)?;
        let frozen: &[_] = match &self.state {
            Some(Changed { row, new: false }) => &row.run.tools,
            _ => &[],
        };
        self.out.specs = specs(self.base, &self.named, frozen, offered)?;
        self.out.term = self.term()?;
        let state = self.state.as_ref().map(|state| &state.row);
        self.out.budgets =
            std::mem::take(&mut self.budgets).finish(self.base, self.tenant, state)?;
        self.out.tip = self.chain.tip;
        self.out.run = self.state.filter(|_| self.touched);
        self.out.thread = self.thread.filter(|_| {
            self.out.events.iter().any(|event| event.link.stream.kind == StreamKind::Thread)
        });
        Ok(self.out)
    }

    /// The end of the event's stream, once the event is seen to belong into this append.
    fn stream_tip(&mut self, new: &NewEvent) -> Result<Tip, StoreError> {
        match new.stream.kind {
            StreamKind::Run => {
                if self.run.map(Stream::from) != Some(new.stream) {
                    return Err(StoreError::NotAdmitted);
                }
                Ok(self
                    .state
                    .as_ref()
                    .map_or(Tip::START, |s| Tip { seq: s.row.run.seq, hash: s.row.run.hash }))
            }
            StreamKind::Thread => {
                let opens = matches!(new.body, Body::ThreadOpened(_));
                let thread = self.load_thread(ThreadId::from_bytes(new.stream.id))?;
                match thread {
                    // Somebody else opened it first.
                    Some(_) if opens => Err(StoreError::Stale),
                    Some(thread) => Ok(Tip { seq: thread.row.seq, hash: thread.row.hash }),
                    None if opens => Ok(Tip::START),
                    None => Err(StoreError::NotFound("thread")),
                }
            }
            StreamKind::System => {
                if new.stream != Stream::from(self.chain.instance) {
                    return Err(StoreError::NotAdmitted);
                }
                match self.system {
                    Some(tip) => Ok(tip),
                    None => self.base.system_tip(),
                }
            }
            StreamKind::Budget => {
                let opens = matches!(new.body, Body::BudgetOpened(_));
                let id = BudgetId::from_bytes(new.stream.id);
                self.budgets.tip(self.base, self.tenant, id, opens)
            }
            StreamKind::Grant | StreamKind::Channel => Err(StoreError::NotAdmitted),
        }
    }

    /// The append's one thread.
    fn load_thread(&mut self, id: ThreadId) -> Result<Option<&Changed<Thread>>, StoreError> {
        match &self.thread {
            Some(thread) if thread.row.id != id => return Err(StoreError::NotAdmitted),
            Some(_) => {}
            None => {
                self.thread = self.base.thread(id)?.map(|row| Changed { row, new: false });
                let foreign = |thread: &Changed<Thread>| thread.row.tenant != *self.tenant;
                if self.thread.as_ref().is_some_and(foreign) {
                    return Err(StoreError::NotFound("thread"));
                }
            }
        }
        Ok(self.thread.as_ref())
    }

    fn fold_run(&mut self, event: &Event) -> Result<(), StoreError> {
        self.touched = true;
        let Some(state) = &mut self.state else {
            let state = RunState::begin(event).map_err(|_| StoreError::NotAdmitted)?;
            if let Body::RunCreated(body) = &event.body {
                self.check_family(state.run.id, body)?;
            }
            self.state = Some(Changed { row: state, new: true });
            return Ok(());
        };
        if matches!(event.body, Body::OutcomeLate(_)) {
            let step = event.link.step.ok_or(StoreError::NotAdmitted)?;
            if !self.base.has_step(state.row.run.id, step)? {
                return Err(StoreError::NotAdmitted);
            }
        }
        let status = state.row.run.status;
        let changed = state.row.apply(event).map_err(|error| match error {
            FoldError::AfterEnd(_) => StoreError::RunState { status },
            _ => StoreError::NotAdmitted,
        })?;
        let opened = matches!(event.body, Body::StepOpened(_));
        let asked = match &event.body {
            Body::QuestionAsked(body) => Some(body.question),
            _ => None,
        };
        for step in changed.steps {
            // The first of a batch changes with the opening of the others.
            let new = opened && Some(step.id) == event.link.step;
            put(&mut self.out.steps, step, new, |step: &Step| step.id);
        }
        for question in changed.questions {
            let new = Some(question.id) == asked;
            put(&mut self.out.questions, question, new, |question: &Question| question.id);
        }
        self.out.approvals.extend(changed.approval);
        Ok(())
    }

    /// A new run's thread and parent must be there, and its place in the tree must be the true one.
    fn check_family(&mut self, run: RunId, body: &RunCreated) -> Result<(), StoreError> {
        match self.load_thread(body.thread)? {
            None => return Err(StoreError::NotFound("thread")),
            Some(thread) if thread.row.owner != body.owner => return Err(StoreError::NotAdmitted),
            Some(_) => {}
        }
        family::created(self.base, self.tenant, run, body)
    }

    fn fold_thread(&mut self, event: &Event) -> Result<(), StoreError> {
        if let Body::ThreadOpened(_) = event.body {
            let thread = Thread::begin(event).map_err(|_| StoreError::NotAdmitted)?;
            self.thread = Some(Changed { row: thread, new: true });
            return Ok(());
        }
        let state = self.state.as_ref().map(|state| &state.row).ok_or(StoreError::NotAdmitted)?;
        // Only a run of the thread labels it, with what one of its own steps read.
        let fits = match &event.body {
            Body::ThreadLabelled(body) => {
                state.run.id == body.run
                    && Stream::from(state.run.thread) == event.link.stream
                    && state.batch.iter().any(|step| step.id == body.step)
            }
            _ => counts::fits(state, &self.out.events, event),
        };
        if !fits {
            return Err(StoreError::NotAdmitted);
        }
        let thread = self.thread.as_mut().ok_or(StoreError::NotFound("thread"))?;
        thread.row.apply(event).map_err(|error| match error {
            FoldError::Bounded(limit) => StoreError::ThreadBounded { limit },
            _ => StoreError::NotAdmitted,
        })
    }

    /// In a conversation that is counted, everything is that has to be. Whoever left it out looked before it was.
    fn check_counts(&mut self) -> Result<(), StoreError> {
        let countable = counts::is_countable(&self.out.events);
        let run = self.state.as_ref().map(|state| state.row.run.thread);
        let Some(thread) = run.filter(|_| countable) else { return Ok(()) };
        let counted = self.load_thread(thread)?.is_some_and(|thread| thread.row.tally.is_some());
        if counted && !counts::are_whole(&self.out.events) {
            return Err(StoreError::Stale);
        }
        Ok(())
    }

    fn fold_system(&mut self, event: &Event) -> Result<(), StoreError> {
        let Body::ContentErased(body) = &event.body else { return Err(StoreError::NotAdmitted) };
        match self.base.content(body.content)? {
            Some((tenant, Some(_))) if tenant == *self.tenant => {}
            _ => return Err(StoreError::NotFound("content")),
        }
        if self.out.erased.contains(&body.content) {
            return Err(StoreError::NotFound("content"));
        }
        self.out.erased.push(body.content);
        self.system = Some(Tip { seq: event.link.stream_seq, hash: event.hash });
        Ok(())
    }

    /// What becomes of the lease's term: soft state that follows the fold's epoch and holder.
    fn term(&self) -> Result<TermChange, StoreError> {
        let Some(state) = self.state.as_ref().filter(|_| self.touched) else {
            return if self.take.is_some() {
                Err(StoreError::NotAdmitted)
            } else {
                Ok(TermChange::Keep)
            };
        };
        let run = &state.row.run;
        let acquired =
            self.out.events.iter().filter(|e| matches!(e.body, Body::LeaseAcquired(_))).count();
        if acquired != usize::from(self.take.is_some()) {
            return Err(StoreError::NotAdmitted);
        }
        Ok(match (&run.holder, self.take) {
            (Some(_), Some(take)) => {
                TermChange::Set(run.id, LeaseTerm { epoch: run.epoch, until: take.until })
            }
            (Some(_), None) => TermChange::Keep,
            (None, _) if self.had_holder => TermChange::Remove(run.id),
            (None, _) => TermChange::Keep,
        })
    }
}

/// Keeps the last version of a row, in the order of first change.
fn put<T, K: PartialEq>(rows: &mut Vec<Changed<T>>, row: T, new: bool, key: impl Fn(&T) -> K) {
    match rows.iter_mut().find(|old| key(&old.row) == key(&row)) {
        Some(old) => old.row = row,
        None => rows.push(Changed { row, new }),
    }
}
