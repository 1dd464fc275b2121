//! The tasks of one process, all on the thread that asks: in the same order each time, and gone when the process is.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use portcullis_domain::ports::{BoxFuture, Place, Spawn, SpawnError, Work};

use crate::ports::ManualClock;

/// How long another thread may take to wake a task before the process counts as idle, and its clock moves on.
const PATIENCE: Duration = Duration::from_millis(20);

/// How much time may pass in a process before it counts as stuck.
const MOST_TIME: Duration = Duration::from_hours(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tasks of one process. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Crew(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    woken: Condvar,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Ready>,
    all: Vec<Arc<Task>>,
    over: bool,
}

enum Ready {
    Task(Arc<Task>),
    Work(Work),
}

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    queued: AtomicBool,
    crew: Weak<Shared>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let Some(crew) = self.crew.upgrade() else { return };
        if !self.queued.swap(true, Ordering::AcqRel) {
            lock(&crew.queue).ready.push_back(Ready::Task(self));
            crew.woken.notify_all();
        }
    }
}

/// How a process ended.
pub(super) enum Ran<T> {
    /// Its main task came to its end, and so did everything that could go on without time passing.
    Done(T),
    /// It was ended.
    Ended,
    /// Nothing in it goes on, however much time passes.
    Stuck,
}

impl Crew {
    /// Runs `main` and everything that it starts. Then, or once `ended` says so, all tasks are dropped where they are.
    ///
    /// While nothing can go on, time passes until the next sleeper wakes.
    pub(super) fn run<T: Send + 'static>(
        &self,
        main: impl Future<Output = T> + Send + 'static,
        clock: &ManualClock,
        ended: &dyn Fn() -> bool,
    ) -> Ran<T> {
        let result = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&result);
        let started = self.spawn(Box::pin(async move {
            let value = main.await;
            *lock(&slot) = Some(value);
        }));
        let ran = match started {
            Ok(()) => self.turn(&result, clock, ended),
            Err(_) => Ran::Stuck,
        };
        self.drop_all();
        ran
    }

    fn turn<T>(
        &self,
        result: &Mutex<Option<T>>,
        clock: &ManualClock,
        ended: &dyn Fn() -> bool,
    ) -> Ran<T> {
        let mut passed = Duration::ZERO;
        loop {
            // A statement of its own, so that the lock is free while the task runs.
            let next = lock(&self.0.queue).ready.pop_front();
            match next {
                Some(Ready::Task(task)) => poll(&task),
                Some(Ready::Work(work)) => work()(),
                None => {
                    if let Some(value) = lock(result).take() {
                        return Ran::Done(value);
                    }
                    if !self.woken_soon() {
                        match clock.next_wake() {
                            Some(wait) if passed < MOST_TIME => {
                                clock.advance(wait);
                                passed = passed.saturating_add(wait);
                            }
                            _ => return Ran::Stuck,
                        }
                    }
                }
            }
            if ended() {
                return Ran::Ended;
            }
        }
    }

    /// Whether another thread wakes a task of this process.
    fn woken_soon(&self) -> bool {
        let queue = lock(&self.0.queue);
        let waited = self.0.woken.wait_timeout_while(queue, PATIENCE, |q| q.ready.is_empty());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Drops every task. What a drop starts is refused.
    fn drop_all(&self) {
        let (ready, all) = {
            let mut queue = lock(&self.0.queue);
            queue.over = true;
            (std::mem::take(&mut queue.ready), std::mem::take(&mut queue.all))
        };
        drop(ready);
        for task in all {
            let future = lock(&task.future).take();
            drop(future);
        }
    }

    fn push(&self, ready: Ready) -> Result<(), SpawnError> {
        let refused = {
            let mut queue = lock(&self.0.queue);
            if queue.over {
                Some(ready)
            } else {
                if let Ready::Task(task) = &ready {
                    queue.all.push(Arc::clone(task));
                }
                queue.ready.push_back(ready);
                None
            }
        };
        // Dropped outside of the lock: a drop may start something.
        if refused.is_some() { Err(SpawnError::Closed) } else { Ok(()) }
    }
}

fn poll(task: &Arc<Task>) {
    task.queued.store(false, Ordering::Release);
    let Some(mut future) = lock(&task.future).take() else { return };
    let waker = Waker::from(Arc::clone(task));
    if future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        *lock(&task.future) = Some(future);
    }
}

impl Spawn for Crew {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Result<(), SpawnError> {
        let crew = Arc::downgrade(&self.0);
        let future = Mutex::new(Some(task));
        self.push(Ready::Task(Arc::new(Task { future, queued: AtomicBool::new(true), crew })))
    }

    fn place(&self) -> Result<Box<dyn Place>, SpawnError> {
        Ok(Box::new(self.clone()))
    }
}

impl Place for Crew {
    fn run(self: Box<Self>, work: Work) -> Result<(), SpawnError> {
        self.push(Ready::Work(work))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use portcullis_domain::ports::Clock as _;

    use super::*;

    #[test]
    fn time_passes_only_when_nothing_else_can() {
        let (crew, clock) = (Crew::default(), ManualClock::default());
        let (began, inner, time) = (clock.now(), crew.clone(), clock.clone());
        let main = async move {
            let ran = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&ran);
            let task = async move {
                count.fetch_add(1, Ordering::SeqCst);
            };
            inner.spawn(Box::pin(task)).unwrap();
            time.sleep(Duration::from_secs(3)).await;
            ran.load(Ordering::SeqCst)
        };
        assert!(matches!(crew.run(main, &clock, &|| false), Ran::Done(1)));
        assert_eq!(clock.now().micros_since(began), 3_000_000);
    }

    #[test]
    fn a_wake_from_another_thread_is_waited_for() {
        let (crew, clock) = (Crew::default(), ManualClock::default());
        let mut polls = 0;
        let main = std::future::poll_fn(move |context| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(polls);
            }
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert!(matches!(crew.run(main, &clock, &|| false), Ran::Done(3)));
    }

    #[test]
    fn what_is_ended_or_stuck_leaves_nothing_behind() {
        struct Held(Arc<AtomicU32>, Crew);
        impl Drop for Held {
            fn drop(&mut self) {
                assert_eq!(self.1.spawn(Box::pin(async {})), Err(SpawnError::Closed));
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let clock = ManualClock::default();
        for (end, stuck) in [(true, false), (false, true)] {
            let crew = Crew::default();
            let dropped = Arc::new(AtomicU32::new(0));
            let held = Held(Arc::clone(&dropped), crew.clone());
            let main = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            let ran = crew.run(main, &clock, &|| end);
            assert_eq!(matches!(ran, Ran::Stuck), stuck);
            assert_eq!(matches!(ran, Ran::Ended), end);
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
        }
    }
}
