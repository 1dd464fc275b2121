//! An executor on one thread: tasks and blocking jobs of several processes, each moved on only when it is told.
//!
//! A process that dies takes its tasks and jobs with it, wherever they stand: their futures are dropped at a poll.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use portcullis_domain::ports::{BoxFuture, Place, Spawn, SpawnError, Tell, Work};

/// Places for blocking work that one process has.
const PLACES: usize = 2;

/// A process of the simulated machine.
pub(crate) type Pid = u32;

/// What can be moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Polls a task.
    Poll(u64),
    /// Begins a blocking job and does all of its work.
    Work(u64),
    /// Tells of the end of a job.
    Tell(u64),
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Task {
    pid: Pid,
    future: BoxFuture<'static, ()>,
    ready: Arc<Flag>,
}

enum Job {
    Waits(Pid, Work, Taken),
    Done(Pid, Tell),
}

#[derive(Default)]
struct Inner {
    next: u64,
    tasks: BTreeMap<u64, Task>,
    jobs: BTreeMap<u64, Job>,
    alive: BTreeSet<Pid>,
    stopped: BTreeSet<Pid>,
    places: BTreeMap<Pid, usize>,
    /// No thread is to be had on the machine.
    full: bool,
    current: Pid,
}

/// The executor; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Executor(Arc<Mutex<Inner>>);

impl Executor {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process begins to live.
    pub(crate) fn begin(&self, pid: Pid) {
        self.lock().alive.insert(pid);
    }

    /// The process whose task or job is being moved on.
    pub(crate) fn current(&self) -> Pid {
        self.lock().current
    }

    pub(crate) fn alive(&self) -> Vec<Pid> {
        self.lock().alive.iter().copied().collect()
    }

    pub(crate) fn stopped(&self) -> Vec<Pid> {
        self.lock().stopped.iter().copied().collect()
    }

    /// Nothing of the process is moved on until it goes on.
    pub(crate) fn stop(&self, pid: Pid) {
        self.lock().stopped.insert(pid);
    }

    pub(crate) fn go_on(&self, pid: Pid) {
        self.lock().stopped.remove(&pid);
    }

    /// No places for blocking work are given any more, or again.
    pub(crate) fn fill(&self, full: bool) {
        self.lock().full = full;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().full
    }

    /// The process dies.
    pub(crate) fn kill(&self, pid: Pid) {
        let mut inner = self.lock();
        inner.alive.remove(&pid);
        inner.stopped.remove(&pid);
        let tasks: Vec<Task> =
            inner.tasks.extract_if(.., |_, task| task.pid == pid).map(|(_, task)| task).collect();
        let jobs: Vec<Job> =
            inner.jobs.extract_if(.., |_, job| job.pid() == pid).map(|(_, job)| job).collect();
        // What is dropped may ask this executor for something, and is refused.
        drop(inner);
        drop((tasks, jobs));
    }

    /// What can be moved on now, in the order in which it was made.
    pub(crate) fn ready(&self) -> Vec<Step> {
        let inner = self.lock();
        let goes = |pid: Pid| !inner.stopped.contains(&pid);
        let tasks = inner
            .tasks
            .iter()
            .filter(|(_, task)| goes(task.pid) && task.ready.0.load(Ordering::SeqCst));
        let jobs =
            inner.jobs.iter().filter(|(_, job)| goes(job.pid())).map(|(id, job)| match job {
                Job::Waits(..) => Step::Work(*id),
                Job::Done(..) => Step::Tell(*id),
            });
        tasks.map(|(id, _)| Step::Poll(*id)).chain(jobs).collect()
    }

    /// Moves one thing on.
    pub(crate) fn run(&self, step: Step) {
        match step {
            Step::Poll(id) => self.poll(id),
            Step::Work(id) => self.work(id),
            Step::Tell(id) => {
                let job = self.lock().jobs.remove(&id);
                if let Some(Job::Done(pid, tell)) = job {
                    self.lock().current = pid;
                    tell();
                }
            }
        }
    }

    fn poll(&self, id: u64) {
        let mut inner = self.lock();
        let Some(mut task) = inner.tasks.remove(&id) else { return };
        inner.current = task.pid;
        drop(inner);
        task.ready.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&task.ready));
        let polled = task.future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut inner = self.lock();
        if polled.is_pending() && inner.alive.contains(&task.pid) {
            inner.tasks.insert(id, task);
            return;
        }
        drop(inner);
        drop(task);
    }

    fn work(&self, id: u64) {
        let mut inner = self.lock();
        let Some(job) = inner.jobs.remove(&id) else { return };
        inner.current = job.pid();
        drop(inner);
        let Job::Waits(pid, work, place) = job else { return };
        let tell = work();
        drop(place);
        let mut inner = self.lock();
        if inner.alive.contains(&pid) {
            inner.jobs.insert(id, Job::Done(pid, tell));
        }
    }

    /// Ends everything.
    pub(crate) fn clear(&self) {
        for pid in self.alive() {
            self.kill(pid);
        }
    }

    /// The executor as one process sees it.
    pub(crate) fn of(&self, pid: Pid) -> ProcessSpawn {
        ProcessSpawn { executor: self.clone(), pid }
    }
}

impl Job {
    const fn pid(&self) -> Pid {
        match self {
            Self::Waits(pid, ..) | Self::Done(pid, _) => *pid,
        }
    }
}

/// What one process starts.
#[derive(Clone)]
pub(crate) struct ProcessSpawn {
    executor: Executor,
    pid: Pid,
}

impl Spawn for ProcessSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Result<(), SpawnError> {
        let mut inner = self.executor.lock();
        if !inner.alive.contains(&self.pid) {
            drop(inner);
            drop(task);
            return Err(SpawnError::Closed);
        }
        let id = inner.next;
        inner.next += 1;
        let ready = Arc::new(Flag(AtomicBool::new(true)));
        inner.tasks.insert(id, Task { pid: self.pid, future: task, ready });
        Ok(())
    }

    fn place(&self) -> Result<Box<dyn Place>, SpawnError> {
        let mut inner = self.executor.lock();
        if inner.full {
            return Err(SpawnError::NoCapacity);
        }
        let taken = inner.places.entry(self.pid).or_insert(0);
        if *taken >= PLACES {
            return Err(SpawnError::NoCapacity);
        }
        *taken += 1;
        drop(inner);
        Ok(Box::new(Taken(self.clone())))
    }
}

/// A place that is taken; dropping it frees it.
struct Taken(ProcessSpawn);

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(taken) = self.0.executor.lock().places.get_mut(&self.0.pid) {
            *taken = taken.saturating_sub(1);
        }
    }
}

impl Place for Taken {
    fn run(self: Box<Self>, work: Work) -> Result<(), SpawnError> {
        let (executor, pid) = (self.0.executor.clone(), self.0.pid);
        let mut inner = executor.lock();
        if !inner.alive.contains(&pid) {
            drop(inner);
            drop((work, self));
            return Err(SpawnError::Closed);
        }
        let id = inner.next;
        inner.next += 1;
        inner.jobs.insert(id, Job::Waits(pid, work, *self));
        Ok(())
    }
}

/// Gives the scheduler so many chances to do something else.
pub(crate) async fn pause(times: u64) {
    let mut left = times;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count() -> (Arc<Mutex<Vec<&'static str>>>, impl Fn(&'static str)) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        (seen, move |what| told.lock().unwrap().push(what))
    }

    #[test]
    fn nothing_moves_unless_it_is_told_and_the_dead_never() {
        let executor = Executor::default();
        let (seen, tell) = count();
        executor.begin(1);
        let task = async move {
            tell("begun");
            pause(1).await;
            tell("ended");
        };
        executor.of(1).spawn(Box::pin(task)).unwrap();
        assert_eq!(executor.ready(), [Step::Poll(0)]);
        executor.run(Step::Poll(0));
        executor.kill(1);
        assert_eq!(executor.ready(), []);
        assert_eq!(*seen.lock().unwrap(), ["begun"]);
        assert_eq!(executor.of(1).spawn(Box::pin(async {})).err(), Some(SpawnError::Closed));
    }

    #[test]
    fn work_is_done_apart_from_its_telling_and_frees_its_place_before() {
        let executor = Executor::default();
        let (seen, tell) = count();
        executor.begin(1);
        let places: Vec<_> = (0..PLACES).map(|_| executor.of(1).place().unwrap()).collect();
        assert_eq!(executor.of(1).place().err(), Some(SpawnError::NoCapacity));
        let work: Work = Box::new(move || {
            tell("worked");
            Box::new(move || tell("told"))
        });
        let mut places = places.into_iter();
        places.next().unwrap().run(work).unwrap();
        executor.run(Step::Work(0));
        assert!(executor.of(1).place().is_ok());
        assert_eq!((executor.ready(), seen.lock().unwrap().len()), (vec![Step::Tell(0)], 1));
        executor.run(Step::Tell(0));
        assert_eq!(*seen.lock().unwrap(), ["worked", "told"]);
    }

    #[test]
    fn the_stopped_wait() {
        let executor = Executor::default();
        executor.begin(1);
        executor.of(1).spawn(Box::pin(async {})).unwrap();
        executor.stop(1);
        assert_eq!(executor.ready(), []);
        executor.go_on(1);
        assert_eq!(executor.ready().len(), 1);
    }
}
