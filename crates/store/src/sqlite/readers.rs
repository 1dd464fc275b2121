//! Reads on threads of their own: a caller waits for an answer, never for the disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use futures_channel::oneshot;
use portcullis_domain::ports::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::refusal;
use super::queue::Queue;

/// How many reads run at once.
pub(super) const READERS: usize = 2;

/// How many reads may wait.
const WAITING: usize = 256;

type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// The reading threads. Dropping it waits until they are done.
pub(super) struct Readers {
    queue: Arc<Queue<Read>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts one thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(WAITING, WAITING));
        let mut readers = Self { queue: Arc::clone(&queue), threads: Vec::new() };
        for conn in connections {
            let queue = Arc::clone(&queue);
            let name = "portcullis-read".to_owned();
            readers
                .threads
                .push(thread::Builder::new().name(name).spawn(move || serve(&conn, &queue))?);
        }
        Ok(readers)
    }

    /// Runs `read` in a transaction of its own.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Read = Box::new(move |conn| {
            // A caller that is gone does not want its answer.
            drop(reply.send(conn.and_then(read)));
        });
        self.queue.push(job, 1).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

fn serve(conn: &Connection, queue: &Queue<Read>) {
    conn.set_prepared_statement_cache_capacity(64);
    while queue.wait() {
        let reads = queue.take(1);
        for read in reads {
            // A read that panics answers nobody; the transaction ends while unwinding.
            let ran = catch_unwind(AssertUnwindSafe(|| in_transaction(conn, read)));
            if ran.is_err() {
                tracing::error!("a read of the store panicked");
            }
        }
    }
}

fn in_transaction(conn: &Connection, read: Read) {
    match Transaction::new_unchecked(conn, TransactionBehavior::Deferred) {
        Ok(tx) => read(Ok(&tx)),
        Err(error) => read(Err(refusal(&error))),
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // The last handle may be dropped by a reader itself.
            if thread.thread().id() != thread::current().id() {
                let _reported_already = thread.join();
            }
        }
    }
}
