//! A run's state from its events alone, page by page: for whoever does not believe, or cannot read, its rows.

use crate::fold::{FoldError, RunState};
use crate::id::{InstanceId, RunId};
use crate::ports::{EventFilter, MAX_PAGE, StoredEvent};
use crate::row::RowError;
use crate::stream::Stream;

/// Why a run's stream does not fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefoldError {
    /// An event cannot be read, or is not what its hash says.
    #[error(transparent)]
    Row(#[from] RowError),
    /// An event does not follow from those before it.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// A run's stream on its way to a state. Ask for the page of [`Refold::wanted`], hand it to [`Refold::page`], and
/// go on with what that gives back until a page is empty: one of large rows may be short, so only an empty one is
/// the end.
#[derive(Debug)]
pub struct Refold {
    instance: InstanceId,
    wanted: EventFilter,
    state: Option<Box<RunState>>,
}

impl Refold {
    /// Nothing of the run's stream yet.
    #[must_use]
    pub fn of(instance: InstanceId, run: RunId) -> Self {
        let wanted = EventFilter { stream: Some(Stream::from(run)), after: 0, limit: MAX_PAGE };
        Self { instance, wanted, state: None }
    }

    /// The page that comes next.
    #[must_use]
    pub const fn wanted(&self) -> EventFilter {
        self.wanted
    }

    /// Folds one page, hash by hash.
    ///
    /// # Errors
    /// [`RefoldError`] at the first event that does not fit; what was folded so far is gone then.
    pub fn page(mut self, page: &[StoredEvent]) -> Result<Self, RefoldError> {
        for stored in page {
            let event = stored.event(self.instance)?;
            self.wanted.after = event.link.journal_seq;
            match &mut self.state {
                None => self.state = Some(Box::new(RunState::begin(&event)?)),
                Some(state) => state.apply(&event).map(drop)?,
            }
        }
        Ok(self)
    }

    /// The state after the last page; `None` when there was no event.
    ///
    /// # Errors
    /// [`FoldError::Owed`] when the stream stops in the middle of an append.
    pub fn end(self) -> Result<Option<Box<RunState>>, FoldError> {
        self.state.map(|state| state.complete().map(|()| state)).transpose()
    }
}
