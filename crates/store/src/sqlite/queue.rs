//! A bounded queue from async callers to ordinary threads: callers wait without blocking, threads block.
//!
//! It is bounded in items and in their weight, so that a few large ones cannot exhaust the memory.

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
    most_weight: usize,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<(usize, T)>,
    /// The weight of what waits.
    weight: usize,
    /// Callers that found no room, in the order in which they came: each with its ticket and whom to wake.
    line: VecDeque<(u64, Waker)>,
    /// The next ticket.
    next: u64,
    closed: bool,
}

impl<T> State<T> {
    /// Everybody in the line.
    fn wakers(&self) -> Vec<Waker> {
        self.line.iter().map(|(_, waker)| waker.clone()).collect()
    }
}

/// A caller's place in the line, left when it is dropped.
struct Line<'q, T> {
    queue: &'q Queue<T>,
    ticket: Option<u64>,
}

impl<T> Line<'_, T> {
    fn is_first(&self, state: &State<T>) -> bool {
        state.line.front().map(|(ticket, _)| *ticket) == self.ticket
    }

    fn wait(&mut self, state: &mut State<T>, waker: &Waker) {
        let own = |place: &&mut (u64, Waker)| Some(place.0) == self.ticket;
        if let Some((_, known)) = state.line.iter_mut().find(own) {
            known.clone_from(waker);
            return;
        }
        state.line.push_back((state.next, waker.clone()));
        self.ticket = Some(state.next);
        state.next = state.next.wrapping_add(1);
    }
}

impl<T> Drop for Line<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let wakers = {
            let mut state = self.queue.lock();
            state.line.retain(|(other, _)| *other != ticket);
            state.wakers()
        };
        // The next one may have room already.
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T> Queue<T> {
    /// A queue with room for this many items of this weight together. One that is heavier waits alone.
    pub(super) fn new(most: usize, most_weight: usize) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            weight: 0,
            line: VecDeque::new(),
            next: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), filled: Condvar::new(), most, most_weight }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, state: &State<T>, weight: usize) -> bool {
        state.waiting.is_empty()
            || (state.waiting.len() < self.most
                && state.weight.saturating_add(weight) <= self.most_weight)
    }

    /// Waits for room and adds; gives the item back when the queue is closed. Whoever waits for room is let in before
    /// those who come later, however heavy its item is.
    pub(super) async fn push(&self, item: T, weight: usize) -> Result<(), T> {
        let mut item = Some(item);
        let mut line = Line { queue: self, ticket: None };
        poll_fn(|task| {
            let mut state = self.lock();
            let let_in = line.is_first(&state) && self.has_room(&state, weight);
            if !state.closed && !let_in {
                line.wait(&mut state, task.waker());
                return Poll::Pending;
            }
            let Some(item) = item.take() else { return Poll::Ready(Ok(())) };
            if state.closed {
                return Poll::Ready(Err(item));
            }
            state.weight = state.weight.saturating_add(weight);
            state.waiting.push_back((weight, item));
            // Whoever is woken would only wait for the lock.
            drop(state);
            self.filled.notify_one();
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Waits for at least one item; false when the queue is closed and empty.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return false;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether nothing waits and something may still come.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.waiting.is_empty() && !state.closed
    }

    /// Takes up to `most` of what waits.
    pub(super) fn take(&self, most: usize) -> Vec<T> {
        let mut state = self.lock();
        let count = state.waiting.len().min(most);
        let (weights, taken): (Vec<usize>, Vec<T>) = state.waiting.drain(..count).unzip();
        state.weight = weights.into_iter().fold(state.weight, usize::saturating_sub);
        // All of them: one whose future is gone would otherwise swallow the place of another.
        let wakers = state.wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        taken
    }

    /// Refuses what comes later. What waits is still taken.
    pub(super) fn close(&self) {
        let wakers = {
            let mut state = self.lock();
            state.closed = true;
            state.wakers()
        };
        self.filled.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Refuses what comes later and gives up what waits.
    pub(super) fn abandon(&self) {
        self.close();
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        state.weight = 0;
        drop(state);
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
        let queue = Arc::new(Queue::new(2, usize::MAX));
        let writer = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            for item in 0..1000 {
                block_on(writer.push(item, 1)).unwrap();
            }
            writer.close();
        });
        let mut seen = Vec::new();
        while queue.wait() {
            let items = queue.take(3);
            assert!(items.len() <= 2);
            seen.extend(items);
        }
        thread.join().unwrap();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        assert_eq!(block_on(queue.push(7, 1)), Err(7));
    }

    #[test]
    fn closing_wakes_who_waits_for_room() {
        let queue = Arc::new(Queue::new(1, usize::MAX));
        block_on(queue.push(1, 1)).unwrap();
        let waiting = Arc::clone(&queue);
        let thread = std::thread::spawn(move || block_on(waiting.push(2, 1)));
        while queue.lock().line.is_empty() {
            std::thread::yield_now();
        }
        queue.abandon();
        assert_eq!(thread.join().unwrap(), Err(2));
        assert!(!queue.wait());
        assert!(queue.take(1).is_empty());
    }

    #[test]
    fn weight_is_bounded_and_what_is_too_heavy_waits_alone() {
        let queue = Arc::new(Queue::new(8, 10));
        block_on(queue.push('a', 20)).unwrap();
        let waiting = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            block_on(waiting.push('b', 6)).unwrap();
            block_on(waiting.push('c', 5)).unwrap();
        });
        // Each is let in only when what waits has gone.
        let mut seen = Vec::new();
        for _ in 0..3 {
            assert!(queue.wait());
            let taken = queue.take(8);
            assert_eq!(taken.len(), 1);
            seen.extend(taken);
        }
        thread.join().unwrap();
        assert_eq!(seen, ['a', 'b', 'c']);
        // Light ones wait together.
        block_on(queue.push('d', 5)).unwrap();
        block_on(queue.push('e', 5)).unwrap();
        assert_eq!(queue.take(8), ['d', 'e']);
    }

    #[test]
    fn whoever_waits_for_room_comes_before_the_later() {
        let queue = Queue::new(8, 10);
        block_on(queue.push('a', 6)).unwrap();
        let mut context = std::task::Context::from_waker(Waker::noop());
        let mut heavy = Box::pin(queue.push('b', 9));
        assert!(heavy.as_mut().poll(&mut context).is_pending());
        let mut light = Box::pin(queue.push('c', 1));
        assert!(light.as_mut().poll(&mut context).is_pending(), "it would fit, and is not first");
        assert_eq!(queue.take(8), ['a']);
        assert!(light.as_mut().poll(&mut context).is_pending());
        assert!(heavy.as_mut().poll(&mut context).is_ready());
        drop(heavy);
        assert!(light.as_mut().poll(&mut context).is_ready());
        assert_eq!(queue.take(8), ['b', 'c']);
        drop(light);
        // One that gives up leaves the line to the others.
        block_on(queue.push('d', 10)).unwrap();
        let mut gone = Box::pin(queue.push('e', 9));
        assert!(gone.as_mut().poll(&mut context).is_pending());
        drop(gone);
        assert_eq!(queue.take(8), ['d']);
        block_on(queue.push('f', 1)).unwrap();
        assert_eq!(queue.take(8), ['f']);
    }
}
