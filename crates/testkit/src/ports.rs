//! Ports with outcomes that a test decides: time that a test moves, random bytes from a seed, processes
//! that are dead when a test says so, and tasks on plain threads.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use portcullis_domain::lease::ProcessIdentity;
use portcullis_domain::ports::{
    BoxFuture, Clock, Entropy, Monotonic, Place, Processes, Spawn, SpawnError, Work,
};
use portcullis_domain::time::Timestamp;

use crate::block_on;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clock that stands still until a test moves it. Clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use portcullis_domain::ports::Clock;
/// use portcullis_testkit::{block_on, ports::ManualClock};
///
/// let clock = ManualClock::default();
/// let sleep = clock.sleep(Duration::from_secs(1));
/// let before = clock.now();
/// clock.advance(Duration::from_secs(1));
/// block_on(sleep);
/// assert_eq!(clock.now().micros_since(before), 1_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    face: Arc<Mutex<Face>>,
}

#[derive(Debug)]
struct Face {
    wall: Timestamp,
    monotonic: u64,
    /// Who waits and until when, by number.
    sleepers: Vec<Sleeper>,
    /// The next sleeper's number.
    next: u64,
}

#[derive(Debug)]
struct Sleeper {
    number: u64,
    until: u64,
    waker: Waker,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp::from_micros(1_790_000_000_000_000))
    }
}

impl ManualClock {
    /// A clock that shows this instant.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        let face = Face { wall, monotonic: 0, sleepers: Vec::new(), next: 0 };
        Self { face: Arc::new(Mutex::new(face)) }
    }

    /// Lets time pass on both clocks and wakes whoever slept until then.
    pub fn advance(&self, by: Duration) {
        let woken = {
            let mut face = lock(&self.face);
            face.wall = face.wall.after(by);
            let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
            face.monotonic = face.monotonic.saturating_add(micros);
            let now = face.monotonic;
            face.sleepers.extract_if(.., |sleeper| sleeper.until <= now).collect::<Vec<_>>()
        };
        for sleeper in woken {
            sleeper.waker.wake();
        }
    }

    /// Makes the wall clock jump; the monotonic clock does not notice.
    pub fn jump(&self, to: Timestamp) {
        lock(&self.face).wall = to;
    }

    /// How long it is until the first sleeper wakes; `None` when nobody sleeps.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.wakes().into_iter().min()
    }

    /// How long it is until each of those that sleep now wakes. A sleep that was dropped is none of them.
    #[must_use]
    pub fn wakes(&self) -> Vec<Duration> {
        let face = lock(&self.face);
        let left = |sleeper: &Sleeper| sleeper.until.saturating_sub(face.monotonic);
        face.sleepers.iter().map(|sleeper| Duration::from_micros(left(sleeper))).collect()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        lock(&self.face).wall
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(lock(&self.face).monotonic)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let mut face = lock(&self.face);
        let until = face.monotonic.saturating_add(micros);
        let number = face.next;
        face.next = face.next.saturating_add(1);
        Box::pin(Sleep { face: Arc::clone(&self.face), number, until })
    }
}

struct Sleep {
    face: Arc<Mutex<Face>>,
    number: u64,
    until: u64,
}

impl Drop for Sleep {
    fn drop(&mut self) {
        lock(&self.face).sleepers.retain(|sleeper| sleeper.number != self.number);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let mut face = lock(&self.face);
        if face.monotonic >= self.until {
            return Poll::Ready(());
        }
        let waker = task.waker().clone();
        match face.sleepers.iter_mut().find(|sleeper| sleeper.number == self.number) {
            Some(sleeper) => sleeper.waker = waker,
            None => {
                let (number, until) = (self.number, self.until);
                face.sleepers.push(Sleeper { number, until, waker });
            }
        }
        Poll::Pending
    }
}

/// Bytes that look random and are the same in each run with the same seed.
#[derive(Debug)]
pub struct SeededEntropy {
    state: Mutex<u64>,
}

impl SeededEntropy {
    /// Bytes from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = lock(&self.state);
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64.
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = *state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            for (byte, drawn) in chunk.iter_mut().zip(word.to_le_bytes()) {
                *byte = drawn;
            }
        }
    }
}

/// Processes of one machine; each lives until a test says that it is dead.
#[derive(Debug)]
pub struct FixedProcesses {
    current: ProcessIdentity,
    dead: Mutex<BTreeSet<u32>>,
}

impl FixedProcesses {
    /// The machine as the process with this id sees it.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self { current: Self::identity(pid), dead: Mutex::default() }
    }

    /// The identity of a process of that machine.
    #[must_use]
    pub fn identity(pid: u32) -> ProcessIdentity {
        ProcessIdentity {
            boot_id: "00000000-0000-4000-8000-000000000001".to_owned(),
            pid_namespace: 4_026_531_836,
            pid,
            start_ticks: 1_000,
        }
    }

    /// From now on there is proof that the process is dead.
    pub fn kill(&self, pid: u32) {
        lock(&self.dead).insert(pid);
    }
}

impl Processes for FixedProcesses {
    fn current(&self) -> ProcessIdentity {
        self.current.clone()
    }

    fn is_dead(&self, process: &ProcessIdentity) -> bool {
        *process == Self::identity(process.pid) && lock(&self.dead).contains(&process.pid)
    }
}

/// Tasks and blocking work, each on a thread of its own.
#[derive(Clone, Debug)]
pub struct ThreadSpawn {
    inner: Arc<Places>,
}

#[derive(Debug)]
struct Places {
    blocking: usize,
    taken: AtomicUsize,
    running: Mutex<usize>,
    idle: Condvar,
}

impl Default for ThreadSpawn {
    fn default() -> Self {
        Self::with_places(64)
    }
}

impl ThreadSpawn {
    /// An executor with this many places for blocking work.
    #[must_use]
    pub fn with_places(blocking: usize) -> Self {
        Self {
            inner: Arc::new(Places {
                blocking,
                taken: AtomicUsize::new(0),
                running: Mutex::new(0),
                idle: Condvar::new(),
            }),
        }
    }

    /// Waits until everything that was started has ended.
    pub fn wait_idle(&self) {
        let mut running = lock(&self.inner.running);
        while *running > 0 {
            running = self.inner.idle.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until every place for blocking work is free.
    pub fn wait_places(&self) {
        while self.inner.taken.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
    }

    fn start(&self, work: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
        *lock(&self.inner.running) += 1;
        let running = Running(Arc::clone(&self.inner));
        let started = thread::Builder::new().name("testkit-task".to_owned()).spawn(move || {
            let _running = running;
            work();
        });
        started.map(drop).map_err(|_| SpawnError::NoCapacity)
    }
}

/// Counts work as ended when it returns and when it panics.
struct Running(Arc<Places>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = lock(&self.0.running);
        *running = running.saturating_sub(1);
        self.0.idle.notify_all();
    }
}

/// Gives a blocking place back.
struct TakenPlace(ThreadSpawn);

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.0.inner.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Place for TakenPlace {
    fn run(self: Box<Self>, work: Work) -> Result<(), SpawnError> {
        let spawn = self.0.clone();
        spawn.start(move || {
            let place = self;
            let tell = work();
            drop(place);
            tell();
        })
    }
}

impl Spawn for ThreadSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Result<(), SpawnError> {
        self.start(move || block_on(task))
    }

    fn place(&self) -> Result<Box<dyn Place>, SpawnError> {
        let limit = self.inner.blocking;
        let taken = self.inner.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
            (taken < limit).then(|| taken + 1)
        });
        taken.map_err(|_| SpawnError::NoCapacity)?;
        Ok(Box::new(TakenPlace(self.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_wakes_when_its_time_has_come_and_not_before() {
        let clock = ManualClock::default();
        let spawn = ThreadSpawn::default();
        let (done, woken) = std::sync::mpsc::channel();
        let sleep = clock.sleep(Duration::from_secs(2));
        spawn
            .spawn(Box::pin(async move {
                sleep.await;
                let _ = done.send(());
            }))
            .unwrap();
        while clock.next_wake() != Some(Duration::from_secs(2)) {
            thread::yield_now();
        }
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.next_wake(), Some(Duration::from_secs(1)));
        assert!(woken.try_recv().is_err());
        clock.advance(Duration::from_secs(1));
        spawn.wait_idle();
        assert_eq!(woken.try_recv(), Ok(()));
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn a_seed_decides_the_bytes() {
        let draw = |seed| {
            let mut bytes = [0; 20];
            SeededEntropy::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn blocking_places_are_bounded_and_come_back() {
        let spawn = ThreadSpawn::with_places(1);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (told, tells) = std::sync::mpsc::channel::<bool>();
        let after = spawn.clone();
        let work: Work = Box::new(move || {
            let _ = wait.recv();
            Box::new(move || told.send(after.place().is_ok()).unwrap())
        });
        spawn.place().unwrap().run(work).unwrap();
        assert_eq!(spawn.place().err(), Some(SpawnError::NoCapacity));
        go.send(()).unwrap();
        assert_eq!(tells.recv(), Ok(true), "whoever hears of the end finds the place free");
        spawn.wait_idle();
        let place = spawn.place().unwrap();
        assert_eq!(spawn.place().err(), Some(SpawnError::NoCapacity));
        drop(place);
        assert!(spawn.place().is_ok());
    }

    #[test]
    fn only_the_named_process_is_dead() {
        let processes = FixedProcesses::new(1);
        processes.kill(2);
        assert!(processes.is_dead(&FixedProcesses::identity(2)));
        assert!(!processes.is_dead(&FixedProcesses::identity(1)));
        let other_boot = ProcessIdentity { boot_id: "x".to_owned(), ..FixedProcesses::identity(2) };
        assert!(!processes.is_dead(&other_boot));
    }
}
