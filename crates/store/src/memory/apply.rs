//! Putting an admitted append into the tables in memory: checked first, then all of it.

use portcullis_canon::Digest;
use portcullis_domain::budget::Budget;
use portcullis_domain::event::Event;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::ports::{EventFilter, LeaseTerm, OpenOutcome, StoreError, StoredEvent};
use portcullis_domain::question::Question;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Step;
use portcullis_domain::stream::{Stream, Tip};
use portcullis_domain::thread::Thread;

use super::raw::State;
use crate::admit::{Admitted, Base, Changed, TermChange};
use crate::stored;

/// The look-ups of admission.
pub(super) struct View<'a>(&'a State);

impl<'a> View<'a> {
    pub(super) fn of(state: &'a State) -> Self {
        Self(state)
    }
}

impl Base for View<'_> {
    fn run(&mut self, run: RunId) -> Result<Option<RunState>, StoreError> {
        self.0.run_state(run)
    }

    fn lease(&mut self, run: RunId) -> Result<Option<LeaseTerm>, StoreError> {
        Ok(self.0.leases.get(&run).copied())
    }

    fn thread(&mut self, thread: ThreadId) -> Result<Option<Thread>, StoreError> {
        self.0.thread(thread)
    }

    fn budget(&mut self, budget: BudgetId) -> Result<Option<Budget>, StoreError> {
        self.0.budget(budget)
    }

    fn question(&mut self, question: QuestionId) -> Result<Option<Question>, StoreError> {
        self.0.question(question)
    }

    fn has_step(&mut self, run: RunId, step: StepId) -> Result<bool, StoreError> {
        let row = self.0.row(Step::TABLE, &[Cell::Blob(step.as_bytes().to_vec())]);
        Ok(row.is_some_and(|row| row.get(1) == Some(&Cell::Blob(run.as_bytes().to_vec()))))
    }

    fn content(&mut self, digest: Digest) -> Result<Option<(Tenant, Option<u64>)>, StoreError> {
        let Some(content) = self.0.raw.contents.get(digest.as_bytes().as_slice()) else {
            return Ok(None);
        };
        let tenant = Tenant::try_from(content.tenant.clone())
            .map_err(|_| StoreError::Damaged { table: "contents" })?;
        let size = u64::try_from(content.bytes.len()).unwrap_or(u64::MAX);
        Ok(Some((tenant, (!content.is_erased()).then_some(size))))
    }

    fn open_outcomes(
        &mut self,
        tenant: &Tenant,
        owner: &str,
    ) -> Result<Vec<OpenOutcome>, StoreError> {
        self.0.open_outcomes(tenant, owner)
    }

    fn spec(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.checked_spec(digest)
    }

    fn has_spec(&mut self, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.0.raw.specs.contains_key(digest.as_bytes().as_slice()))
    }

    fn system_tip(&mut self) -> Result<Tip, StoreError> {
        self.0.system.ok_or(StoreError::Damaged { table: "events" })
    }

    fn stream_events(
        &mut self,
        tenant: &Tenant,
        filter: EventFilter,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.0.events(tenant, filter)
    }
}

/// A row that is to be put.
struct Put {
    table: &'static str,
    key: Vec<Cell>,
    cells: Vec<Cell>,
    new: bool,
}

impl Put {
    fn of<R: Row>(row: &R, new: bool) -> Self {
        let cells = row.cells();
        Self { table: R::TABLE, key: cells.iter().take(R::KEY).cloned().collect(), cells, new }
    }
}

/// Stores everything and returns the events.
///
/// # Errors
/// Nothing is stored when a new row is there already, or an old one is not.
pub(super) fn apply(
    state: &mut State,
    tenant: &Tenant,
    admitted: Admitted,
) -> Result<Vec<Event>, StoreError> {
    let puts = puts(&admitted);
    for put in &puts {
        match (put.new, state.row(put.table, &put.key).is_some()) {
            (true, true) => return Err(StoreError::NotAdmitted),
            (false, false) => return Err(StoreError::Damaged { table: put.table }),
            _ => {}
        }
    }
    let mut events = Vec::with_capacity(admitted.events.len());
    for (event, payload) in admitted.events.iter().zip(admitted.payloads) {
        events.push(stored::stored_event(event, payload)?);
    }
    let mut contents = Vec::with_capacity(admitted.contents.len());
    for brought in &admitted.contents {
        contents.push(stored::stored_content(tenant, brought)?);
    }
    // Nothing below can fail.
    for event in &admitted.events {
        if event.link.stream == Stream::from(event.link.instance) {
            state.system = Some(Tip { seq: event.link.stream_seq, hash: event.hash });
        }
    }
    state.raw.events.extend(events);
    state.raw.contents.extend(contents.into_iter().map(|row| (row.digest.clone(), row)));
    let specs =
        admitted.specs.into_iter().map(|(digest, bytes)| (digest.as_bytes().to_vec(), bytes));
    state.raw.specs.extend(specs);
    for digest in admitted.erased {
        if let Some(row) = state.raw.contents.get_mut(digest.as_bytes().as_slice()) {
            row.salt.clear();
            row.bytes.clear();
        }
    }
    for put in puts {
        state.put(put);
    }
    for question in &admitted.questions {
        state.list_outcome(&question.row);
    }
    match admitted.term {
        TermChange::Keep => {}
        TermChange::Set(run, term) => drop(state.leases.insert(run, term)),
        TermChange::Remove(run) => drop(state.leases.remove(&run)),
    }
    if let Some(Changed { row, .. }) = admitted.run {
        state.states.insert(row.run.id, row);
    }
    Ok(admitted.events)
}

fn puts(admitted: &Admitted) -> Vec<Put> {
    let mut puts = Vec::new();
    puts.extend(admitted.run_row().map(|run| Put::of(run.row, run.new)));
    puts.extend(admitted.steps.iter().map(|step| Put::of(&step.row, step.new)));
    puts.extend(admitted.questions.iter().map(|question| Put::of(&question.row, question.new)));
    puts.extend(admitted.approvals.iter().map(|approval| Put::of(approval, true)));
    puts.extend(admitted.thread.iter().map(|thread| Put::of(&thread.row, thread.new)));
    puts.extend(admitted.budgets.iter().map(|budget| Put::of(&budget.row, budget.new)));
    puts
}

impl State {
    fn put(&mut self, put: Put) {
        let rows = self.raw.rows.entry(put.table).or_default();
        match self.places.get(&(put.table, put.key.clone())) {
            Some(place) => {
                if let Some(row) = rows.get_mut(*place) {
                    *row = put.cells;
                }
            }
            None => {
                self.places.insert((put.table, put.key), rows.len());
                rows.push(put.cells);
            }
        }
    }
}
