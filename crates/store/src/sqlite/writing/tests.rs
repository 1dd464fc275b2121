//! Which thread commits, and that nothing is lost between the two ways.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::mpsc;

use portcullis_domain::ports::Observer;
use portcullis_testkit::block_on;
use portcullis_testkit::scenario::Scenario;
use tempfile::TempDir;

use super::*;
use crate::sqlite::writer::Plan;
use crate::sqlite::writer::tests::bench;

/// Says on which thread each commit was.
struct Witness(Mutex<mpsc::Sender<thread::ThreadId>>);

impl Observer for Witness {
    fn committed(&self, _events: &[Event]) {
        self.0.lock().unwrap().send(thread::current().id()).unwrap();
    }
}

struct Scene {
    writing: Arc<Writing>,
    seen: mpsc::Receiver<thread::ThreadId>,
    runs: Vec<Scenario>,
    _folder: TempDir,
}

fn scene(committing: Committing, plans: &[Plan]) -> Scene {
    let mut bench = bench();
    let (witness, seen) = mpsc::channel();
    bench.writer.observers.push(Arc::new(Witness(Mutex::new(witness))));
    bench.plans.lock().unwrap().extend(plans);
    let instance = bench.writer.instance;
    let runs = (1..=8).map(|seed| Scenario::new(seed, instance)).collect();
    let writing = Arc::new(Writing::start(bench.writer, committing).unwrap());
    Scene { writing, seen, runs, _folder: bench.folder }
}

impl Scene {
    fn begin(&mut self, run: usize) -> Result<Committed, StoreError> {
        let append = self.runs[run].begin();
        block_on(self.writing.append(Tenant::local(), append))
    }

    fn writers_thread(&self) -> thread::ThreadId {
        self.writing.thread.as_ref().unwrap().thread().id()
    }
}

#[test]
fn who_commits_is_what_was_chosen() {
    let mut own = scene(Committing::OwnThread, &[]);
    own.begin(0).unwrap();
    assert_eq!(own.seen.recv().unwrap(), own.writers_thread());
    let mut caller = scene(Committing::Caller, &[]);
    caller.begin(0).unwrap();
    assert_eq!(caller.seen.recv().unwrap(), thread::current().id());
}

#[test]
fn a_caller_that_meets_another_queues_and_a_crowd_shares_its_commits() {
    let mut scene = scene(Committing::Caller, &[]);
    // As if somebody were committing: whoever comes now has to wait.
    let busy = scene.writing.shared.writer.lock().unwrap();
    let callers: Vec<_> = scene
        .runs
        .drain(..4)
        .map(|mut run| {
            let writing = Arc::clone(&scene.writing);
            thread::spawn(move || block_on(writing.append(Tenant::local(), run.begin())).unwrap())
        })
        .collect();
    while scene.writing.shared.queue.len() < 4 {
        thread::yield_now();
    }
    drop(busy);
    let ends: Vec<u64> = callers
        .into_iter()
        .map(|caller| caller.join().unwrap().events.last().unwrap().link.journal_seq)
        .collect();
    let mut sorted = ends.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [4, 7, 10, 13]);
    assert!((0..4).all(|_| scene.seen.recv().unwrap() == scene.writers_thread()));
    // They went together, so the next one joins the queue too; alone there, it shows that the crowd is gone.
    assert!(scene.writing.shared.crowded.load(Ordering::Relaxed));
    scene.begin(0).unwrap();
    assert_eq!(scene.seen.recv().unwrap(), scene.writers_thread());
    scene.begin(1).unwrap();
    assert_eq!(scene.seen.recv().unwrap(), thread::current().id());
}

#[test]
fn a_writer_that_cannot_go_on_takes_nothing_more() {
    for committing in [Committing::OwnThread, Committing::Caller] {
        let mut scene = scene(committing, &[Plan::PanicBeforeCommit]);
        assert_eq!(scene.begin(0).unwrap_err(), StoreError::Closed, "{committing:?}");
        assert_eq!(scene.begin(1).unwrap_err(), StoreError::Closed, "{committing:?}");
    }
}

#[test]
fn what_waits_is_committed_when_the_store_is_dropped() {
    for committing in [Committing::OwnThread, Committing::Caller] {
        let mut scene = scene(committing, &[]);
        let busy = Arc::clone(&scene.writing.shared);
        let busy = busy.writer.lock().unwrap();
        let mut waiting = Box::pin(scene.writing.append(Tenant::local(), scene.runs[0].begin()));
        assert!(poll_once(waiting.as_mut()).is_none());
        drop(waiting);
        drop(busy);
        let Scene { writing, seen, .. } = scene;
        drop(writing);
        assert_eq!(seen.try_iter().count(), 1, "{committing:?}");
    }
}

/// Polls a future once.
fn poll_once<T>(future: std::pin::Pin<&mut dyn Future<Output = T>>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
