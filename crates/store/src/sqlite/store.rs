//! The SQLite store as its callers see it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::content::Content;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    Append, BoxFuture, Committed, DamagedRow, Entropy, EventFilter, LeaseTerm, Ledger, Ledgers,
    Notice, Observer, OpenOutcome, Page, Reminder, Rows, Store, StoreError, StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::{Scope, Tenant};
use portcullis_domain::step::Step;
use portcullis_domain::stream::Tip;
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::ddl::MIGRATIONS;
use super::error::OpenError;
use super::ledger::SqliteLedger;
use super::open::{OpenMode, Opened, open, settle_log};
use super::readers::{READERS, Readers};
use super::same_file::SameFile;
use super::task::Renewal;
use super::write::{Memory, write_event, write_identity};
use super::writer::{self, Writer};
use super::writing::{Committing, Writing};
use super::{fault, lookup, read};
use crate::admit::{self, Chain};
use crate::memory::erasure;

/// What opening a store needs from the world.
pub struct Opening<'a> {
    /// The time; the first opening's ids and first event carry it.
    pub now: Timestamp,
    /// Draws the ids of a new installation.
    pub entropy: &'a dyn Entropy,
    /// Who sees events after their commit, in order, on the thread that commits.
    pub observers: Vec<Arc<dyn Observer>>,
    /// Which thread commits.
    pub committing: Committing,
}

impl std::fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("now", &self.now).finish_non_exhaustive()
    }
}

/// A store in one SQLite file.
///
/// An append survives the future that asked for it once it found room to wait: dropping it then loses the answer and not
/// the record. Dropping the store commits what waits and waits for its threads.
///
/// ```
/// use portcullis_domain::ports::{Entropy, Ledgers};
/// use portcullis_domain::time::Timestamp;
/// use portcullis_store::sqlite::open::OpenMode;
/// use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
/// # struct Fixed;
/// # impl Entropy for Fixed {
/// #     fn fill(&self, bytes: &mut [u8]) {
/// #         bytes.fill(7);
/// #     }
/// # }
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("portcullis.db");
/// let opening = Opening { now: Timestamp::from_micros(0), entropy: &Fixed, observers: vec![],
///     committing: Committing::OwnThread };
/// let store = SqliteStore::open(&path, OpenMode::CreateOrOpen, opening)?;
/// assert_eq!(store.begin()?.count("events")?, 1); // journal.opened
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore {
    path: PathBuf,
    instance: InstanceId,
    journal: JournalId,
    // Dropped in this order: the connection that closes last is a writer's, which folds the log into the file.
    readers: Readers,
    writing: Option<Writing>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, instance, journal, .. } = self;
        f.debug_struct("SqliteStore")
            .field("path", path)
            .field("instance", instance)
            .field("journal", journal)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in the file at `path`; the first opening draws the installation's ids and appends
    /// `journal.opened`.
    ///
    /// With [`OpenMode::ReadOnly`] every append is refused with [`StoreError::ReadOnly`].
    ///
    /// # Errors
    /// [`OpenError`] says in one sentence what to do.
    pub fn open(path: &Path, mode: OpenMode, opening: Opening<'_>) -> Result<Self, OpenError> {
        Self::from_opened(open(path, mode, MIGRATIONS)?, mode, opening)
    }

    /// Opens the store as [`SqliteStore::open`] does and tells `watch` each statement of the writing connection when it
    /// has run, inside the transaction and on the thread that commits: for tests that end a process at every write.
    ///
    /// The text is the statement's, without values. A store that was opened without a watch pays nothing for it.
    /// Migrations are not told, and nothing is after a commit in doubt, which opens a new connection.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_watched(
        path: &Path,
        mode: OpenMode,
        opening: Opening<'_>,
        watch: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let mut opened = open(path, mode, MIGRATIONS)?;
        let told = move |event: TraceEvent<'_>| {
            if let TraceEvent::Profile(statement, _) = event {
                watch(&statement.sql());
            }
        };
        opened
            .conn
            .trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(told))
            .map_err(|error| OpenError::from_sqlite(path, &error))?;
        Self::from_opened(opened, mode, opening)
    }

    fn from_opened(
        opened: Opened,
        mode: OpenMode,
        opening: Opening<'_>,
    ) -> Result<Self, OpenError> {
        let Opened { conn, path, file, .. } = opened;
        let (instance, journal) = identity(&conn, &path, mode, &opening)?;
        let mut connections = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let reader = open(&path, OpenMode::ReadOnly, MIGRATIONS)?;
            if reader.file != file {
                return Err(OpenError::Swapped { path });
            }
            connections.push(reader.conn);
        }
        let system = |error: std::io::Error| OpenError::System {
            path: path.clone(),
            source: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
        };
        let readers = Readers::start(connections, opening.committing).map_err(system)?;
        let writing = match mode {
            OpenMode::ReadOnly => None,
            OpenMode::CreateOrOpen | OpenMode::Existing => {
                settle_log(&conn).map_err(|error| OpenError::from_sqlite(&path, &error))?;
                writer::prepare(&conn);
                let writer = Writer {
                    conn,
                    path: path.clone(),
                    instance,
                    journal,
                    observers: opening.observers,
                    memory: Memory::new(),
                    seen: None,
                    file: SameFile::watch(&path, file),
                    synced: true,
                    #[cfg(test)]
                    plans: Arc::default(),
                };
                Some(Writing::start(writer, opening.committing).map_err(system)?)
            }
        };
        Ok(Self { path, instance, journal, writing, readers })
    }

    /// The file's absolute path, free of links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's one journal.
    #[must_use]
    pub const fn journal(&self) -> JournalId {
        self.journal
    }

    fn writing(&self) -> Result<&Writing, StoreError> {
        self.writing.as_ref().ok_or(StoreError::ReadOnly)
    }

    async fn submit(&self, scope: &Scope, append: Append) -> Result<Committed, StoreError> {
        self.writing()?.append(scope.tenant().clone(), append).await
    }

    /// A read that ends soon.
    fn look<'a, T: Send + 'static>(
        &'a self,
        scope: &Scope,
        look: impl FnOnce(&Connection, &Tenant) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let tenant = scope.tenant().clone();
        Box::pin(self.readers.look(move |conn| look(conn, &tenant)))
    }

    fn read<'a, T: Send + 'static>(
        &'a self,
        scope: &Scope,
        read: impl FnOnce(&Connection, &Tenant) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let tenant = scope.tenant().clone();
        Box::pin(self.readers.run(move |conn| read(conn, &tenant)))
    }
}

/// The installation's ids; a writer draws them when there are none.
fn identity(
    conn: &Connection,
    path: &Path,
    mode: OpenMode,
    opening: &Opening<'_>,
) -> Result<(InstanceId, JournalId), OpenError> {
    let sqlite = |error| OpenError::from_sqlite(path, &error);
    if mode == OpenMode::ReadOnly {
        let found = lookup::identity(conn).map_err(sqlite)?;
        return found.ok_or_else(|| OpenError::Busy { path: path.to_path_buf() });
    }
    // Under the write lock, so that of two first openers one draws and the other reads.
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(sqlite)?;
    if let Some(found) = lookup::identity(&tx).map_err(sqlite)? {
        return Ok(found);
    }
    let instance = InstanceId::draw(opening.now, opening.entropy);
    let journal = JournalId::draw(opening.now, opening.entropy);
    let chain = Chain { instance, journal, tip: Tip::START };
    let damaged = |_| OpenError::Damaged { path: path.to_path_buf() };
    let (event, payload) =
        admit::open_journal(&chain, &Tenant::local(), opening.now).map_err(damaged)?;
    write_identity(&tx, instance, journal).map_err(sqlite)?;
    write_event(&tx, &event, &payload).map_err(|error| match error {
        StoreError::Full => OpenError::DiskFull { path: path.to_path_buf() },
        error => damaged(error),
    })?;
    tx.commit().map_err(sqlite)?;
    Ok((instance, journal))
}

impl Store for SqliteStore {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        Box::pin(self.submit(scope, append))
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let renewal = Renewal { run, epoch, now, until };
            self.writing()?.renew(scope.tenant().clone(), renewal).await
        })
    }

    fn run<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<RunState>, StoreError>> {
        self.look(scope, move |conn, tenant| read::run(conn, tenant, run))
    }

    fn lease<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<LeaseTerm>, StoreError>> {
        self.look(scope, move |conn, tenant| read::lease(conn, tenant, run))
    }

    fn thread<'a>(
        &'a self,
        scope: &'a Scope,
        thread: ThreadId,
    ) -> BoxFuture<'a, Result<Option<Thread>, StoreError>> {
        self.look(scope, move |conn, tenant| {
            Ok(lookup::thread(conn, thread)?.filter(|thread| thread.tenant == *tenant))
        })
    }

    fn budget<'a>(
        &'a self,
        scope: &'a Scope,
        budget: BudgetId,
    ) -> BoxFuture<'a, Result<Option<Budget>, StoreError>> {
        self.look(scope, move |conn, tenant| {
            Ok(lookup::budget(conn, budget)?.filter(|budget| budget.tenant == *tenant))
        })
    }

    fn held_budgets<'a>(
        &'a self,
        scope: &'a Scope,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Budget>, StoreError>> {
        self.read(scope, move |conn, tenant| read::held_budgets(conn, tenant, page))
    }

    fn content<'a>(
        &'a self,
        scope: &'a Scope,
        digest: Digest,
    ) -> BoxFuture<'a, Result<Option<Content>, StoreError>> {
        self.look(scope, move |conn, tenant| read::content(conn, tenant, digest))
    }

    fn spec(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<u8>>, StoreError>> {
        Box::pin(self.readers.look(move |conn| read::spec(conn, digest)))
    }

    fn runs<'a>(
        &'a self,
        scope: &'a Scope,
        status: Option<RunStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        self.read(scope, move |conn, tenant| read::runs(conn, tenant, status, page))
    }

    fn children<'a>(
        &'a self,
        scope: &'a Scope,
        parent: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        self.read(scope, move |conn, tenant| read::children(conn, tenant, parent, page))
    }

    fn orphans<'a>(
        &'a self,
        scope: &'a Scope,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        self.read(scope, move |conn, tenant| read::orphans(conn, tenant, page))
    }

    fn steps<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Step>, StoreError>> {
        let steps = move |conn: &Connection, tenant: &Tenant| read::steps(conn, tenant, run, page);
        if page.limit <= 1 { self.look(scope, steps) } else { self.read(scope, steps) }
    }

    fn questions<'a>(
        &'a self,
        scope: &'a Scope,
        run: Option<RunId>,
        status: Option<QuestionStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Question>, StoreError>> {
        self.read(scope, move |conn, tenant| read::questions(conn, tenant, run, status, page))
    }

    fn due<'a>(
        &'a self,
        scope: &'a Scope,
        notice: Notice,
        page: Page,
    ) -> BoxFuture<'a, Result<Vec<Result<Question, DamagedRow>>, StoreError>> {
        self.read(scope, move |conn, tenant| read::due(conn, tenant, notice, page))
    }

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.writing()?.remind(scope.tenant().clone(), reminder).await })
    }

    fn approvals<'a>(
        &'a self,
        scope: &'a Scope,
        question: QuestionId,
    ) -> BoxFuture<'a, Result<Vec<Approval>, StoreError>> {
        self.look(scope, move |conn, tenant| read::approvals(conn, tenant, question))
    }

    fn open_outcomes<'a>(
        &'a self,
        scope: &'a Scope,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<Vec<OpenOutcome>, StoreError>> {
        let owner = owner.to_owned();
        self.read(scope, move |conn, tenant| lookup::open_outcomes(conn, tenant, &owner))
    }

    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        filter: EventFilter,
    ) -> BoxFuture<'a, Result<Vec<StoredEvent>, StoreError>> {
        self.read(scope, move |conn, tenant| read::events(conn, tenant, filter))
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let append = erasure(self.instance, content, by, at);
        Box::pin(async move { self.submit(scope, append).await.map(drop) })
    }
}

impl Ledgers for SqliteStore {
    fn begin(&self) -> Result<Box<dyn Ledger + '_>, StoreError> {
        self.begin_for(1)
    }

    fn begin_for(&self, threads: usize) -> Result<Box<dyn Ledger + '_>, StoreError> {
        let first = open(&self.path, OpenMode::ReadOnly, MIGRATIONS)
            .map_err(|error| fault::closed(&error))?;
        let mut others = Vec::new();
        for _ in 1..threads {
            let opened = open(&self.path, OpenMode::ReadOnly, MIGRATIONS)
                .map_err(|error| fault::closed(&error))?;
            // Another file that was put in this one's place is another record.
            if opened.file != first.file {
                return Err(StoreError::Busy);
            }
            others.push(opened.conn);
        }
        Ok(Box::new(SqliteLedger::begin(self.instance, first.conn, others)?))
    }
}
