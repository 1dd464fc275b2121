//! An attacker who can write the whole file and knows the format, at work on a store in memory.

use portcullis_domain::event::Body;
use portcullis_domain::id::InstanceId;
use portcullis_domain::ports::StoredEvent;
use portcullis_domain::stream::Link;
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::forge::forge;

/// Rewrites the record: each event as `edit` leaves it, or not at all when it says false.
pub(crate) fn rewrite(
    store: &MemoryStore,
    instance: InstanceId,
    edit: impl Fn(usize, &mut StoredEvent, &mut Body) -> bool,
) {
    rewrite_links(store, instance, edit, |_| ());
}

/// As [`rewrite`], with each link as `lie` leaves it before it is hashed.
pub(crate) fn rewrite_links(
    store: &MemoryStore,
    instance: InstanceId,
    edit: impl Fn(usize, &mut StoredEvent, &mut Body) -> bool,
    lie: impl Fn(&mut Link),
) {
    let map = |index, mut stored: StoredEvent, mut body: Body| {
        let kept = edit(index, &mut stored, &mut body);
        kept.then_some((stored, body)).into_iter().collect()
    };
    rewrite_all(store, instance, map, lie);
}

/// As [`rewrite_links`], with whatever events `map` puts into the place of one.
pub(crate) fn rewrite_all(
    store: &MemoryStore,
    instance: InstanceId,
    map: impl Fn(usize, StoredEvent, Body) -> Vec<(StoredEvent, Body)>,
    lie: impl Fn(&mut Link),
) {
    let events = store.tamper(|raw| raw.events.clone()).unwrap();
    let forged = forge(events, instance, map, lie);
    store
        .tamper(|raw| {
            raw.events = forged.events;
            raw.rows.values_mut().for_each(Vec::clear);
            raw.rows.extend(forged.rows);
        })
        .unwrap();
}
