//! Telling the observers: after the commit, in order, and without a way to fail it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use portcullis_domain::event::Event;
use portcullis_domain::ports::Observer;

/// Shows committed events to each observer. One that panics loses this call and disturbs nobody.
pub(crate) fn tell(observers: &[Arc<dyn Observer>], events: &[Event]) {
    for observer in observers {
        let told = catch_unwind(AssertUnwindSafe(|| observer.committed(events)));
        if told.is_err() {
            tracing::warn!("an observer of committed events panicked");
        }
    }
}
