//! Where reads run: on the store's own threads, or on the caller's for what is one row, when nobody else is about.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use futures_channel::oneshot;
use portcullis_domain::ports::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::refusal;
use super::queue::Queue;
use super::writing::Committing;

/// How many reads run at once.
pub(super) const READERS: usize = 2;

/// How many reads may wait.
const WAITING: usize = 256;

type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// The connections that read, and a thread for each. Dropping it waits until they are done.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Queue<Read>,
    /// Each is used by its own thread, and by callers while that has nothing to do.
    connections: Vec<Mutex<Connection>>,
    committing: Committing,
}

impl Readers {
    /// Starts one thread for each connection.
    pub(super) fn start(
        connections: Vec<Connection>,
        committing: Committing,
    ) -> std::io::Result<Self> {
        let connections: Vec<_> = connections.into_iter().map(Mutex::new).collect();
        let queue = Queue::new(WAITING, WAITING);
        let shared = Arc::new(Shared { queue, connections, committing });
        let mut readers = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for number in 0..shared.connections.len() {
            let shared = Arc::clone(&shared);
            let name = "portcullis-read".to_owned();
            readers
                .threads
                .push(thread::Builder::new().name(name).spawn(move || shared.serve(number))?);
        }
        Ok(readers)
    }

    /// Runs `read` in a transaction of its own, on one of the store's threads.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Read = Box::new(move |conn| {
            // A caller that is gone does not want its answer.
            drop(reply.send(conn.and_then(read)));
        });
        self.shared.queue.push(job, 1).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// The same for what ends soon, such as a look for one row: where callers commit, this runs on their threads too.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(conn) = self.shared.free() else { return self.run(read).await };
        let mut found = Err(StoreError::Closed);
        guarded(&conn, |conn| found = conn.and_then(read));
        found
    }
}

impl Shared {
    fn serve(&self, number: usize) {
        let Some(own) = self.connections.get(number) else { return };
        lock(own).set_prepared_statement_cache_capacity(64);
        while self.queue.wait() {
            // Taken under the lock: what a thread waits with, another could have begun.
            let conn = lock(own);
            for read in self.queue.take(1) {
                guarded(&conn, read);
            }
        }
    }

    /// A connection that nobody uses, where callers may.
    fn free(&self) -> Option<MutexGuard<'_, Connection>> {
        if self.committing != Committing::Caller || !self.queue.is_idle() {
            return None;
        }
        self.connections.iter().find_map(|conn| match conn.try_lock() {
            Ok(conn) => Some(conn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}

fn lock(conn: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    // No read panics past `guarded`, which ends its transaction.
    conn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A read that panics answers nobody; the transaction ends while unwinding.
fn guarded(conn: &Connection, read: impl FnOnce(Result<&Connection, StoreError>)) {
    let ran = catch_unwind(AssertUnwindSafe(|| in_transaction(conn, read)));
    if ran.is_err() {
        tracing::error!("a read of the store panicked");
    }
}

fn in_transaction(conn: &Connection, read: impl FnOnce(Result<&Connection, StoreError>)) {
    match Transaction::new_unchecked(conn, TransactionBehavior::Deferred) {
        Ok(tx) => read(Ok(&tx)),
        Err(error) => read(Err(refusal(&error))),
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by a reader itself.
            if thread.thread().id() != thread::current().id() {
                let _reported_already = thread.join();
            }
        }
    }
}
