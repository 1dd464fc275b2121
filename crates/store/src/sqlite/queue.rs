//! A bounded queue from async callers to ordinary threads: callers wait without blocking, threads block.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// See the module.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    most: usize,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// Callers that found no room.
    wakers: Vec<Waker>,
    closed: bool,
}

impl<T> Queue<T> {
    /// A queue with room for this many.
    pub(super) fn new(most: usize) -> Self {
        let state = State { waiting: VecDeque::new(), wakers: Vec::new(), closed: false };
        Self { state: Mutex::new(state), filled: Condvar::new(), most }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and adds; gives the item back when the queue is closed.
    pub(super) async fn push(&self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        poll_fn(|task| {
            let mut state = self.lock();
            if !state.closed && state.waiting.len() >= self.most {
                state.wakers.push(task.waker().clone());
                return Poll::Pending;
            }
            let Some(item) = item.take() else { return Poll::Ready(Ok(())) };
            if state.closed {
                return Poll::Ready(Err(item));
            }
            state.waiting.push_back(item);
            self.filled.notify_one();
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Waits for at least one item and takes up to `most`; `None` when the queue is closed and empty.
    pub(super) fn take(&self, most: usize) -> Option<Vec<T>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let count = state.waiting.len().min(most);
        let taken = state.waiting.drain(..count).collect();
        // All of them: one whose future is gone would otherwise swallow the place of another.
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Some(taken)
    }

    /// Refuses what comes later. What waits is still taken.
    pub(super) fn close(&self) {
        let wakers = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.wakers)
        };
        self.filled.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Refuses what comes later and gives up what waits.
    pub(super) fn abandon(&self) {
        self.close();
        let waiting = std::mem::take(&mut self.lock().waiting);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use portcullis_testkit::block_on;

    use super::*;

    #[test]
    fn nothing_is_lost_or_reordered_through_a_narrow_queue() {
        let queue = Arc::new(Queue::new(2));
        let writer = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            for item in 0..1000 {
                block_on(writer.push(item)).unwrap();
            }
            writer.close();
        });
        let mut seen = Vec::new();
        while let Some(items) = queue.take(3) {
            assert!(items.len() <= 2);
            seen.extend(items);
        }
        thread.join().unwrap();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        assert_eq!(block_on(queue.push(7)), Err(7));
    }

    #[test]
    fn closing_wakes_who_waits_for_room() {
        let queue = Arc::new(Queue::new(1));
        block_on(queue.push(1)).unwrap();
        let waiting = Arc::clone(&queue);
        let thread = std::thread::spawn(move || block_on(waiting.push(2)));
        while queue.lock().wakers.is_empty() {
            std::thread::yield_now();
        }
        queue.abandon();
        assert_eq!(thread.join().unwrap(), Err(2));
        assert_eq!(queue.take(1), None);
    }
}
