//! The ports of a real process: its clocks, the kernel's randomness, and a tokio runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use portcullis_domain::ports::{
    BoxFuture, Clock, Entropy, Monotonic, Place, Spawn, SpawnError, Work,
};
use portcullis_domain::time::Timestamp;
use tokio::runtime::Handle;

/// The wall clock and the monotonic clock of this machine. Sleeping needs a tokio runtime with timers.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Clocks whose monotonic readings begin now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clocks"
    )]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clocks"
    )]
    fn now(&self) -> Timestamp {
        let micros = |d: Duration| i64::try_from(d.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => micros(since),
            Err(before) => micros(before.duration()).saturating_neg(),
        })
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The kernel's random bytes.
#[derive(Clone, Copy, Debug)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            // Ids, salts and keys that somebody can guess are worse than no process.
            stop_without_entropy(&error);
        }
    }
}

#[cold]
fn stop_without_entropy(error: &dyn std::fmt::Display) -> ! {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "the kernel gives no random bytes ({error}); stopping");
    std::process::abort()
}

/// Tasks and bounded blocking work on a tokio runtime.
#[derive(Clone, Debug)]
pub struct TokioSpawn {
    handle: Handle,
    taken: Arc<AtomicUsize>,
    places: usize,
}

impl TokioSpawn {
    /// Runs on `handle`, with this many places for blocking work.
    #[must_use]
    pub fn new(handle: Handle, places: usize) -> Self {
        Self { handle, taken: Arc::new(AtomicUsize::new(0)), places }
    }

    /// Places that are taken now, by calls that outlived their deadline among others.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

/// A taken place; free again when it is dropped.
struct TakenPlace {
    handle: Handle,
    taken: Arc<AtomicUsize>,
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Place for TakenPlace {
    fn run(self: Box<Self>, work: Work) -> Result<(), SpawnError> {
        let handle = self.handle.clone();
        handle.spawn_blocking(move || {
            let place = self;
            let tell = work();
            drop(place);
            tell();
        });
        Ok(())
    }
}

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Result<(), SpawnError> {
        self.handle.spawn(task);
        Ok(())
    }

    fn place(&self) -> Result<Box<dyn Place>, SpawnError> {
        let taken = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
            (taken < self.places).then(|| taken.saturating_add(1))
        });
        taken.map_err(|_| SpawnError::NoCapacity)?;
        Ok(Box::new(TakenPlace { handle: self.handle.clone(), taken: Arc::clone(&self.taken) }))
    }
}
