//! Walks over what a store lists: one place that knows where a list ends.

use crate::ports::{EventFilter, MAX_PAGE, Page, StoredEvent};
use crate::stream::Stream;

/// A walk over the rows of a list, from its first one. Ask for a page, tell how many rows it had, and go on until there
/// is none. A walk that is not told stops, so it never goes round.
///
/// ```
/// use portcullis_domain::ports::Pages;
///
/// let list: Vec<u32> = (0..1200).collect();
/// let (mut seen, mut pages) = (0, Pages::all());
/// while let Some(page) = pages.next_page() {
///     let rows: Vec<_> = list.iter().skip(page.offset as usize).take(page.limit as usize).collect();
///     seen += rows.len();
///     pages.read(rows.len());
/// }
/// assert_eq!(seen, 1200);
/// ```
#[derive(Clone, Debug)]
pub struct Pages {
    next: Option<Page>,
    asked: Page,
    left: u64,
}

impl Pages {
    /// The whole list.
    #[must_use]
    pub const fn all() -> Self {
        Self::at_most(u64::MAX)
    }

    /// The first rows of the list.
    #[must_use]
    pub const fn at_most(rows: u64) -> Self {
        let first = Page { offset: 0, limit: MAX_PAGE };
        Self { next: Some(first), asked: first, left: rows }
    }

    /// The page to read next; nothing at the end of the list, or of the walk.
    pub fn next_page(&mut self) -> Option<Page> {
        let page = self.next.take().filter(|_| self.left > 0)?;
        let limit = u32::try_from(self.left.min(u64::from(page.limit))).unwrap_or(page.limit);
        self.asked = Page { limit, ..page };
        Some(self.asked)
    }

    /// The page had this many rows. A short one was the last.
    pub fn read(&mut self, rows: usize) {
        self.read_and_shed(rows, 0);
    }

    /// The page had this many rows, of which some have left the list since: the next page begins that much earlier.
    pub fn read_and_shed(&mut self, rows: usize, shed: u64) {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(rows);
        let offset = self.asked.offset.saturating_add(rows.saturating_sub(shed));
        let full = rows >= u64::from(self.asked.limit);
        self.next = full.then_some(Page { offset, limit: MAX_PAGE });
    }
}

/// A walk over recorded events in the order of the journal.
#[derive(Clone, Debug)]
pub struct EventPages {
    next: Option<EventFilter>,
    asked: EventFilter,
    left: u64,
}

impl EventPages {
    /// The events of a stream, or of all, after a place in the journal, this many at most.
    #[must_use]
    pub const fn after(stream: Option<Stream>, after: u64, most: u64) -> Self {
        let first = EventFilter { stream, after, limit: MAX_PAGE };
        Self { next: Some(first), asked: first, left: most }
    }

    /// All events of a stream, or of all.
    #[must_use]
    pub const fn all(stream: Option<Stream>) -> Self {
        Self::after(stream, 0, u64::MAX)
    }

    /// What to read next; nothing at the end.
    pub fn next_page(&mut self) -> Option<EventFilter> {
        let next = self.next.take().filter(|_| self.left > 0)?;
        let limit = u32::try_from(self.left.min(u64::from(MAX_PAGE))).unwrap_or(MAX_PAGE);
        self.asked = EventFilter { limit, ..next };
        Some(self.asked)
    }

    /// What was read. A page of large events is shorter than its limit, so only an empty one is the end; and a journal
    /// that does not go forward, which is for `verify` to explain.
    pub fn read(&mut self, page: &[StoredEvent]) {
        self.left = self.left.saturating_sub(u64::try_from(page.len()).unwrap_or(u64::MAX));
        let last = page.last().and_then(|event| u64::try_from(event.journal_seq).ok());
        let forward = last.filter(|last| *last > self.asked.after);
        self.next = forward.map(|after| EventFilter { after, ..self.asked });
    }

    /// The place in the journal up to which was read.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.next.map_or(self.asked.after, |next| next.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_at_a_short_page_at_its_bound_and_when_it_is_not_told() {
        let mut pages = Pages::all();
        assert_eq!(pages.next_page(), Some(Page { offset: 0, limit: MAX_PAGE }));
        pages.read(500);
        assert_eq!(pages.next_page(), Some(Page { offset: 500, limit: MAX_PAGE }));
        pages.read(499);
        assert_eq!(pages.next_page(), None);

        let mut bounded = Pages::at_most(501);
        assert_eq!(bounded.next_page().map(|page| page.limit), Some(MAX_PAGE));
        bounded.read(500);
        assert_eq!(bounded.next_page(), Some(Page { offset: 500, limit: 1 }));
        bounded.read(1);
        assert_eq!(bounded.next_page(), None);

        let mut untold = Pages::all();
        assert!(untold.next_page().is_some());
        assert_eq!(untold.next_page(), None);
    }

    #[test]
    fn rows_that_left_the_list_are_not_skipped_over() {
        let mut pages = Pages::all();
        pages.next_page();
        pages.read_and_shed(500, 120);
        assert_eq!(pages.next_page(), Some(Page { offset: 380, limit: MAX_PAGE }));
    }

    fn event(journal_seq: i64) -> StoredEvent {
        StoredEvent {
            journal: vec![],
            journal_seq,
            tenant: String::new(),
            stream_kind: String::new(),
            stream_id: vec![],
            stream_seq: 1,
            step: None,
            at: 0,
            kind: String::new(),
            version: 1,
            payload: vec![],
            journal_prev: vec![],
            stream_prev: vec![],
            hash: vec![],
        }
    }

    #[test]
    fn events_go_on_after_a_short_page_and_end_at_an_empty_one_or_one_that_goes_back() {
        for end in [vec![], vec![event(6), event(3)]] {
            let mut pages = EventPages::all(None);
            pages.next_page();
            pages.read(&[event(1), event(7)]);
            assert_eq!(pages.next_page().map(|page| page.after), Some(7));
            pages.read(&end);
            assert_eq!((pages.place(), pages.next_page()), (7, None));
        }
        let mut few = EventPages::after(None, 4, 2);
        assert_eq!(few.next_page().map(|page| (page.after, page.limit)), Some((4, 2)));
        few.read(&[event(5), event(6)]);
        assert_eq!(few.next_page(), None);
    }
}
