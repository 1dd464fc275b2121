//! What a step costs beside its commits: the same reads of the store and of the clock, however long the run is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis_canon::Digest;
use portcullis_domain::approval::Approval;
use portcullis_domain::content::Content;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{InstanceId, QuestionId, RunId, ThreadId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{
    Append, BoxFuture, Clock, Committed, EventFilter, LeaseTerm, Monotonic, Page, Rows, Store,
    StoreError, StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::thread::Thread;
use portcullis_domain::time::Timestamp;
use portcullis_engine::{Gate, HeldRun, Progress};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
use portcullis_testkit::ports::ManualClock;

use crate::world::{World, call, turn};

/// A store that counts what is asked of it.
struct Counting {
    inner: MemoryStore,
    reads: AtomicU64,
    appends: AtomicU64,
}

impl Counting {
    fn read(&self) -> &MemoryStore {
        self.reads.fetch_add(1, Ordering::SeqCst);
        &self.inner
    }

    fn counts(&self) -> (u64, u64) {
        (self.reads.load(Ordering::SeqCst), self.appends.load(Ordering::SeqCst))
    }
}

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

impl Store for Counting {
    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }

    fn append<'a>(&'a self, scope: &'a Scope, append: Append) -> Answer<'a, Committed> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        self.inner.append(scope, append)
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, ()> {
        self.inner.renew(scope, run, epoch, now, until)
    }

    fn run<'a>(&'a self, scope: &'a Scope, run: RunId) -> Answer<'a, Option<RunState>> {
        self.read().run(scope, run)
    }

    fn lease<'a>(&'a self, scope: &'a Scope, run: RunId) -> Answer<'a, Option<LeaseTerm>> {
        self.read().lease(scope, run)
    }

    fn thread<'a>(&'a self, scope: &'a Scope, thread: ThreadId) -> Answer<'a, Option<Thread>> {
        self.read().thread(scope, thread)
    }

    fn content<'a>(&'a self, scope: &'a Scope, digest: Digest) -> Answer<'a, Option<Content>> {
        self.read().content(scope, digest)
    }

    fn spec(&self, digest: Digest) -> Answer<'_, Option<Vec<u8>>> {
        self.read().spec(digest)
    }

    fn runs<'a>(
        &'a self,
        scope: &'a Scope,
        status: Option<RunStatus>,
        page: Page,
    ) -> Answer<'a, Rows<Run>> {
        self.read().runs(scope, status, page)
    }

    fn steps<'a>(&'a self, scope: &'a Scope, run: RunId, page: Page) -> Answer<'a, Rows<Step>> {
        self.read().steps(scope, run, page)
    }

    fn questions<'a>(
        &'a self,
        scope: &'a Scope,
        run: Option<RunId>,
        status: Option<QuestionStatus>,
        page: Page,
    ) -> Answer<'a, Rows<Question>> {
        self.read().questions(scope, run, status, page)
    }

    fn approvals<'a>(
        &'a self,
        scope: &'a Scope,
        question: QuestionId,
    ) -> Answer<'a, Vec<Approval>> {
        self.read().approvals(scope, question)
    }

    fn events<'a>(&'a self, scope: &'a Scope, filter: EventFilter) -> Answer<'a, Vec<StoredEvent>> {
        self.read().events(scope, filter)
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        digest: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> Answer<'a, ()> {
        self.inner.erase(scope, digest, by, at)
    }
}

/// A clock on which a microsecond passes with each reading of the wall.
struct Ticking {
    inner: ManualClock,
    readings: AtomicU64,
}

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        let read = self.readings.fetch_add(1, Ordering::SeqCst);
        self.inner.now().after(Duration::from_micros(read))
    }

    fn monotonic(&self) -> Monotonic {
        self.inner.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }
}

struct Counted {
    world: World,
    store: Arc<Counting>,
    clock: Arc<Ticking>,
    held: HeldRun,
}

fn begin() -> Counted {
    let world = World::new();
    let store = Arc::new(Counting {
        inner: world.store.clone(),
        reads: AtomicU64::new(0),
        appends: AtomicU64::new(0),
    });
    let clock = Arc::new(Ticking { inner: world.clock.clone(), readings: AtomicU64::new(0) });
    let mut parts = world.parts(1);
    parts.store = Arc::<Counting>::clone(&store);
    parts.clock = Arc::<Ticking>::clone(&clock);
    let limits = Limits { max_steps: 1_000, loop_threshold: 3, ..Limits::default() };
    let task = world.task(limits);
    let held = block_on(Gate::new(parts).begin(world.scope(), task)).unwrap();
    // The heartbeat reads the clock once and then sleeps.
    while world.clock.next_wake().is_none() {
        std::thread::yield_now();
    }
    Counted { world, store, clock, held }
}

/// Reads, appends and clock readings of each of the next `steps` steps.
fn costs(counted: &mut Counted, steps: i64) -> Vec<(u64, u64, u64)> {
    let total = |counted: &Counted| {
        let (reads, appends) = counted.store.counts();
        (reads, appends, counted.clock.readings.load(Ordering::SeqCst))
    };
    (0..steps)
        .map(|n| {
            let before = total(counted);
            block_on(counted.held.view(false)).unwrap();
            assert_eq!(turn(&mut counted.held, call("look", n)), Progress::Observed);
            let after = total(counted);
            (after.0 - before.0, after.1 - before.1, after.2 - before.2)
        })
        .collect()
}

#[test]
fn a_step_costs_the_same_from_the_tenth_to_the_two_hundredth() {
    let mut counted = begin();
    let costs = costs(&mut counted, 200);
    let tenth = costs[9];
    assert!(costs[9..].iter().all(|cost| *cost == tenth), "{costs:?}");
    let (reads, appends, readings) = tenth;
    assert_eq!((reads, appends), (0, 3), "a held run is not read again");
    assert!((4..=16).contains(&readings), "{readings}");
}

#[test]
fn every_time_in_the_record_was_read_from_the_port_and_none_goes_back() {
    let mut counted = begin();
    costs(&mut counted, 10);
    let start = counted.world.clock.now();
    let end = start.after(Duration::from_micros(counted.clock.readings.load(Ordering::SeqCst)));
    let filter = EventFilter { stream: None, after: 0, limit: 500 };
    let events = block_on(counted.store.events(counted.world.scope(), filter)).unwrap();
    assert!(events.len() > 50);
    let times: Vec<i64> = events.iter().map(|event| event.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|at| (start.micros()..=end.micros()).contains(at)));
    assert!(times.windows(2).any(|pair| pair[0] < pair[1]), "the control: time passed");
}
