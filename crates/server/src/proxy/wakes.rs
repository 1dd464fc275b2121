//! Whoever waits for the record is woken by what this process commits.

use portcullis_domain::event::Event;
use portcullis_domain::ports::Observer;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Put among the observers of the store. What another process commits wakes nobody here: the record is looked at for it.
#[derive(Debug, Default)]
pub struct Wakes {
    committed: Notify,
}

impl Wakes {
    /// Resolves at the next commit after this call, or when [`Wakes::wake`] is called.
    pub(super) fn next(&self) -> Notified<'_> {
        self.committed.notified()
    }

    pub(super) fn wake(&self) {
        self.committed.notify_waiters();
    }
}

impl Observer for Wakes {
    fn committed(&self, _: &[Event]) {
        self.wake();
    }
}
