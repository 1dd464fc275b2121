//! Where commits run: on the store's own thread, or on the caller's when nobody else is about.
//!
//! There is one writer, behind a lock. Its own thread takes all that waits in the queue and commits it together. A
//! caller that may commit by itself does so only when the lock is free and nothing waits; otherwise it queues like
//! everybody else. So at most one caller at a time is kept by the disk, and a crowd shares its commits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};

use futures_channel::oneshot;
use portcullis_domain::event::Event;
use portcullis_domain::ports::{Append, Committed, Durability, Reminder, StoreError};
use portcullis_domain::scope::Tenant;

use super::queue::Queue;
use super::task::{Renewal, Task};
use super::writer::{Served, Writer};

/// How many tasks may wait for the writer.
const WAITING: usize = 1024;

/// How many bytes of contents may wait for the writer. A single task may be larger, and then waits alone.
const WAITING_BYTES: usize = 64 * 1024 * 1024;

/// The most tasks of one transaction.
const BATCH: usize = 64;

/// Which thread a commit runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Committing {
    /// The store's own: no caller is ever kept by the disk. For a host whose threads serve others meanwhile.
    #[default]
    OwnThread,
    /// The caller's, as long as nothing else is being written; it is then kept for the length of a commit. That
    /// spares two hand-offs between threads, which cost about as much as what is written. Looks for one row run on the
    /// caller's thread too, while a connection is free. For a process that mainly drives one run.
    Caller,
}

/// The writer and its thread. Dropping it commits what waits.
pub(super) struct Writing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Queue<Job>,
    /// `None` once nothing more can be written.
    writer: Mutex<Option<Box<Writer>>>,
    committing: Committing,
    /// Whether the last batch of the writer's thread left or held more than one task. Callers that commit by
    /// themselves would then only split what is better committed together.
    crowded: AtomicBool,
}

/// Gives up what waits, and whatever comes.
struct Abandon<'a>(&'a Queue<Job>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

struct Job {
    task: Task,
    reply: oneshot::Sender<Answer>,
}

/// What a task stored, and how the batch was committed.
type Answer = Result<(Vec<Event>, Durability), StoreError>;

impl Writing {
    /// Starts the writer's thread.
    pub(super) fn start(writer: Writer, committing: Committing) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Queue::new(WAITING, WAITING_BYTES),
            writer: Mutex::new(Some(Box::new(writer))),
            committing,
            crowded: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("portcullis-write".to_owned())
            .spawn(move || served.serve())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Commits an append.
    pub(super) async fn append(
        &self,
        tenant: Tenant,
        append: Append,
    ) -> Result<Committed, StoreError> {
        let (events, durability) = self.run(Task::append(tenant, append)?).await?;
        Ok(Committed { events, durability })
    }

    /// Prolongs a lease.
    pub(super) async fn renew(&self, tenant: Tenant, renewal: Renewal) -> Result<(), StoreError> {
        self.run(Task::Renew(tenant, renewal)).await.map(drop)
    }

    /// Notes that people were reminded.
    pub(super) async fn remind(
        &self,
        tenant: Tenant,
        reminder: Reminder,
    ) -> Result<(), StoreError> {
        self.run(Task::Remind(tenant, reminder)).await.map(drop)
    }

    async fn run(&self, task: Task) -> Answer {
        if let Some(writer) = self.shared.free() {
            return self.shared.alone(writer, task);
        }
        let (reply, answer) = oneshot::channel();
        let weight = task.weight();
        let job = Job { task, reply };
        self.shared.queue.push(job, weight).await.map_err(|_| StoreError::Closed)?;
        // Without an answer the job was given up before it was begun.
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Shared {
    /// Serves the queue until it is closed and empty.
    fn serve(&self) {
        while self.queue.wait() {
            // Taken under the lock, so that all that came while a caller committed goes together.
            let mut writer = self.lock();
            let jobs = self.queue.take(BATCH);
            self.crowded.store(jobs.len() > 1 || self.queue.len() > 0, Ordering::Relaxed);
            let (tasks, replies): (Vec<Task>, Vec<_>) =
                jobs.into_iter().map(|job| (job.task, job.reply)).unzip();
            let Some(served) = self.batch(&mut writer, tasks) else { return };
            drop(writer);
            for (reply, answer) in replies.into_iter().zip(served.answers) {
                // A caller that is gone does not want its answer.
                drop(reply.send(answer.map(|events| (events, served.durability))));
            }
        }
    }

    /// The writer, if a caller may commit by itself and nobody else is about.
    fn free(&self) -> Option<MutexGuard<'_, Option<Box<Writer>>>> {
        let may = self.committing == Committing::Caller
            && !self.crowded.load(Ordering::Relaxed)
            && self.queue.is_idle();
        if !may {
            return None;
        }
        match self.writer.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Commits a task on this thread.
    fn alone(&self, mut writer: MutexGuard<'_, Option<Box<Writer>>>, task: Task) -> Answer {
        let served = self.batch(&mut writer, vec![task]).ok_or(StoreError::Closed)?;
        let answer = served.answers.into_iter().next().unwrap_or(Err(StoreError::Closed));
        answer.map(|events| (events, served.durability))
    }

    /// Has the writer serve a batch; `None` when there is no writer any more. One that cannot go on is dropped, and
    /// the queue with it.
    fn batch(&self, slot: &mut Option<Box<Writer>>, tasks: Vec<Task>) -> Option<Served> {
        let mut writer = slot.take()?;
        // Nobody waits for a writer that is gone, however it went.
        let end = Abandon(&self.queue);
        let served = writer.batch(tasks);
        if served.goes_on {
            *slot = Some(writer);
            std::mem::forget(end);
        }
        Some(served)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Writer>>> {
        // A batch that panics leaves no writer behind.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.shared.queue.close();
        // The last handle may be dropped by an observer, on the writer's own thread.
        let thread = self.thread.take().filter(|t| t.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            let _reported_already = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
