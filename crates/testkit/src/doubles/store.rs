//! A store that fails, or loses its answer, on the nth call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_canon::Digest;
use portcullis_domain::id::{InstanceId, RunId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{Append, BoxFuture, Committed, Reminder, Store, StoreError};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Wraps a store, counts what is asked of it, and goes wrong where a test says. Calls of each kind are counted from 1.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_canon::Digest;
/// use portcullis_domain::ports::{Store, StoreError};
/// use portcullis_domain::time::Timestamp;
/// use portcullis_store::memory::MemoryStore;
/// use portcullis_testkit::{block_on, doubles::FaultyStore, ports::SeededEntropy};
///
/// let inner = MemoryStore::new(Timestamp::from_micros(0), &SeededEntropy::new(1));
/// let store = FaultyStore::new(Arc::new(inner)).failing_read(2, StoreError::Busy);
/// assert_eq!(block_on(store.spec(Digest::ZERO)), Ok(None));
/// assert_eq!(block_on(store.spec(Digest::ZERO)), Err(StoreError::Busy));
/// assert_eq!((store.reads(), store.appends(), store.fired()), (2, 0, 1));
/// ```
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Mutex<Vec<Fault>>,
    reads: AtomicU64,
    appends: AtomicU64,
    renewals: AtomicU64,
    fired: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Append,
    Renewal,
    Read,
}

struct Fault {
    act: Act,
    number: u64,
    /// What the caller hears instead.
    error: StoreError,
    /// Whether the store behind does it all the same.
    done: bool,
}

impl FaultyStore {
    /// A store without faults.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            faults: Mutex::default(),
            reads: AtomicU64::new(0),
            appends: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            fired: AtomicU64::new(0),
        }
    }

    /// The append with this number is not made, and fails like this.
    #[must_use]
    pub fn failing(self, number: u64, error: StoreError) -> Self {
        self.with(Fault { act: Act::Append, number, error, done: false })
    }

    /// The append with this number is made, and its caller hears [`StoreError::InDoubt`].
    #[must_use]
    pub fn losing_answer(self, number: u64) -> Self {
        let error = StoreError::InDoubt;
        self.with(Fault { act: Act::Append, number, error, done: true })
    }

    /// The read with this number fails like this.
    #[must_use]
    pub fn failing_read(self, number: u64, error: StoreError) -> Self {
        self.with(Fault { act: Act::Read, number, error, done: false })
    }

    /// The renewal of a lease with this number is not made, and fails like this.
    #[must_use]
    pub fn failing_renewal(self, number: u64, error: StoreError) -> Self {
        self.with(Fault { act: Act::Renewal, number, error, done: false })
    }

    fn with(self, fault: Fault) -> Self {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        self
    }

    /// How many appends were asked for so far; erasing is one.
    #[must_use]
    pub fn appends(&self) -> u64 {
        self.appends.load(Ordering::SeqCst)
    }

    /// How many reads were asked for so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// How many renewals were asked for so far.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::SeqCst)
    }

    /// How many faults came to pass so far. A test that expects one asks.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::SeqCst)
    }

    /// Counts a call; its fault, if it has one.
    fn fault(&self, act: Act) -> Option<Fault> {
        let counter = match act {
            Act::Append => &self.appends,
            Act::Renewal => &self.renewals,
            Act::Read => &self.reads,
        };
        let number = counter.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let place = faults.iter().position(|fault| fault.act == act && fault.number == number)?;
        self.fired.fetch_add(1, Ordering::SeqCst);
        Some(faults.swap_remove(place))
    }

    /// A call, counted when it is first polled.
    fn call<'a, T: Send + 'a>(&'a self, act: Act, work: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            match self.fault(act) {
                None => work.await,
                Some(fault) if fault.done => work.await.and(Err(fault.error)),
                Some(fault) => Err(fault.error),
            }
        })
    }
}

impl FaultyStore {
    fn read<'a, T: Send + 'a>(&'a self, read: Answer<'a, T>) -> Answer<'a, T> {
        self.call(Act::Read, read)
    }
}

impl Store for FaultyStore {
    fn instance(&self) -> InstanceId {
        self.inner.instance()
    }

    fn append<'a>(&'a self, scope: &'a Scope, append: Append) -> Answer<'a, Committed> {
        // The store behind hears of the append when it is polled, and not when the future is made.
        let work = Box::pin(async move { self.inner.append(scope, append).await });
        self.call(Act::Append, work)
    }

    fn renew<'a>(
        &'a self,
        scope: &'a Scope,
        run: RunId,
        epoch: Epoch,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, ()> {
        let work = Box::pin(async move { self.inner.renew(scope, run, epoch, now, until).await });
        self.call(Act::Renewal, work)
    }

    crate::store_reads!(inner, read);

    fn remind<'a>(
        &'a self,
        scope: &'a Scope,
        reminder: Reminder,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.call(Act::Append, self.inner.remind(scope, reminder))
    }

    fn erase<'a>(
        &'a self,
        scope: &'a Scope,
        digest: Digest,
        by: &'a str,
        at: Timestamp,
    ) -> Answer<'a, ()> {
        let work = Box::pin(async move { self.inner.erase(scope, digest, by, at).await });
        self.call(Act::Append, work)
    }
}
