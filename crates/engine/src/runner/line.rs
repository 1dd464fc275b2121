//! The line in front of the places, and those who wait for room in it: bounded, and fair among owners.
//!
//! A runner has one scope, and with it one tenant: an owner is one of that tenant's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_channel::oneshot;
use portcullis_domain::id::RunId;

use super::{Job, Tell, Unserved};

/// How many listen for one run at most.
pub(super) const MAX_LISTENERS: usize = 64;

/// How many answered runs stand in line at most. Those beyond are found by the next look.
const MAX_ANSWERED: usize = 10_000;

/// How many of one owner wait for room at most, and how many of all.
const MAX_WAITING: (usize, usize) = (1_000, 10_000);

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

/// Which entry of a line, so that one can be taken out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

/// Lanes that take turns; within a lane the oldest is first.
struct Turns<K, T> {
    lanes: BTreeMap<K, VecDeque<T>>,
    /// Lanes that are not empty, in the order of their turns.
    order: VecDeque<K>,
    len: usize,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self { lanes: BTreeMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<K: Clone + Ord, T> Turns<K, T> {
    fn len_of(&self, lane: &K) -> usize {
        self.lanes.get(lane).map_or(0, VecDeque::len)
    }

    fn push(&mut self, lane: K, item: T) {
        let items = self.lanes.entry(lane.clone()).or_default();
        if items.is_empty() {
            self.order.push_back(lane);
        }
        items.push_back(item);
        self.len = self.len.saturating_add(1);
    }

    /// The oldest of the lane whose turn it is.
    fn pop(&mut self) -> Option<T> {
        let lane = self.order.pop_front()?;
        let items = self.lanes.get_mut(&lane)?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.order.push_back(lane);
        }
        self.len = self.len.saturating_sub(1);
        Some(item)
    }

    /// Takes the first out that is like this; its lane keeps its turn.
    fn take(&mut self, is: impl Fn(&T) -> bool) -> Option<T> {
        let mut found = self.lanes.iter_mut().filter_map(|(lane, items)| {
            let place = items.iter().position(&is)?;
            Some((lane.clone(), items.remove(place)?))
        });
        let (lane, item) = found.next()?;
        if self.len_of(&lane) == 0 {
            self.lanes.remove(&lane);
            self.order.retain(|other| *other != lane);
        }
        self.len = self.len.saturating_sub(1);
        Some(item)
    }

    /// Drops what does not fit any more.
    fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for items in self.lanes.values_mut() {
            items.retain(&keep);
        }
        self.lanes.retain(|_, items| !items.is_empty());
        self.order.retain(|lane| self.lanes.contains_key(lane));
        self.len = self.lanes.values().map(VecDeque::len).sum();
    }
}

/// The line. A run stands in it once.
pub(super) struct Line {
    entries: Turns<Lane, (Number, Entry)>,
    runs: BTreeSet<RunId>,
    next: u64,
    /// How many entries of owners there may be.
    room: usize,
    /// Who waits for room.
    waiting: Turns<String, oneshot::Sender<()>>,
    /// Room that was told of and is not taken yet.
    promised: usize,
}

impl Line {
    pub(super) fn with_room(room: usize) -> Self {
        Self {
            entries: Turns::default(),
            runs: BTreeSet::new(),
            next: 0,
            room,
            waiting: Turns::default(),
            promised: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len
    }

    /// Room that is neither taken nor promised. Answered runs take none of it.
    fn free(&self) -> usize {
        let owned = self.len().saturating_sub(self.entries.len_of(&Lane::Answered));
        self.room.saturating_sub(owned.saturating_add(self.promised))
    }

    /// Whether the run stands in line.
    pub(super) fn holds(&self, run: RunId) -> bool {
        self.runs.contains(&run)
    }

    /// Whether somebody who comes now may enter at once.
    pub(super) fn is_open(&self) -> bool {
        self.waiting.len == 0 && self.free() > 0
    }

    /// Hears when there is room, which is kept until it is taken or given back.
    ///
    /// # Errors
    /// [`Unserved::Crowded`] when too many wait already.
    pub(super) fn wait(&mut self, owner: &str) -> Result<oneshot::Receiver<()>, Unserved> {
        let owner = owner.to_owned();
        let full = |waiting: &Turns<String, oneshot::Sender<()>>| {
            waiting.len_of(&owner) >= MAX_WAITING.0 || waiting.len >= MAX_WAITING.1
        };
        if full(&self.waiting) {
            self.waiting.retain(|waiting| !waiting.is_canceled());
            if full(&self.waiting) {
                return Err(Unserved::Crowded);
            }
        }
        let (tell, told) = oneshot::channel();
        self.waiting.push(owner, tell);
        Ok(told)
    }

    /// Takes the room that was promised, or gives it back: then it is another's.
    pub(super) fn redeem(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Promises room that is free to those who wait, in turn.
    pub(super) fn offer(&mut self) {
        while self.free() > 0 {
            let Some(waiting) = self.waiting.pop() else { return };
            if waiting.send(()).is_ok() {
                self.promised = self.promised.saturating_add(1);
            }
        }
    }

    /// Adds an entry; one for a run that waits already adds its listeners to that.
    ///
    /// # Errors
    /// [`Unserved::Crowded`] when as many as may listen already, or there are as many answered runs as there may be.
    pub(super) fn push(&mut self, lane: Lane, entry: Entry) -> Result<Number, Unserved> {
        let full = lane == Lane::Answered
            && entry.tell.is_empty()
            && self.entries.len_of(&lane) >= MAX_ANSWERED;
        if full {
            return Err(Unserved::Crowded);
        }
        if let Some(run) = entry.job.run()
            && !self.runs.insert(run)
        {
            let mut entries = self.entries.lanes.values_mut().flatten();
            let other = entries.find(|(_, other)| other.job.run() == Some(run));
            let joined = match other {
                Some((number, other)) => join(&mut other.tell, entry.tell).map(|()| *number),
                None => Err(Unserved::Crowded),
            };
            // It takes no room, which is another's now.
            self.offer();
            return joined;
        }
        let number = Number(self.next);
        self.next = self.next.wrapping_add(1);
        self.entries.push(lane, (number, entry));
        Ok(number)
    }

    /// The next entry: the oldest of the lane whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let (_, entry) = self.entries.pop()?;
        Some(self.left(entry))
    }

    /// Takes an entry out again, if it still stands there.
    pub(super) fn withdraw(&mut self, number: Number) -> Option<Entry> {
        let (_, entry) = self.entries.take(|(other, _)| *other == number)?;
        Some(self.left(entry))
    }

    fn left(&mut self, entry: Entry) -> Entry {
        if let Some(run) = entry.job.run() {
            self.runs.remove(&run);
        }
        self.offer();
        entry
    }

    /// Gives up what waits: their listeners hear that nothing was begun.
    pub(super) fn clear(&mut self) {
        *self = Self::with_room(self.room);
    }
}

/// Adds listeners for one run.
///
/// # Errors
/// [`Unserved::Crowded`] when there are as many as there may be; then none is added.
pub(super) fn join(listeners: &mut Vec<Tell>, more: Vec<Tell>) -> Result<(), Unserved> {
    // Who dropped the ticket does not count.
    listeners.retain(|listener| !listener.is_canceled());
    if listeners.len().saturating_add(more.len()) > MAX_LISTENERS {
        return Err(Unserved::Crowded);
    }
    listeners.extend(more);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn run(number: u16) -> RunId {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        RunId::from_bytes(bytes)
    }

    fn entry(number: u16) -> Entry {
        Entry { job: Job::GoOn(run(number)), tell: Vec::new() }
    }

    fn owner(name: &str) -> Lane {
        Lane::Owner(name.to_owned())
    }

    fn push(line: &mut Line, lane: Lane, number: u16) {
        line.push(lane, entry(number)).unwrap();
    }

    fn drain(line: &mut Line) -> Vec<RunId> {
        std::iter::from_fn(|| line.pop()).filter_map(|entry| entry.job.run()).collect()
    }

    #[test]
    fn owners_take_turns_and_each_is_served_in_order() {
        let mut line = Line::with_room(10);
        for number in 1..=4 {
            push(&mut line, owner("ann"), number);
        }
        push(&mut line, owner("ben"), 5);
        push(&mut line, Lane::Answered, 6);
        push(&mut line, owner("ben"), 7);
        assert_eq!(line.len(), 7);
        assert_eq!(drain(&mut line), [1, 5, 6, 2, 7, 3, 4].map(run));
        assert_eq!(line.len(), 0);
    }

    #[test]
    fn a_run_stands_in_line_once_with_all_who_listen() {
        let mut line = Line::with_room(10);
        let (tell, mut told) = oneshot::channel();
        push(&mut line, owner("ann"), 1);
        line.push(Lane::Answered, Entry { tell: vec![tell], ..entry(1) }).unwrap();
        assert_eq!(line.len(), 1);
        let entry = line.pop().unwrap();
        assert_eq!(entry.tell.len(), 1);
        assert!(line.pop().is_none());
        drop(entry);
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn who_takes_no_room_leaves_it_to_the_next() {
        let mut line = Line::with_room(2);
        push(&mut line, owner("ann"), 1);
        push(&mut line, owner("ann"), 2);
        let mut first = line.wait("ann").unwrap();
        let mut second = line.wait("ann").unwrap();
        line.pop().unwrap();
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(Some(())), Ok(None)));
        line.redeem();
        push(&mut line, owner("ann"), 2);
        assert_eq!((line.len(), second.try_recv()), (1, Ok(Some(()))));
    }

    #[test]
    fn room_is_told_to_the_first_that_still_waits() {
        let mut line = Line::with_room(1);
        push(&mut line, owner("ann"), 1);
        drop(line.wait("ann").unwrap());
        let mut second = line.wait("ann").unwrap();
        let mut third = line.wait("ann").unwrap();
        line.pop();
        assert_eq!(second.try_recv(), Ok(Some(())));
        assert_eq!(third.try_recv(), Ok(None));
        assert!(!line.is_open(), "the room is promised");
    }

    #[test]
    fn those_who_wait_for_room_take_turns_by_owner() {
        let mut line = Line::with_room(1);
        push(&mut line, owner("ann"), 1);
        let mut ann: Vec<_> = (0..100).map(|_| line.wait("ann").unwrap()).collect();
        let mut ben = line.wait("ben").unwrap();
        line.pop();
        assert_eq!((ann[0].try_recv(), ben.try_recv()), (Ok(Some(())), Ok(None)));
        line.redeem();
        push(&mut line, owner("ann"), 2);
        line.pop();
        assert_eq!((ann[1].try_recv(), ben.try_recv()), (Ok(None), Ok(Some(()))));
    }

    #[test]
    fn of_one_owner_only_so_many_wait_and_none_of_them_in_anothers_way() {
        let mut line = Line::with_room(1);
        push(&mut line, owner("ann"), 1);
        let mut waits: Vec<_> = (0..MAX_WAITING.0).map(|_| line.wait("ann").unwrap()).collect();
        assert!(matches!(line.wait("ann"), Err(Unserved::Crowded)));
        let ben = line.wait("ben").unwrap();
        waits.pop();
        let again = line.wait("ann").unwrap();
        drop((ben, again));
    }

    #[test]
    fn answered_runs_are_bounded_and_take_no_room_from_owners() {
        let mut line = Line::with_room(1);
        for number in 0..MAX_ANSWERED {
            push(&mut line, Lane::Answered, u16::try_from(number).unwrap());
        }
        let one_more = line.push(Lane::Answered, entry(u16::MAX));
        assert!(matches!(one_more, Err(Unserved::Crowded)));
        assert!(line.is_open());
        push(&mut line, owner("ann"), u16::MAX);
        assert!(!line.is_open());
        assert_eq!(line.len(), MAX_ANSWERED + 1);
    }

    #[test]
    fn of_one_run_only_so_many_hear() {
        let mut line = Line::with_room(1);
        let mut heard = Vec::new();
        let mut listen = |line: &mut Line| {
            let (tell, told) = oneshot::channel();
            heard.push(told);
            line.push(owner("ann"), Entry { tell: vec![tell], ..entry(1) })
        };
        for _ in 0..MAX_LISTENERS {
            listen(&mut line).unwrap();
        }
        assert!(matches!(listen(&mut line), Err(Unserved::Crowded)));
        assert_eq!(line.pop().unwrap().tell.len(), MAX_LISTENERS);
    }

    #[test]
    fn what_is_taken_out_leaves_the_others_their_turns() {
        let mut line = Line::with_room(10);
        push(&mut line, owner("ann"), 1);
        let number = line.push(owner("ben"), entry(2)).unwrap();
        push(&mut line, owner("ann"), 3);
        assert_eq!(line.withdraw(number).unwrap().job.run(), Some(run(2)));
        assert!(line.withdraw(number).is_none());
        push(&mut line, owner("cid"), 2);
        assert_eq!(drain(&mut line), [1, 2, 3].map(run));
    }
}
