//! What a step costs beside its commits: the same reads of the store and of the clock, however long the run is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{BoxFuture, Clock, EventFilter, Monotonic, Store};
use portcullis_domain::time::Timestamp;
use portcullis_engine::{Gate, HeldRun, Progress};
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::FaultyStore;
use portcullis_testkit::ports::ManualClock;

use crate::world::{World, call, turn};

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
    store: Arc<FaultyStore>,
    clock: Arc<Ticking>,
    held: HeldRun,
}

fn begin() -> Counted {
    let world = World::new();
    let store = Arc::new(FaultyStore::new(Arc::new(world.store.clone())));
    let clock = Arc::new(Ticking { inner: world.clock.clone(), readings: AtomicU64::new(0) });
    let mut parts = world.parts(1);
    parts.store = Arc::<FaultyStore>::clone(&store);
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
        let (reads, appends) = (counted.store.reads(), counted.store.appends());
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
