//! A store that ends its process at a chosen moment: before or after one append or one renewal of a lease.
//!
//! How a process is ended is the caller's business, so this stays free of system calls: a test of crashes hands
//! in a function that sends itself `SIGKILL`, a test of this module one that only takes a note.
//!
//! ```
//! use std::sync::Arc;
//! use portcullis_testkit::crash::{Act, CrashStore, Moment, Phase};
//! use portcullis_testkit::recording_store::RecordingStore;
//!
//! let moment = Moment { act: Act::Append, number: 3, phase: Phase::Before };
//! assert_eq!(Moment::from_text(&moment.to_string()), Some(moment));
//! let store = CrashStore::new(Arc::new(RecordingStore::new()), || std::process::abort()).aimed(moment);
//! assert_eq!(store.appends(), 0);
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::content::Content;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, QuestionId, RunId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    Append, BoxFuture, Committed, Durability, EventFilter, LeaseTerm, Page, Rows, Store,
    StoreError, StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;

/// What a store is asked to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// An append, synced or only written. Erasing a content is the append of its `content.erased`.
    Append,
    /// The renewal of a lease.
    Renewal,
}

/// On which side of the store's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The store behind has not heard of it.
    Before,
    /// The store behind is done, and its caller has not heard of it.
    After,
}

/// One moment at which a process can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// What.
    pub act: Act,
    /// Which one of its kind, counted from 1 over the life of the store.
    pub number: u64,
    /// On which side.
    pub phase: Phase,
}

impl fmt::Display for Moment {
    /// One word, such as `append:3:before`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::Append => "append",
            Act::Renewal => "renewal",
        };
        let phase = match self.phase {
            Phase::Before => "before",
            Phase::After => "after",
        };
        write!(f, "{act}:{}:{phase}", self.number)
    }
}

impl Moment {
    /// Reads what [`Moment`] is displayed as, so that one process can tell another where to end.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (act, rest) = text.split_once(':')?;
        let (number, phase) = rest.split_once(':')?;
        let act = match act {
            "append" => Act::Append,
            "renewal" => Act::Renewal,
            _ => return None,
        };
        let phase = match phase {
            "before" => Phase::Before,
            "after" => Phase::After,
            _ => return None,
        };
        Some(Self { act, number: number.parse().ok()?, phase })
    }
}

/// What a witness is told at each moment, just before the process may end there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The moment.
    pub moment: Moment,
    /// The types of the events in the append; none for a renewal.
    pub events: Vec<&'static str>,
    /// How the append is to be made durable; `None` for a renewal.
    pub durability: Option<Durability>,
    /// Whether the store behind said yes; `None` before it was asked.
    pub stored: Option<bool>,
}

type Witness = Box<dyn Fn(&Sight) + Send + Sync>;
type Kill = Box<dyn Fn() + Send + Sync>;

/// Wraps a store; at the moment that it is aimed at it ends the process.
///
/// Should the kill return, the store is dead: the call at hand and all later ones are [`StoreError::Closed`], as if
/// nobody were left to hear an answer.
pub struct CrashStore {
    inner: Arc<dyn Store>,
    aim: Option<Moment>,
    kill: Kill,
    witness: Option<Witness>,
    appends: AtomicU64,
    renewals: AtomicU64,
    dead: AtomicBool,
}

impl fmt::Debug for CrashStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashStore").field("aim", &self.aim).finish_non_exhaustive()
    }
}

impl CrashStore {
    /// Wraps `inner`. Without an aim nothing ends; `kill` is what ends the process.
    pub fn new(inner: Arc<dyn Store>, kill: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            inner,
            aim: None,
            kill: Box::new(kill),
            witness: None,
            appends: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            dead: AtomicBool::new(false),
        }
    }

    /// Ends the process at `moment`.
    #[must_use]
    pub fn aimed(mut self, moment: Moment) -> Self {
        self.aim = Some(moment);
        self
    }

    /// Tells `witness` of every moment, the last one included.
    #[must_use]
    pub fn witnessed(mut self, witness: impl Fn(&Sight) + Send + Sync + 'static) -> Self {
        self.witness = Some(Box::new(witness));
        self
    }

    /// How many appends were asked for so far.
    #[must_use]
    pub fn appends(&self) -> u64 {
        self.appends.load(Ordering::Acquire)
    }

    /// How many renewals were asked for so far.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// Does `work` between the two moments of one act.
    async fn between<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.alive()?;
        let counter = match call.act {
            Act::Append => &self.appends,
            Act::Renewal => &self.renewals,
        };
        let number = counter.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        self.reach(&call, number, Phase::Before, None)?;
        let answer = work.await;
        self.reach(&call, number, Phase::After, Some(answer.is_ok()))?;
        answer
    }

    fn reach(
        &self,
        call: &Call,
        number: u64,
        phase: Phase,
        stored: Option<bool>,
    ) -> Result<(), StoreError> {
        let moment = Moment { act: call.act, number, phase };
        if let Some(witness) = &self.witness {
            let events = call.events.clone();
            witness(&Sight { moment, events, durability: call.durability, stored });
        }
        if self.aim == Some(moment) {
            self.dead.store(true, Ordering::Release);
            (self.kill)();
        }
        self.alive()
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.dead.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        read: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            self.alive()?;
            let answer = read.await;
            self.alive()?;
            answer
        })
    }
}

/// What is between two moments.
struct Call {
    act: Act,
    events: Vec<&'static str>,
    durability: Option<Durability>,
}

impl Store for CrashStore {
    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }

    fn append<'a>(
        &'a self,
        scope: &'a Scope,
        append: Append,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        let call = Call {
            act: Act::Append,
            events: append.events.iter().map(|event| event.body.name()).collect(),
            durability: Some(append.durability),
        };
        // The store behind hears of the append when it is polled, and not when the future is made.
        Box::pin(self.between(call, async move { self.inner.append(scope, append).await }))
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let call = Call { act: Act::Renewal, events: Vec::new(), durability: None };
        Box::pin(
            self.between(
                call,
                async move { self.inner.renew(scope, run, epoch, now, until).await },
            ),
        )
    }

    fn run<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<RunState>, StoreError>> {
        self.read(self.inner.run(scope, run))
    }

    fn lease<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<LeaseTerm>, StoreError>> {
        self.read(self.inner.lease(scope, run))
    }

    fn thread<'a>(
        &'a self,
        scope: &'a Scope,
        thread: ThreadId,
    ) -> BoxFuture<'a, Result<Option<Thread>, StoreError>> {
        self.read(self.inner.thread(scope, thread))
    }

    fn content<'a>(
        &'a self,
        scope: &'a Scope,
        digest: Digest,
    ) -> BoxFuture<'a, Result<Option<Content>, StoreError>> {
        self.read(self.inner.content(scope, digest))
    }

    fn spec(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Vec<u8>>, StoreError>> {
        self.read(self.inner.spec(digest))
    }

    fn runs<'a>(
        &'a self,
        scope: &'a Scope,
        status: Option<RunStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Run>, StoreError>> {
        self.read(self.inner.runs(scope, status, page))
    }

    fn steps<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Step>, StoreError>> {
        self.read(self.inner.steps(scope, run, page))
    }

    fn questions<'a>(
        &'a self,
        scope: &'a Scope,
        run: Option<RunId>,
        status: Option<QuestionStatus>,
        page: Page,
    ) -> BoxFuture<'a, Result<Rows<Question>, StoreError>> {
        self.read(self.inner.questions(scope, run, status, page))
    }

    fn approvals<'a>(
        &'a self,
        scope: &'a Scope,
        question: QuestionId,
    ) -> BoxFuture<'a, Result<Vec<Approval>, StoreError>> {
        self.read(self.inner.approvals(scope, question))
    }

    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        filter: EventFilter,
    ) -> BoxFuture<'a, Result<Vec<StoredEvent>, StoreError>> {
        self.read(self.inner.events(scope, filter))
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        content: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let call = Call {
            act: Act::Append,
            events: vec!["content.erased"],
            durability: Some(Durability::Synced),
        };
        Box::pin(self.between(call, async move { self.inner.erase(scope, content, by, at).await }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use std::sync::Mutex;

    use portcullis_domain::event::{Body, LeaseReleased};
    use portcullis_domain::ports::{Condition, NewEvent};

    use super::*;
    use crate::block_on;
    use crate::recording_store::RecordingStore;

    /// Moments as text, and whether the store behind said yes.
    type Seen = Vec<(String, Option<bool>)>;

    struct Scene {
        inner: Arc<RecordingStore>,
        store: CrashStore,
        kills: Arc<AtomicU64>,
        seen: Arc<Mutex<Seen>>,
    }

    fn scene(aim: Option<&str>) -> Scene {
        let inner = Arc::new(RecordingStore::new());
        let kills = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (count, told) = (Arc::clone(&kills), Arc::clone(&seen));
        let store = CrashStore::new(inner.clone(), move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .witnessed(move |sight| {
            told.lock().unwrap().push((sight.moment.to_string(), sight.stored));
        });
        let store = match aim {
            Some(aim) => store.aimed(Moment::from_text(aim).unwrap()),
            None => store,
        };
        Scene { inner, store, kills, seen }
    }

    fn append(store: &CrashStore, durability: Durability) -> Result<Committed, StoreError> {
        let body = Body::LeaseReleased(LeaseReleased { epoch: Epoch(1) });
        let event = NewEvent {
            stream: RunId::from_bytes([1; 16]).into(),
            step: None,
            at: Timestamp::from_micros(0),
            body,
        };
        let append = Append {
            condition: Condition::Late,
            events: vec![event],
            contents: Vec::new(),
            specs: Vec::new(),
            durability,
        };
        block_on(store.append(&Scope::of_file_owner(), append))
    }

    fn renew(store: &CrashStore) -> Result<(), StoreError> {
        let (run, at) = (RunId::from_bytes([1; 16]), Timestamp::from_micros(0));
        block_on(store.renew(&Scope::of_file_owner(), run, Epoch(1), at, at))
    }

    #[test]
    fn before_is_not_handed_on_and_after_is() {
        for (aim, stored) in [("append:2:before", 1), ("append:2:after", 2)] {
            let scene = scene(Some(aim));
            append(&scene.store, Durability::Synced).unwrap();
            let refused = append(&scene.store, Durability::Written);
            assert_eq!(refused.unwrap_err(), StoreError::Closed, "{aim}");
            assert_eq!(scene.inner.appends().len(), stored, "{aim}");
            assert_eq!(scene.kills.load(Ordering::Relaxed), 1, "{aim}");
        }
    }

    #[test]
    fn the_dead_write_and_read_nothing() {
        let scene = scene(Some("renewal:1:before"));
        assert_eq!(renew(&scene.store), Err(StoreError::Closed));
        assert_eq!(append(&scene.store, Durability::Synced).unwrap_err(), StoreError::Closed);
        let read = block_on(scene.store.spec(Digest::ZERO));
        assert_eq!(read, Err(StoreError::Closed));
        assert_eq!((scene.inner.appends().len(), scene.store.appends()), (0, 0));
    }

    #[test]
    fn each_kind_is_counted_apart_and_a_witness_sees_both_sides() {
        let scene = scene(None);
        append(&scene.store, Durability::Written).unwrap();
        // The store behind answers no renewal; that is seen and passed on.
        assert_eq!(renew(&scene.store), Err(StoreError::Closed));
        append(&scene.store, Durability::Synced).unwrap();
        assert_eq!((scene.store.appends(), scene.store.renewals()), (2, 1));
        assert_eq!(scene.kills.load(Ordering::Relaxed), 0);
        let expected = [
            ("append:1:before", None),
            ("append:1:after", Some(true)),
            ("renewal:1:before", None),
            ("renewal:1:after", Some(false)),
            ("append:2:before", None),
            ("append:2:after", Some(true)),
        ];
        let expected = expected.map(|(moment, stored)| (moment.to_owned(), stored));
        assert_eq!(*scene.seen.lock().unwrap(), expected);
    }

    #[test]
    fn a_future_that_is_never_polled_reaches_no_moment() {
        let scene = scene(Some("renewal:1:before"));
        let (scope, at) = (Scope::of_file_owner(), Timestamp::from_micros(0));
        drop(scene.store.renew(&scope, RunId::from_bytes([1; 16]), Epoch(1), at, at));
        assert_eq!((scene.store.renewals(), scene.kills.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "append", "append:1", "append:x:before", "read:1:after", "append:1:during"]
        {
            assert_eq!(Moment::from_text(text), None, "{text}");
        }
    }
}
