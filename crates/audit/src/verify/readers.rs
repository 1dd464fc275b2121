//! The readers of one snapshot: one for each thread, or one that they take turns with.

use std::sync::{Mutex, PoisonError};

use portcullis_domain::ports::Ledger;

/// A reader that a thread has for itself, where the store has as many; else threads take turns.
pub(super) struct Reader<'l>(Mutex<&'l mut dyn Ledger>);

impl<'l> Reader<'l> {
    pub(super) fn new(ledger: &'l mut dyn Ledger) -> Self {
        Self(Mutex::new(ledger))
    }

    /// Reads something, and lets others read again.
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut dyn Ledger) -> T) -> T {
        // Nothing is changed by reading; a read that panicked ends the whole walk.
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut **ledger)
    }
}
