//! A record that nobody touched is intact, and the report says what was checked.

use std::sync::Arc;

use portcullis_audit::{Options, verify};
use portcullis_canon::{Value, to_value};
use portcullis_domain::event::Body;
use portcullis_domain::ports::Ledgers;
use portcullis_domain::row::Cell;
use portcullis_store::memory::MemoryStore;

use crate::scene::{Drawn, START, Scene};

#[test]
fn an_untouched_record_is_intact_and_counted() {
    let store = MemoryStore::new(START, &Drawn::default());
    let mut scene = Scene::new(Arc::new(store.clone()));
    scene.play();
    let ring = scene.ring();
    let options = Options { keys: &[&ring], ..Options::default() };
    let report = verify(&mut *store.begin().unwrap(), options).unwrap();
    assert_eq!(report.breaks, []);
    assert!(report.intact);
    let events = store.tamper(|raw| raw.events.clone()).unwrap();
    for (kind, _) in Body::TYPES {
        assert!(events.iter().any(|event| event.kind == *kind), "the scene has no `{kind}`");
    }
    assert_eq!(report.events, u64::try_from(events.len()).unwrap());
}

#[test]
fn a_report_has_a_stable_machine_form() {
    let store = MemoryStore::new(START, &Drawn::default());
    Scene::new(Arc::new(store.clone())).play();
    store
        .tamper(|raw| raw.rows.get_mut("runs").unwrap()[0][2] = Cell::Text("eve".to_owned()))
        .unwrap();
    let report = verify(&mut *store.begin().unwrap(), Options::default()).unwrap();
    let value = to_value(&report).unwrap();
    let fields: Vec<&str> = value.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        [
            "breaks",
            "cards_unchecked",
            "contents",
            "cut_short",
            "erased",
            "events",
            "grants",
            "heads",
            "instance",
            "intact",
            "journals",
            "rows",
            "signatures",
            "specs",
            "streams"
        ]
    );
    let found = value.get("breaks").unwrap().as_array().unwrap();
    let [found] = found else { panic!("one break: {found:?}") };
    let text = |name| found.get(name).and_then(Value::as_str).unwrap();
    assert_eq!(
        (text("kind"), text("table"), text("column"), text("expected"), text("found")),
        ("row_mismatch", "runs", "owner", "`cat`", "`eve`")
    );
    assert!(text("key").starts_with("run_"));
    assert_eq!(
        report.breaks[0].to_string(),
        format!("`owner` of {} in `runs` is `eve`, and the events say `cat`", text("key"))
    );
}
