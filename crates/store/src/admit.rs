//! Admission: what an append may be, and what it becomes. Pure but for the look-ups of [`Base`].
//!
//! Every refusal of every back end is raised here, before anything is written. What comes out is complete:
//! the chained events, the rows as they are afterwards, the contents with the event that brought each.

mod budgets;
mod condition;
mod contents;
mod counts;
mod draft;
mod facts;
mod family;
mod outcomes;
mod prepare;
mod refold;

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, Event, JournalOpened};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::ports::{
    EventFilter, LeaseTerm, NewEvent, OpenOutcome, StoreError, StoredEvent,
};
use portcullis_domain::question::Question;
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Step;
use portcullis_domain::stream::{Link, Stream, Tip};
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

use draft::Draft;
use prepare::Payload;
pub(crate) use prepare::Prepared;

/// The most events of one append.
pub const MAX_EVENTS: usize = 256;

/// The largest content in bytes. Results are cut long before.
pub const MAX_CONTENT_BYTES: usize = 32 * 1024 * 1024;

/// The largest tool spec in bytes.
pub const MAX_SPEC_BYTES: usize = 1024 * 1024;

/// What admission has to look up. A back end answers from its write transaction.
pub(crate) trait Base {
    /// A run of any tenant.
    fn run(&mut self, run: RunId) -> Result<Option<RunState>, StoreError>;
    /// The term of a run's lease.
    fn lease(&mut self, run: RunId) -> Result<Option<LeaseTerm>, StoreError>;
    /// A thread of any tenant.
    fn thread(&mut self, thread: ThreadId) -> Result<Option<Thread>, StoreError>;
    /// A budget of any tenant.
    fn budget(&mut self, budget: BudgetId) -> Result<Option<Budget>, StoreError>;
    /// A question of any tenant.
    fn question(&mut self, question: QuestionId) -> Result<Option<Question>, StoreError>;
    /// Whether the run has this step.
    fn has_step(&mut self, run: RunId, step: StepId) -> Result<bool, StoreError>;
    /// Whose a content is and how long; no length once it was erased.
    fn content(&mut self, digest: Digest) -> Result<Option<(Tenant, Option<u64>)>, StoreError>;
    /// The questions about outcomes of an owner's calls that are neither answered for good nor closed.
    fn open_outcomes(
        &mut self,
        tenant: &Tenant,
        owner: &str,
    ) -> Result<Vec<OpenOutcome>, StoreError>;
    /// The canonical bytes of a spec.
    fn spec(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError>;
    /// Whether a spec is known.
    fn has_spec(&mut self, digest: Digest) -> Result<bool, StoreError>;
    /// The end of the installation's own stream.
    fn system_tip(&mut self) -> Result<Tip, StoreError>;
    /// A page of events; only an empty one is the end.
    fn stream_events(
        &mut self,
        tenant: &Tenant,
        filter: EventFilter,
    ) -> Result<Vec<StoredEvent>, StoreError>;
}

/// The journal that an append extends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) instance: InstanceId,
    pub(crate) journal: JournalId,
    pub(crate) tip: Tip,
}

/// A row as it is after an append, and whether the append makes it.
#[derive(Clone, Debug)]
pub(crate) struct Changed<T> {
    pub(crate) row: T,
    pub(crate) new: bool,
}

/// A content with the event that brought it.
#[derive(Clone, Debug)]
pub(crate) struct Brought {
    pub(crate) content: Content,
    pub(crate) stream: Stream,
    pub(crate) stream_seq: u64,
}

/// What becomes of the term of the run's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TermChange {
    Keep,
    Set(RunId, LeaseTerm),
    Remove(RunId),
}

/// An admitted append: everything that is to be stored, each row once in its last version.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) events: Vec<Event>,
    /// The payload's bytes of each event.
    pub(crate) payloads: Vec<Vec<u8>>,
    /// The journal's new end.
    pub(crate) tip: Tip,
    pub(crate) run: Option<Changed<RunState>>,
    /// The run's status before the append.
    pub(crate) status_before: Option<RunStatus>,
    pub(crate) steps: Vec<Changed<Step>>,
    pub(crate) questions: Vec<Changed<Question>>,
    pub(crate) approvals: Vec<Approval>,
    pub(crate) thread: Option<Changed<Thread>>,
    pub(crate) budgets: Vec<Changed<Budget>>,
    pub(crate) contents: Vec<Brought>,
    pub(crate) specs: Vec<(Digest, Vec<u8>)>,
    pub(crate) erased: Vec<Digest>,
    pub(crate) term: TermChange,
}

/// Judges an append and computes what it stores.
///
/// # Errors
/// The exact [`StoreError`]; nothing has happened then.
pub(crate) fn admit(
    base: &mut dyn Base,
    chain: &Chain,
    tenant: &Tenant,
    prepared: Prepared,
) -> Result<Admitted, StoreError> {
    let Prepared { append, payloads } = prepared;
    let subject = condition::check(base, chain.instance, tenant, &append)?;
    let mut draft = Draft::begin(base, *chain, tenant, &append.condition, subject);
    for (event, payload) in append.events.into_iter().zip(payloads) {
        draft.push(event, payload)?;
    }
    draft.finish(append.contents, append.specs)
}

/// The first event of an installation.
///
/// # Errors
/// [`StoreError::NotAdmitted`] when its payload cannot be written, which cannot be.
pub(crate) fn open_journal(
    chain: &Chain,
    tenant: &Tenant,
    at: Timestamp,
) -> Result<(Event, Vec<u8>), StoreError> {
    let body = Body::JournalOpened(JournalOpened { journal: chain.journal });
    let payload = Payload::of(&body)?;
    let new = NewEvent { stream: chain.instance.into(), step: None, at, body };
    Ok((link(chain, tenant, Tip::START, new, payload.digest)?, payload.bytes))
}

/// Chains one event to its stream and to the journal.
fn link(
    chain: &Chain,
    tenant: &Tenant,
    stream: Tip,
    new: NewEvent,
    payload: Digest,
) -> Result<Event, StoreError> {
    let next = |tip: Tip| tip.seq.checked_add(1).ok_or(StoreError::NotAdmitted);
    let link = Link {
        instance: chain.instance,
        journal: chain.journal,
        journal_seq: next(chain.tip)?,
        journal_prev: chain.tip.hash,
        tenant: tenant.clone(),
        stream: new.stream,
        stream_seq: next(stream)?,
        stream_prev: stream.hash,
        step: new.step,
        at: new.at,
        kind: new.body.name().to_owned(),
        version: new.body.version(),
        payload,
    };
    let hash = link.hash();
    Ok(Event { link, body: new.body, hash })
}

/// The rows of the fold, in the order in which they are stored.
impl Admitted {
    /// The run's row, if the append changed it.
    pub(crate) fn run_row(&self) -> Option<Changed<&Run>> {
        self.run.as_ref().map(|run| Changed { row: &run.row.run, new: run.new })
    }
}
