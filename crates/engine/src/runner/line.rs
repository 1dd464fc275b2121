//! The line in front of the places: bounded, and fair among owners.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_channel::oneshot;
use portcullis_domain::id::RunId;

use super::{Job, Tell};

/// Who takes turns: each owner, and all runs that a person has just answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Answered,
    Owner(String),
}

/// What waits for a place.
pub(super) struct Entry {
    pub(super) job: Job,
    pub(super) tell: Vec<Tell>,
}

/// Lanes that take turns. A run stands in it once.
#[derive(Default)]
pub(super) struct Line {
    lanes: BTreeMap<Lane, VecDeque<Entry>>,
    /// Lanes that have an entry, in the order of their turns.
    turns: VecDeque<Lane>,
    runs: BTreeSet<RunId>,
    len: usize,
    /// Who waits for room, in order.
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl Line {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Hears when there may be room.
    pub(super) fn room(&mut self) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.waiting.push_back(tell);
        told
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds an entry; one for a run that waits already adds its listeners to that.
    pub(super) fn push(&mut self, lane: Lane, entry: Entry) {
        if let Some(run) = entry.job.run()
            && !self.runs.insert(run)
        {
            let mut entries = self.lanes.values_mut().flatten();
            if let Some(other) = entries.find(|other| other.job.run() == Some(run)) {
                other.tell.extend(entry.tell);
            }
            // It takes no room, which is another's now.
            return self.tell_one();
        }
        let entries = self.lanes.entry(lane.clone()).or_default();
        if entries.is_empty() {
            self.turns.push_back(lane);
        }
        entries.push_back(entry);
        self.len = self.len.saturating_add(1);
    }

    /// The next entry: the oldest of the lane whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let lane = self.turns.pop_front()?;
        let entries = self.lanes.get_mut(&lane)?;
        let entry = entries.pop_front()?;
        if entries.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        if let Some(run) = entry.job.run() {
            self.runs.remove(&run);
        }
        self.len = self.len.saturating_sub(1);
        self.tell_one();
        Some(entry)
    }

    /// Tells the first that still waits for room.
    pub(super) fn tell_one(&mut self) {
        while let Some(waiting) = self.waiting.pop_front() {
            if waiting.send(()).is_ok() {
                return;
            }
        }
    }

    /// Gives up what waits: their listeners hear that nothing was begun.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn run(number: u8) -> RunId {
        RunId::from_bytes([number; 16])
    }

    fn entry(number: u8) -> Entry {
        Entry { job: Job::GoOn(run(number)), tell: Vec::new() }
    }

    fn owner(name: &str) -> Lane {
        Lane::Owner(name.to_owned())
    }

    fn drain(line: &mut Line) -> Vec<RunId> {
        std::iter::from_fn(|| line.pop()).filter_map(|entry| entry.job.run()).collect()
    }

    #[test]
    fn owners_take_turns_and_each_is_served_in_order() {
        let mut line = Line::default();
        for number in 1..=4 {
            line.push(owner("ann"), entry(number));
        }
        line.push(owner("ben"), entry(5));
        line.push(Lane::Answered, entry(6));
        line.push(owner("ben"), entry(7));
        assert_eq!(line.len(), 7);
        assert_eq!(drain(&mut line), [1, 5, 6, 2, 7, 3, 4].map(run));
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn a_run_stands_in_line_once_with_all_who_listen() {
        let mut line = Line::default();
        let (tell, mut told) = oneshot::channel();
        line.push(owner("ann"), entry(1));
        line.push(Lane::Answered, Entry { tell: vec![tell], ..entry(1) });
        assert_eq!(line.len(), 1);
        let entry = line.pop().unwrap();
        assert_eq!(entry.tell.len(), 1);
        assert!(line.pop().is_none());
        drop(entry);
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn who_takes_no_room_leaves_it_to_the_next() {
        let mut line = Line::default();
        line.push(owner("ann"), entry(1));
        let mut waits = line.room();
        line.push(Lane::Answered, entry(1));
        assert_eq!((line.len(), waits.try_recv()), (1, Ok(Some(()))));
    }

    #[test]
    fn room_is_told_to_the_first_that_still_waits() {
        let mut line = Line::default();
        drop(line.room());
        let mut second = line.room();
        let mut third = line.room();
        line.push(owner("ann"), entry(1));
        line.pop();
        assert_eq!(second.try_recv(), Ok(Some(())));
        assert_eq!(third.try_recv(), Ok(None));
    }
}
