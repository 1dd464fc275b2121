//! A record that nobody touched is intact, and the report says what was checked.

use std::sync::Arc;

use portcullis_audit::{Options, verify};
use portcullis_domain::event::Body;
use portcullis_domain::ports::Ledgers;
use portcullis_store::memory::MemoryStore;

use crate::scene::{Drawn, START, Scene};

#[test]
fn an_untouched_record_is_intact_and_counted() {
    let store = MemoryStore::new(START, &Drawn::default());
    let mut scene = Scene::new(Arc::new(store.clone()));
    scene.play();
    let ring = scene.ring();
    let options = Options { keys: Some(&ring), ..Options::default() };
    let report = verify(&mut *store.begin().unwrap(), options).unwrap();
    assert_eq!(report.breaks, []);
    assert!(report.intact);
    let events = store.tamper(|raw| raw.events.clone()).unwrap();
    for (kind, _) in Body::TYPES {
        assert!(events.iter().any(|event| event.kind == *kind), "the scene has no `{kind}`");
    }
    assert_eq!(report.events, u64::try_from(events.len()).unwrap());
}
