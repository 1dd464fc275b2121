//! A stream that does not fold leaves nothing to ask for a state.
use portcullis_domain::ports::StoredEvent;
use portcullis_domain::refold::Refold;

fn wrong(refold: Refold, page: &[StoredEvent]) {
    if refold.page(page).is_err() {
        let _half = refold.end();
    }
}

fn main() {
    let _ = wrong;
}
