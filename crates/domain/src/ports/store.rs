//! The port of the store: conditional appends, reads, and the raw rows that `verify` walks.

use portcullis_canon::Digest;

use crate::approval::Approval;
use crate::budget::{Budget, Cap};
use crate::content::Content;
use crate::event::{Body, Event};
use crate::fold::RunState;
use crate::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, StepId, ThreadId};
use crate::lease::Epoch;
use crate::ports::BoxFuture;
use crate::question::{Question, QuestionStatus};
use crate::row::{Cell, RowError};
use crate::run::{Run, RunStatus};
use crate::scope::{Scope, Tenant};
use crate::step::{Admitted, Step};
use crate::stream::{Link, Stream, StreamKind, payload_digest};
use crate::tally::ThreadLimit;
use crate::thread::Thread;
use crate::time::Timestamp;

/// A fact that is to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The stream.
    pub stream: Stream,
    /// The step, if it is about one.
    pub step: Option<StepId>,
    /// When.
    pub at: Timestamp,
    /// The fact.
    pub body: Body,
}

/// Taking a lease, judged inside the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeLease {
    /// The wall clock at the taker.
    pub now: Timestamp,
    /// When the new lease ends unless it is renewed.
    pub until: Timestamp,
    /// True when the taker has proof that the holder of the state it saw is dead.
    pub holder_dead: bool,
}

/// What must hold inside the transaction. There are these four kinds and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A driver goes on with a run: nothing may have been appended since it looked.
    Driver {
        /// The run.
        run: RunId,
        /// Events in the run's stream as the driver saw it; zero creates the run.
        seq: u64,
        /// The driver's epoch as it was before this append.
        epoch: Epoch,
        /// Takes the lease in the same transaction.
        take: Option<TakeLease>,
        /// The lease must still run at this wall-clock instant.
        live_at: Option<Timestamp>,
        /// The thread's label sequence must still be this.
        label_seq: Option<u64>,
    },
    /// A person acts on a run, whoever drives it.
    Operator {
        /// The run.
        run: RunId,
        /// The statuses in which the act makes sense.
        statuses: Vec<RunStatus>,
        /// The open question and the digest that the person saw.
        question: Option<(QuestionId, Digest)>,
    },
    /// Time ended something.
    Sweep {
        /// The run.
        run: RunId,
        /// The question that is due, open or granted.
        question: QuestionId,
        /// Its status as the sweep saw it.
        status: QuestionStatus,
        /// The wall clock at the sweeper.
        now: Timestamp,
        /// When it was due; now has to be later.
        due: Timestamp,
    },
    /// Adds what changes no run: a late outcome, the end of an attempt at a call of a model, or the fact that a content
    /// was erased.
    Late,
}

/// Whether the caller waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The append is synced before the answer: it survives a loss of power.
    Synced,
    /// The append is written before the answer, and synced by the next one that is: it survives a crash of
    /// this process.
    Written,
}

/// One atomic append: all of it or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// What must hold.
    pub condition: Condition,
    /// The facts, in order.
    pub events: Vec<NewEvent>,
    /// The contents that they name and that are not stored yet.
    pub contents: Vec<Content>,
    /// Canonical bytes of tool specs that they name; known ones are kept as they are.
    pub specs: Vec<Vec<u8>>,
    /// Whether the caller waits for the disk.
    pub durability: Durability,
}

/// What was committed.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The events with their links and hashes, in order.
    pub events: Vec<Event>,
    /// How the append was made durable.
    pub durability: Durability,
}

/// What an error asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Look again and try again.
    Retry,
    /// The answer is no.
    Refuse,
    /// A person has to do something.
    Operator,
    /// The program is wrong.
    Bug,
}

/// Why a store did not do what it was asked. Except for [`StoreError::InDoubt`], nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing in this scope.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// Something was appended since the caller looked.
    #[error("something else was recorded meanwhile; look again")]
    Stale,
    /// The caller's lease is over, or was never its own.
    #[error("another driver holds this run, or this one's lease ended")]
    LeaseLost,
    /// Somebody else holds the lease.
    #[error("another driver holds this run until {until}")]
    Leased {
        /// When its lease ends unless renewed.
        until: Timestamp,
    },
    /// The run is in another status than the act needs.
    #[error("the run is {0}", .status.as_str())]
    RunState {
        /// The status.
        status: RunStatus,
    },
    /// The question is not open, or not the one that was shown.
    #[error("the question is {0}", .status.as_str())]
    QuestionState {
        /// The status.
        status: QuestionStatus,
    },
    /// The digest that the person saw is not the question's.
    #[error("the question has changed since it was shown; look again")]
    DigestChanged,
    /// The thread has read more since the policy looked.
    #[error("the thread has read more since the policy looked")]
    LabelsMoved,
    /// A call that changes something was to start while the outcome of another call of the same tool, for the same
    /// owner, waits for an answer.
    #[error(
        "it is not known what an earlier call of this tool did; answer {question} first, or resume its run"
    )]
    OutcomeOpen {
        /// The question about it.
        question: QuestionId,
    },
    /// A budget has no room for an attempt at a call of a model: what is spent, held and projected is beyond a cap.
    #[error("a budget has no room left for this call: {}", .cap.as_str())]
    BudgetSpent {
        /// The budget.
        budget: BudgetId,
        /// What it has no room of.
        cap: Cap,
    },
    /// A limit of the conversation is met, so that no call begins and nobody is asked about one.
    #[error("a limit of the conversation is met: {}", .limit.refusal().as_str())]
    ThreadBounded {
        /// Which.
        limit: ThreadLimit,
    },
    /// The run that started this one has ended, so this one may do nothing more but end.
    #[error("the run that started this one has ended; this one is to end too")]
    ParentEnded,
    /// The sweep came too early.
    #[error("the question is not due yet")]
    NotDue,
    /// The append does not fit the fold, names what it does not bring, or brings what was erased.
    #[error("the append does not fit the state of its run")]
    NotAdmitted,
    /// A newer program has shut out writers of this version.
    #[error("a newer version of this program has taken over this store; update this one")]
    WriterTooOld,
    /// A row cannot be read.
    #[error("a stored row of `{table}` is damaged; run `portcullis verify`")]
    Damaged {
        /// The table.
        table: &'static str,
    },
    /// No room.
    #[error("the disk is full; make room and try again")]
    Full,
    /// Another process holds the store too long.
    #[error("the store is busy; try again")]
    Busy,
    /// The handle, or the file by now, is for reading.
    #[error("the store can only be read here; open it where and as who may write")]
    ReadOnly,
    /// How commits reach the disk could not be set, so that nothing could be promised of one.
    #[error("how records reach the disk could not be set, so nothing was stored")]
    SyncLevel,
    /// The store could not be opened once more.
    #[error("the store could not be opened again ({why})")]
    NotOpened {
        /// The back end's stable name of the refusal.
        why: &'static str,
    },
    /// The medium failed before anything was committed.
    #[error("the store cannot be read or written (code {code})")]
    Medium {
        /// The back end's own number for it; SQLite's extended code, zero in memory.
        code: i32,
    },
    /// The file that was opened is no longer at its path.
    #[error(
        "the database was moved, removed or replaced while it was open; put it back or start again"
    )]
    FileMoved,
    /// The commit failed midway: it may or may not have happened. The handle is closed; open and look again.
    #[error("it is not known whether the last record was stored; look again")]
    InDoubt,
    /// The handle is closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// What the error asks of the caller.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Stale | Self::LabelsMoved | Self::Busy | Self::InDoubt => Disposition::Retry,
            Self::NotFound(_)
            | Self::LeaseLost
            | Self::Leased { .. }
            | Self::RunState { .. }
            | Self::QuestionState { .. }
            | Self::DigestChanged
            | Self::OutcomeOpen { .. }
            | Self::BudgetSpent { .. }
            | Self::ThreadBounded { .. }
            | Self::ParentEnded
            | Self::NotDue => Disposition::Refuse,
            Self::WriterTooOld
            | Self::Damaged { .. }
            | Self::Full
            | Self::FileMoved
            | Self::ReadOnly
            | Self::NotOpened { .. }
            | Self::Medium { .. }
            | Self::Closed => Disposition::Operator,
            Self::NotAdmitted | Self::SyncLevel => Disposition::Bug,
        }
    }
}

/// The most rows of one page.
pub const MAX_PAGE: u32 = 500;

/// A page of a list. `limit` is 1 to [`MAX_PAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Rows to skip.
    pub offset: u64,
    /// Rows to return at most.
    pub limit: u32,
}

/// A list's rows and how many there are in all. A damaged row is an `Err` in its place.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    /// The rows of the page.
    pub rows: Vec<Result<T, DamagedRow>>,
    /// All rows that the list has, counted.
    pub total: u64,
}

/// A row that cannot be read: shown as such, and never in the way of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// The primary key, as text.
    pub key: String,
    /// The first column that does not fit.
    pub column: &'static str,
}

/// A lease as soft state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerm {
    /// Whose.
    pub epoch: Epoch,
    /// Until when.
    pub until: Timestamp,
}

/// A question about an outcome that is not known yet, with the call that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOutcome {
    /// The question.
    pub question: QuestionId,
    /// The call.
    pub call: Admitted,
}

/// What of the questions that end by themselves is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The wall clock at the sweeper.
    pub now: Timestamp,
    /// People are reminded of what ends up to this instant.
    pub until: Timestamp,
}

/// That people were reminded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// Of this question, or of its grant.
    pub question: QuestionId,
    /// `open` for a question, `granted` for a grant.
    pub status: QuestionStatus,
    /// When.
    pub at: Timestamp,
}

/// Which events to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFilter {
    /// Only this stream.
    pub stream: Option<Stream>,
    /// Only events after this journal sequence.
    pub after: u64,
    /// At most this many, 1 to [`MAX_PAGE`].
    pub limit: u32,
}

/// Sees events after their commit, in order. It must not block and cannot fail a commit.
pub trait Observer: Send + Sync {
    /// These events were committed together.
    fn committed(&self, events: &[Event]);
}

/// Stores and reads. Every call is one transaction.
pub trait Store: Send + Sync {
    /// The installation, which every hash covers.
    fn instance(&self) -> InstanceId;

    /// Appends all or nothing.
    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>>;

    /// Prolongs a lease that still runs. Soft state: no event.
    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// A run's state as the fold has it; `None` when there is no such run in this scope.
    fn run<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<RunState>, StoreError>>;

    /// The term of a run's lease, if one was ever taken.
    fn lease<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<LeaseTerm>, StoreError>>;

    /// A thread.
    fn thread<'a>(
        &'a self,
        scope: &'a Scope,
        thread: ThreadId,
    ) -> BoxFuture<'a, Result<Option<Thread>, StoreError>>;

    /// A budget.
    fn budget<'a>(
        &'a self,
        scope: &'a Scope,
        budget: BudgetId,
    ) -> BoxFuture<'a, Result<Option<Budget>, StoreError>>;

    /// Budgets in which something is held, in the order in which they were opened.
    fn held_budgets<'a>(
        &'a self,
        scope: &'a Scope,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Budget>, StoreError>>;

    /// A content; `None` when it was erased or never stored here.
    fn content<'a>(
        &'a self,
        scope: &'a Scope,
        digest: Digest,
    ) -> BoxFuture<'a, Result<Option<Content>, StoreError>>;

    /// The canonical bytes of a tool spec, checked against the digest.
    fn spec(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<u8>>, StoreError>>;

    /// Runs, newest first.
    fn runs<'a>(
        &'a self,
        scope: &'a Scope,
        status: Option<RunStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>>;

    /// The runs that a run started, in the order in which they were created.
    fn children<'a>(
        &'a self,
        scope: &'a Scope,
        parent: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>>;

    /// Runs that have not ended though the run that started them has, in the order in which they were created.
    fn orphans<'a>(
        &'a self,
        scope: &'a Scope,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>>;

    /// A run's steps in order.
    fn steps<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Step>, StoreError>>;

    /// Questions in the order in which they were asked.
    fn questions<'a>(
        &'a self,
        scope: &'a Scope,
        run: Option<RunId>,
        status: Option<QuestionStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Question>, StoreError>>;

    /// Questions and grants whose time is over, and those that end within the notice and that nobody was reminded of
    /// yet: in the order in which they end. Each leaves the list by [`Store::append`] or by [`Store::remind`].
    fn due<'a>(
        &'a self,
        scope: &'a Scope,
        notice: Notice,
        page: Page,
    ) -> BoxFuture<'a, Result<Vec<Result<Question, DamagedRow>>, StoreError>>;

    /// Notes, once for each question and once for each grant, that people were reminded of its end. Soft state: no event.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when somebody noted it before, [`StoreError::QuestionState`] when it stands otherwise
    /// by now.
    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The answers to a question, in order.
    fn approvals<'a>(
        &'a self,
        scope: &'a Scope,
        question: QuestionId,
    ) -> BoxFuture<'a, Result<Vec<Approval>, StoreError>>;

    /// The questions about outcomes of an owner's calls that are neither answered for good nor closed: what commit 1 of
    /// another call looks at, for those who want to know before. In no order.
    fn open_outcomes<'a>(
        &'a self,
        scope: &'a Scope,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Vec<OpenOutcome>, StoreError>>;

    /// Events in journal order, read without judging them.
    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        filter: EventFilter,
    ) -> BoxFuture<'a, Result<Vec<StoredEvent>, StoreError>>;

    /// Erases a content and records it: an append of a `content.erased` in the installation's stream. The row stays,
    /// without salt and bytes, and no append brings the content again.
    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// An event exactly as its table holds it: nothing parsed, nothing believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The journal.
    pub journal: Vec<u8>,
    /// Sequence in the journal.
    pub journal_seq: i64,
    /// The tenant.
    pub tenant: String,
    /// The stream's kind.
    pub stream_kind: String,
    /// The stream's id.
    pub stream_id: Vec<u8>,
    /// Sequence in the stream.
    pub stream_seq: i64,
    /// The step.
    pub step: Option<Vec<u8>>,
    /// Microseconds.
    pub at: i64,
    /// The type.
    pub kind: String,
    /// The type's version.
    pub version: i64,
    /// The payload's bytes.
    pub payload: Vec<u8>,
    /// Hash of the journal's previous event.
    pub journal_prev: Vec<u8>,
    /// Hash of the stream's previous event.
    pub stream_prev: Vec<u8>,
    /// The hash.
    pub hash: Vec<u8>,
}

impl StoredEvent {
    /// What the event's hash has to cover, read from the columns.
    ///
    /// # Errors
    /// [`RowError`] names the first column that does not have its form.
    pub fn link(&self, instance: InstanceId) -> Result<Link, RowError> {
        let bad = |column| RowError { table: "events", column };
        let at = Timestamp::from_micros(self.at);
        if at.micros() != self.at {
            return Err(bad("at"));
        }
        Ok(Link {
            instance,
            journal: id(&self.journal).map(JournalId::from_bytes).ok_or(bad("journal"))?,
            journal_seq: u64::try_from(self.journal_seq).map_err(|_| bad("journal_seq"))?,
            journal_prev: digest(&self.journal_prev).ok_or(bad("journal_prev"))?,
            tenant: Tenant::try_from(self.tenant.clone()).map_err(|_| bad("tenant"))?,
            stream: Stream {
                kind: StreamKind::from_name(&self.stream_kind).ok_or(bad("stream_kind"))?,
                id: id(&self.stream_id).ok_or(bad("stream_id"))?,
            },
            stream_seq: u64::try_from(self.stream_seq).map_err(|_| bad("stream_seq"))?,
            stream_prev: digest(&self.stream_prev).ok_or(bad("stream_prev"))?,
            step: match &self.step {
                None => None,
                Some(step) => Some(id(step).map(StepId::from_bytes).ok_or(bad("step"))?),
            },
            at,
            kind: self.kind.clone(),
            version: u32::try_from(self.version).map_err(|_| bad("version"))?,
            payload: payload_digest(&self.payload),
        })
    }

    /// The event, if its columns and payload have their form and its hash is its own.
    ///
    /// # Errors
    /// [`RowError`] names the first column that does not fit.
    pub fn event(&self, instance: InstanceId) -> Result<Event, RowError> {
        let bad = |column| RowError { table: "events", column };
        let link = self.link(instance)?;
        let hash = digest(&self.hash).filter(|hash| *hash == link.hash()).ok_or(bad("hash"))?;
        let body =
            Body::read(&link.kind, link.version, &self.payload).map_err(|_| bad("payload"))?;
        Ok(Event { link, body, hash })
    }
}

fn id(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.try_into().ok()
}

fn digest(bytes: &[u8]) -> Option<Digest> {
    bytes.try_into().ok().map(Digest::from_bytes)
}

/// A content row exactly as its table holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredContent {
    /// The key.
    pub digest: Vec<u8>,
    /// The tenant.
    pub tenant: String,
    /// Kind, id and sequence in its stream of the event that brought it.
    pub owner: (String, Vec<u8>, i64),
    /// The salt; empty once the content was erased.
    pub salt: Vec<u8>,
    /// The bytes; empty once the content was erased.
    pub bytes: Vec<u8>,
}

impl StoredContent {
    /// True for the row that an erased content leaves. Without it the content could be brought again.
    #[must_use]
    pub fn is_erased(&self) -> bool {
        self.salt.is_empty() && self.bytes.is_empty()
    }
}

/// The raw tables, for `verify`. Reads are one consistent snapshot from [`Ledger::begin`] to the drop.
///
/// Everything is read in pages, so that a hostile store exhausts nobody's memory. A page of large rows can be
/// shorter than its limit; only an empty one is the end. A cell that is larger than any of ours comes empty.
pub trait Ledger: Send {
    /// The installation.
    fn instance(&self) -> InstanceId;

    /// Checks what lies beneath the rows, so that every way to read a table gives the same ones: a row that no
    /// index holds is invisible to all who look by key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when they can differ.
    fn sound(&mut self) -> Result<(), StoreError>;

    /// The journals.
    fn journals(&mut self) -> Result<Vec<JournalId>, StoreError>;

    /// Events of one journal after a sequence number, in order.
    fn events_after(
        &mut self,
        journal: JournalId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError>;

    /// Events of one stream after a sequence number in it, in order.
    fn stream_after(
        &mut self,
        stream: Stream,
        after: i64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError>;

    /// How many rows a table has: a state table, `events`, `contents` or `specs`.
    fn count(&mut self, table: &str) -> Result<u64, StoreError>;

    /// The row with this primary key, in the order of its struct's columns.
    fn row(&mut self, table: &'static str, key: &[Cell]) -> Result<Option<Vec<Cell>>, StoreError>;

    /// A content row.
    fn content(&mut self, digest: Digest) -> Result<Option<StoredContent>, StoreError>;

    /// A spec row's bytes.
    fn spec(&mut self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError>;

    /// Another reader of the same snapshot, for a thread of its own; `None` when there is no more of them.
    fn another(&mut self) -> Option<Box<dyn Ledger>> {
        None
    }
}

/// Opens the raw tables of a store.
pub trait Ledgers: Send + Sync {
    /// Begins a consistent snapshot.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be had.
    fn begin(&self) -> Result<Box<dyn Ledger + '_>, StoreError>;

    /// Begins a consistent snapshot that this many threads can read at once: the ledger has that many, less itself,
    /// of [`Ledger::another`]. A store that cannot do it gives fewer.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be had.
    fn begin_for(&self, threads: usize) -> Result<Box<dyn Ledger + '_>, StoreError> {
        let _fewer = threads;
        self.begin()
    }
}
