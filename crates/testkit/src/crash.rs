//! A store that ends its process at a chosen moment: before or after one append or one renewal of a lease, or inside it
//! after one of its writes.
//!
//! The store behind says what it writes through [`wrote`], for instance from the watch of an SQLite store. How a process
//! is ended is the caller's business, so this stays free of system calls: a test of crashes hands
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

use std::cell::RefCell;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis_canon::Digest;
use portcullis_domain::id::{InstanceId, RunId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{
    Append, BoxFuture, Committed, Durability, Reminder, Store, StoreError,
};
use portcullis_domain::scope::Scope;
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
    /// The store behind has just done the n-th of its writes, counted from 1; see [`wrote`].
    Inside(u32),
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
    /// One word, such as `append:3:before` or `append:3:inside:2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::Append => "append",
            Act::Renewal => "renewal",
        };
        write!(f, "{act}:{}:", self.number)?;
        match self.phase {
            Phase::Before => f.write_str("before"),
            Phase::Inside(write) => write!(f, "inside:{write}"),
            Phase::After => f.write_str("after"),
        }
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
        let phase = match phase.split_once(':') {
            None if phase == "before" => Phase::Before,
            None if phase == "after" => Phase::After,
            Some(("inside", write)) => Phase::Inside(write.parse().ok()?),
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
    /// What the store behind has just written; only inside.
    pub wrote: Option<String>,
    /// Whether the store behind said yes; `None` before it was asked, and inside.
    pub stored: Option<bool>,
}

type Witness = Box<dyn Fn(&Sight) + Send + Sync>;
type Kill = Box<dyn Fn() + Send + Sync>;

/// Wraps a store; at the moment that it is aimed at it ends the process.
///
/// Should the kill return, the store is dead: the call at hand and all later ones are [`StoreError::Closed`], as if
/// nobody were left to hear an answer; of a [`CrashStore::silent`] one they never come back.
pub struct CrashStore {
    inner: Arc<dyn Store>,
    watch: Arc<Watch>,
}

/// Counts, witnesses and kills.
struct Watch {
    aim: Option<Moment>,
    kill: Kill,
    witness: Option<Witness>,
    silent: bool,
    appends: AtomicU64,
    renewals: AtomicU64,
    dead: AtomicBool,
}

/// The store is dead.
struct Dead;

/// A call that a store works on, on this thread.
struct AtWork {
    watch: Arc<Watch>,
    call: Call,
    number: u64,
    writes: u32,
}

thread_local! {
    static AT_WORK: RefCell<Option<AtWork>> = const { RefCell::new(None) };
}

/// Says that a store has just written `what`, inside an append or a renewal that it makes on this thread.
///
/// Each such write is a moment ([`Phase::Inside`]). False when this thread works on no call of a [`CrashStore`]: then it
/// is none. A witness must not call this.
pub fn wrote(what: &str) -> bool {
    AT_WORK.with_borrow_mut(|at_work| {
        let Some(at) = at_work else { return false };
        at.writes = at.writes.saturating_add(1);
        // A kill that returns lets the work go on; its caller hears nothing of it.
        let _dead = at.watch.reach(&at.call, at.number, Phase::Inside(at.writes), Some(what), None);
        true
    })
}

impl fmt::Debug for CrashStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashStore").field("aim", &self.watch.aim).finish_non_exhaustive()
    }
}

impl CrashStore {
    /// Wraps `inner`. Without an aim nothing ends; `kill` is what ends the process.
    pub fn new(inner: Arc<dyn Store>, kill: impl Fn() + Send + Sync + 'static) -> Self {
        let watch = Watch {
            aim: None,
            kill: Box::new(kill),
            witness: None,
            silent: false,
            appends: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            dead: AtomicBool::new(false),
        };
        Self { inner, watch: Arc::new(watch) }
    }

    /// Ends the process at `moment`.
    #[must_use]
    pub fn aimed(self, moment: Moment) -> Self {
        self.with(|watch| watch.aim = Some(moment))
    }

    /// Once dead, calls never come back, as in a process that is gone. For stores that outlive their holder.
    #[must_use]
    pub fn silent(self) -> Self {
        self.with(|watch| watch.silent = true)
    }

    /// Tells `witness` of every moment, the last one included.
    #[must_use]
    pub fn witnessed(self, witness: impl Fn(&Sight) + Send + Sync + 'static) -> Self {
        self.with(|watch| watch.witness = Some(Box::new(witness)))
    }

    fn with(mut self, change: impl FnOnce(&mut Watch)) -> Self {
        // Nobody else has it before the store is in use.
        if let Some(watch) = Arc::get_mut(&mut self.watch) {
            change(watch);
        }
        self
    }

    /// How many appends were asked for so far.
    #[must_use]
    pub fn appends(&self) -> u64 {
        self.watch.appends.load(Ordering::Acquire)
    }

    /// How many renewals were asked for so far.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.watch.renewals.load(Ordering::Acquire)
    }

    /// Ends the process now, at a moment that is not the store's own, such as in the middle of a call.
    pub fn end(&self) {
        self.watch.dead.store(true, Ordering::Release);
        (self.watch.kill)();
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.watch.alive().is_err()
    }

    /// Does `work` between the two moments of one act.
    async fn between<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let Ok(number) = self.watch.begin(&call) else { return self.gone().await };
        let watch = Arc::clone(&self.watch);
        let mut at_work = Some(AtWork { watch, call: call.clone(), number, writes: 0 });
        let mut work = pin!(work);
        let answer = poll_fn(|waker| {
            AT_WORK.set(at_work.take());
            let polled = work.as_mut().poll(waker);
            at_work = AT_WORK.take();
            polled
        })
        .await;
        match self.watch.reach(&call, number, Phase::After, None, Some(answer.is_ok())) {
            Ok(()) => answer,
            Err(Dead) => self.gone().await,
        }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        read: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            if self.watch.alive().is_err() {
                return self.gone().await;
            }
            let answer = read.await;
            match self.watch.alive() {
                Ok(()) => answer,
                Err(Dead) => self.gone().await,
            }
        })
    }

    /// What a caller of a dead store hears.
    async fn gone<T>(&self) -> Result<T, StoreError> {
        if self.watch.silent { pending().await } else { Err(StoreError::Closed) }
    }
}

impl Watch {
    /// Counts a call and reaches the moment before it.
    fn begin(&self, call: &Call) -> Result<u64, Dead> {
        self.alive()?;
        let counter = match call.act {
            Act::Append => &self.appends,
            Act::Renewal => &self.renewals,
        };
        let number = counter.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        self.reach(call, number, Phase::Before, None, None)?;
        Ok(number)
    }

    fn reach(
        &self,
        call: &Call,
        number: u64,
        phase: Phase,
        wrote: Option<&str>,
        stored: Option<bool>,
    ) -> Result<(), Dead> {
        let moment = Moment { act: call.act, number, phase };
        let ends = self.aim == Some(moment);
        // Before anybody hears of it: no other call may begin once one knows.
        self.dead.fetch_or(ends, Ordering::AcqRel);
        if let Some(witness) = &self.witness {
            let (events, wrote) = (call.events.clone(), wrote.map(str::to_owned));
            witness(&Sight { moment, events, durability: call.durability, wrote, stored });
        }
        if ends {
            (self.kill)();
        }
        self.alive()
    }

    fn alive(&self) -> Result<(), Dead> {
        if self.dead.load(Ordering::Acquire) { Err(Dead) } else { Ok(()) }
    }
}

/// What is between two moments.
#[derive(Clone)]
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

    crate::store_reads!(inner, read);

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.read(self.inner.remind(scope, reminder))
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

    /// A store that says of each append that it wrote two things.
    fn writing(seen: &Arc<Mutex<Vec<String>>>, aim: &str) -> (CrashStore, Arc<AtomicU64>) {
        let kills = Arc::new(AtomicU64::new(0));
        let (count, told) = (Arc::clone(&kills), Arc::clone(seen));
        let kill = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let store = CrashStore::new(Arc::new(RecordingStore::new()), kill)
            .aimed(Moment::from_text(aim).unwrap())
            .witnessed(move |sight| {
                let wrote = sight.wrote.clone().unwrap_or_default();
                told.lock().unwrap().push(format!("{} {wrote}", sight.moment));
            });
        (store, kills)
    }

    #[test]
    fn each_write_inside_is_a_moment_and_belongs_to_the_call_of_its_thread() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (store, kills) = writing(&seen, "append:1:inside:2");
        let call = || Call { act: Act::Append, events: vec!["run.created"], durability: None };
        assert!(!wrote("before any call"));
        let answer = block_on(store.between(call(), async {
            assert!(wrote("events") && wrote("runs"));
            Ok(())
        }));
        assert!(!wrote("after it"));
        // The kill of this test returns: the store is dead from then on.
        assert_eq!(answer, Err(StoreError::Closed));
        assert_eq!(kills.load(Ordering::Relaxed), 1);
        let seen = seen.lock().unwrap().clone();
        let expected = ["append:1:before ", "append:1:inside:1 events", "append:1:inside:2 runs"];
        assert_eq!(seen[..3], expected);
    }

    #[test]
    fn a_silent_store_never_comes_back_once_it_is_dead() {
        let (store, kills) = writing(&Arc::default(), "renewal:1:before");
        let store = store.silent();
        let mut waker = std::task::Context::from_waker(std::task::Waker::noop());
        let (scope, at) = (Scope::of_file_owner(), Timestamp::from_micros(0));
        let mut renewal = store.renew(&scope, RunId::from_bytes([1; 16]), Epoch(1), at, at);
        assert!(renewal.as_mut().poll(&mut waker).is_pending());
        assert!(store.spec(Digest::ZERO).as_mut().poll(&mut waker).is_pending());
        assert_eq!(kills.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn it_can_be_ended_between_its_own_moments() {
        let scene = scene(None);
        append(&scene.store, Durability::Synced).unwrap();
        assert!(!scene.store.is_dead());
        scene.store.end();
        assert!(scene.store.is_dead());
        assert_eq!(append(&scene.store, Durability::Synced).unwrap_err(), StoreError::Closed);
        assert_eq!((scene.inner.appends().len(), scene.kills.load(Ordering::Relaxed)), (1, 1));
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
        let during =
            ["append:1:during", "append:1:inside", "append:1:inside:x", "append:1:after:2"];
        let others = ["", "append", "append:1", "append:x:before", "read:1:after"];
        for text in during.into_iter().chain(others) {
            assert_eq!(Moment::from_text(text), None, "{text}");
        }
    }
}
