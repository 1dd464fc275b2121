//! Attacks by somebody who can write the whole file: what a kept head and the signatures see, and what nothing sees
//! without them.

use std::sync::Arc;

use portcullis_audit::head::tips;
use portcullis_audit::keys::{Keyring, SigningKey};
use portcullis_audit::{Break, Head, HeadResult, Options, Report, compare_head, verify};
use portcullis_domain::approval::Signature;
use portcullis_domain::event::Body;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Ledgers as _, Store as _};
use portcullis_domain::row::Cell;
use portcullis_domain::time::Timestamp;
use portcullis_store::memory::MemoryStore;

use crate::forge::rewrite;
use crate::scene::{Drawn, START, Scene};
use crate::tables::Editable as _;

struct World {
    store: MemoryStore,
    scene: Scene,
    ring: Keyring,
    host: SigningKey,
}

impl World {
    fn new() -> Self {
        let store = MemoryStore::new(START, &Drawn::default());
        let mut scene = Scene::new(Arc::new(store.clone()));
        scene.play();
        let host = SigningKey::generate(&Drawn::default());
        Self { ring: scene.ring(), store, scene, host }
    }

    fn head(&self) -> Head {
        let tips = tips(&mut *self.store.begin().unwrap()).unwrap();
        let [(journal, tip)] = tips.as_slice() else { panic!("one journal") };
        Head::sign(self.store.instance(), *journal, *tip, START, &self.host)
    }

    fn with_keys(&self) -> Report {
        self.store.verify(Options { keys: &[&self.ring], ..Options::default() })
    }

    fn with_head(&self, head: &Head) -> Report {
        let public = self.host.public();
        let heads = std::slice::from_ref(head);
        let options = Options { keys: &[&self.ring], heads, head_key: Some(&public) };
        self.store.verify(options)
    }

    fn compare(&self, head: &Head) -> HeadResult {
        compare_head(&mut *self.store.begin().unwrap(), head).unwrap()
    }
}

#[test]
fn the_tip_is_found_and_a_head_of_it_holds() {
    let mut world = World::new();
    let head = world.head();
    let events = world.store.table("events");
    let last = events.rows.last().unwrap();
    assert_eq!(u64::try_from(events.rows.len()), Ok(head.seq));
    assert_eq!(last[events.column("hash")], Cell::Blob(head.hash.as_bytes().to_vec()));
    assert_eq!(world.compare(&head), HeadResult::Same);
    world.scene.more();
    assert_eq!(world.compare(&head), HeadResult::Grown);
    let report = world.with_head(&head);
    assert_eq!((report.breaks.as_slice(), report.heads), ([].as_slice(), 1));
}

#[test]
fn the_tip_is_found_at_any_length() {
    let world = World::new();
    let events = world.store.table("events");
    for length in 0..events.rows.len() {
        let mut cut = events.clone();
        cut.rows.truncate(length);
        world.store.write(&cut).unwrap();
        let tips = tips(&mut *world.store.begin().unwrap()).unwrap();
        let found: Vec<u64> = tips.iter().map(|(_, tip)| tip.seq).collect();
        let expected = u64::try_from(length).unwrap();
        assert_eq!(found, if length == 0 { vec![] } else { vec![expected] });
    }
}

#[test]
fn an_old_copy_put_back_is_seen_by_the_head_alone() {
    let mut world = World::new();
    let old = world.store.tamper(|raw| raw.clone()).unwrap();
    world.scene.more();
    let head = world.head();
    assert!(world.with_head(&head).intact, "control");
    world.store.tamper(|raw| *raw = old).unwrap();
    assert!(world.with_keys().intact, "without the head nothing is missing");
    assert_eq!(world.compare(&head), HeadResult::Cut);
    let cut = Break::HeadCut { journal: head.journal, seq: head.seq };
    assert_eq!(world.with_head(&head).breaks, [cut]);
}

#[test]
fn an_old_copy_that_went_on_is_seen_by_the_head_alone() {
    let mut world = World::new();
    let old = world.store.tamper(|raw| raw.clone()).unwrap();
    world.scene.more();
    let head = world.head();
    world.store.tamper(|raw| *raw = old).unwrap();
    world.scene.more();
    world.scene.more();
    assert!(world.with_keys().intact, "without the head it is a good record");
    assert_eq!(world.compare(&head), HeadResult::Diverged);
    let diverged = Break::HeadDiverged { journal: head.journal, seq: head.seq };
    assert_eq!(world.with_head(&head).breaks, [diverged]);
}

#[test]
fn a_tail_that_is_cut_together_with_its_rows_is_seen_by_the_head_alone() {
    let world = World::new();
    let head = world.head();
    let instance = world.store.instance();
    let last = usize::try_from(head.seq).unwrap() - 1;
    // The last event records an erasure; an earlier one is not cut with its contents so easily.
    let goal = world.store.tamper(|raw| raw.events[last].clone()).unwrap();
    assert_eq!(goal.kind, "content.erased");
    rewrite(&world.store, instance, |index, _, _| index != last);
    let report = world.with_keys();
    assert!(matches!(report.breaks.as_slice(), [Break::ContentMissing { .. }]), "{report:?}");
    assert_eq!(world.compare(&head), HeadResult::Cut);

    let mut world = World::new();
    world.scene.more();
    let head = world.head();
    let last = usize::try_from(head.seq).unwrap() - 1;
    rewrite(&world.store, instance, |index, _, _| index != last);
    let report = world.with_keys();
    // The run's last event brought its result and note: as contents they give the cut away.
    let contents = world.store.table("contents");
    let found = u64::try_from(contents.rows.len()).unwrap();
    let extra = Break::RowExtra { table: "contents", expected: found - 2, found };
    assert_eq!(report.breaks, [extra]);
    let (kind, id, seq) =
        (contents.column("owner_kind"), contents.column("owner_id"), contents.column("owner_seq"));
    let events = world.store.table("events");
    let mut kept = contents.clone();
    kept.rows.retain(|row| {
        events.rows.iter().any(|event| {
            event[events.column("stream_kind")] == row[kind]
                && event[events.column("stream_id")] == row[id]
                && event[events.column("stream_seq")] == row[seq]
        })
    });
    world.store.write(&kept).unwrap();
    assert!(world.with_keys().intact, "without the head nothing is missing");
    assert_eq!(world.compare(&head), HeadResult::Cut);
    assert!(!world.with_head(&head).intact);
}

#[test]
fn a_record_rewritten_from_an_early_event_on_is_seen_by_the_head_alone() {
    let world = World::new();
    let head = world.head();
    let instance = world.store.instance();
    rewrite(&world.store, instance, |_, _, _| true);
    assert!(world.with_head(&head).intact, "control: the forger's tables are the store's own");
    rewrite(&world.store, instance, |_, _, body| {
        if let Body::RunCreated(created) = body {
            created.agent = "somebody else".to_owned();
        }
        true
    });
    assert!(world.with_keys().intact, "without the head it is a good record");
    assert_eq!(world.compare(&head), HeadResult::Diverged);
    let diverged = Break::HeadDiverged { journal: head.journal, seq: head.seq };
    assert_eq!(world.with_head(&head).breaks, [diverged]);
}

/// Rewrites the record with each answer as `edit` leaves it.
fn rewrite_answers(
    world: &World,
    edit: impl Fn(&mut portcullis_domain::event::QuestionAnswered),
) -> Report {
    rewrite(&world.store, world.store.instance(), |_, _, body| {
        if let Body::QuestionAnswered(answered) = body {
            edit(answered);
        }
        true
    });
    world.with_keys()
}

#[test]
fn a_rewritten_answer_is_seen_by_its_signature() {
    let bad = |report: &Report| {
        report.breaks.iter().filter(|b| matches!(b, Break::BadSignature { .. })).count()
    };
    let world = World::new();
    let report = rewrite_answers(&world, |_| ());
    assert_eq!((report.breaks.len(), report.signatures.checked), (0, 4), "control");

    let report = rewrite_answers(&world, |answered| {
        answered.statement.at = Timestamp::from_micros(1);
    });
    assert_eq!(bad(&report), 4);
    let unchecked = world.store.verify(Options::default());
    assert!(unchecked.intact, "without keys the forged answers follow from the forged events");
    assert_eq!((unchecked.signatures.unchecked, unchecked.signatures.checked), (4, 0));

    let world = World::new();
    let report = rewrite_answers(&world, |answered| answered.signature = Signature([0; 64]));
    assert_eq!(bad(&report), 4);

    // Another person's name on a true signature.
    let world = World::new();
    let report = rewrite_answers(&world, |answered| answered.person.push('a'));
    let other = |b: &Break| matches!(b, Break::PersonMismatch { .. });
    assert_eq!(report.breaks.iter().filter(|b| other(b)).count(), 4);
}

pub(crate) struct Counted;

impl portcullis_domain::ports::Entropy for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0x42);
    }
}

#[test]
fn an_answer_to_another_question_is_no_answer() {
    // The first answer's statement and signature, put on every question.
    let world = World::new();
    let events = world.store.tamper(|raw| raw.events.clone()).unwrap();
    let first = events
        .iter()
        .find_map(|stored| match Body::read(&stored.kind, 1, &stored.payload) {
            Ok(Body::QuestionAnswered(answered)) => Some(answered),
            _ => None,
        })
        .unwrap();
    let report = rewrite_answers(&world, |answered| {
        let question = answered.question;
        *answered = first.clone();
        answered.question = question;
    });
    assert!(
        report.breaks.iter().any(|b| matches!(b, Break::NotAdmitted { .. })),
        "{:?}",
        report.breaks
    );
}

#[test]
fn a_question_whose_terms_were_rewritten_is_seen_by_its_digest() {
    let world = World::new();
    rewrite(&world.store, world.store.instance(), |_, _, body| {
        if let Body::QuestionAsked(asked) = body {
            asked.uses = 2;
        }
        true
    });
    let question = |b: &Break| matches!(b, Break::DigestMismatch { which: "question", .. });
    assert!(world.with_keys().breaks.iter().any(question));

    // The card of one question under the digests of another.
    let world = World::new();
    let card = std::cell::Cell::new(None);
    rewrite(&world.store, world.store.instance(), |_, _, body| {
        if let Body::QuestionAsked(asked) = body {
            let own = asked.card;
            asked.card = card.replace(Some(own)).unwrap_or(own);
        }
        true
    });
    let call = |b: &Break| matches!(b, Break::DigestMismatch { which: "call", .. });
    assert!(world.with_keys().breaks.iter().any(call));
}

#[test]
fn a_forged_or_copied_approval_row_is_extra() {
    let world = World::new();
    let approvals = world.store.table("approvals");
    let questions = world.store.table("questions");
    let question = approvals.column("question");
    let answered: Vec<&Cell> = approvals.rows.iter().map(|row| &row[question]).collect();
    let open = questions.rows.iter().find(|row| !answered.contains(&&row[0])).unwrap();
    let mut forged = approvals.clone();
    let mut row = approvals.rows[0].clone();
    row[question] = open[0].clone();
    forged.rows.push(row);
    world.store.write(&forged).unwrap();
    let extra = Break::RowExtra { table: "approvals", expected: 4, found: 5 };
    assert_eq!(world.with_keys().breaks, [extra]);
}

#[test]
fn a_head_of_another_installation_or_key_is_no_head() {
    let world = World::new();
    let other = MemoryStore::new(START, &Counted);
    let head = world.head();
    assert_eq!(
        compare_head(&mut *other.begin().unwrap(), &head).unwrap(),
        HeadResult::OtherInstance
    );
    let forged = Head { seq: head.seq - 1, ..head.clone() };
    let report = world.with_head(&forged);
    let signature = Break::HeadSignature { journal: head.journal, seq: head.seq - 1 };
    assert_eq!(report.breaks, [signature]);
    let far = Head { seq: u64::MAX, ..head.clone() };
    assert_eq!(world.compare(&far), HeadResult::Cut);
    // A copied hash beside another event.
    let mut events = world.store.table("events");
    let (at, last) = (events.column("at"), events.rows.len() - 1);
    events.rows[last][at] = Cell::Int(5);
    world.store.write(&events).unwrap();
    assert_eq!(world.compare(&head), HeadResult::Diverged);
}

#[test]
fn an_emptied_store_is_not_intact() {
    let world = World::new();
    world
        .store
        .tamper(|raw| {
            raw.events.clear();
            raw.contents.clear();
            raw.specs.clear();
            raw.rows.values_mut().for_each(Vec::clear);
        })
        .unwrap();
    let report = world.with_keys();
    assert_eq!((report.breaks.as_slice(), report.intact), ([Break::Empty].as_slice(), false));

    let new = MemoryStore::new(START, &Counted);
    let report = verify(&mut *new.begin().unwrap(), Options::default()).unwrap();
    assert_eq!((report.events, report.streams, report.intact), (1, 1, true));
}

#[test]
fn a_missing_content_is_excused_by_its_erasure_alone() {
    let world = World::new();
    let report = world.with_keys();
    assert_eq!(report.erased, 1);
    let contents = world.store.table("contents");
    let mut fewer = contents.clone();
    fewer.rows.remove(3);
    world.store.write(&fewer).unwrap();
    let breaks = world.with_keys().breaks;
    assert!(matches!(breaks.as_slice(), [Break::ContentMissing { .. }]), "{breaks:?}");
    // The empty row that keeps the erased one from being brought again.
    let mut unmarked = contents.clone();
    let before = unmarked.rows.len();
    unmarked.rows.retain(|row| !row.contains(&Cell::Blob(Vec::new())));
    assert_eq!(unmarked.rows.len(), before - 1);
    world.store.write(&unmarked).unwrap();
    let breaks = world.with_keys().breaks;
    let missing = matches!(breaks.as_slice(), [Break::RowMissing { table: "contents", .. }]);
    assert!(missing, "{breaks:?}");

    // The erased text put back from a copy.
    let mut scene_goal = Vec::new();
    let fresh = MemoryStore::new(START, &Drawn::default());
    let mut scene = Scene::new(Arc::new(fresh.clone()));
    scene.play();
    let events = fresh.tamper(|raw| raw.events.clone()).unwrap();
    for stored in events {
        if let Ok(Body::RunCreated(created)) = Body::read(&stored.kind, 1, &stored.payload) {
            scene_goal.push((
                created.goal.digest,
                RunId::from_bytes(stored.stream_id.try_into().unwrap()),
            ));
        }
    }
    let (digest, run) = scene_goal[0];
    fresh
        .tamper(|raw| {
            let mut row = raw.contents.values().next().unwrap().clone();
            row.digest = digest.as_bytes().to_vec();
            row.owner = ("run".to_owned(), run.as_bytes().to_vec(), 1);
            raw.contents.insert(row.digest.clone(), row);
        })
        .unwrap();
    let report = fresh.verify(Options::default());
    assert!(report.breaks.iter().any(|b| matches!(b, Break::ContentExtra { .. })));
}

#[test]
fn a_walk_ends_after_a_hundred_breaks_and_says_so() {
    let mut world = World::new();
    world.scene.more();
    world.scene.more();
    world
        .store
        .tamper(|raw| raw.events.iter_mut().for_each(|event| event.tenant.push('x')))
        .unwrap();
    let report = world.with_keys();
    assert_eq!((report.breaks.len(), report.cut_short, report.intact), (100, true, false));
}

#[test]
fn records_longer_than_a_page_are_walked_to_their_end() {
    let mut world = World::new();
    for _ in 0..20 {
        world.scene.more();
    }
    let count = world.store.table("events").rows.len();
    assert!(count > 2 * 128 + 1, "{count} events");
    let report = world.with_keys();
    assert_eq!((report.events, report.intact), (u64::try_from(count).unwrap(), true));
    assert_eq!(
        report.rows,
        ["runs", "steps", "questions", "approvals", "threads", "budgets"]
            .iter()
            .map(|name| u64::try_from(world.store.table(name).rows.len()).unwrap())
            .sum::<u64>()
    );
    for place in [127, 128, 129, 255, 256, 257, count - 1] {
        let saved = world.store.tamper(|raw| {
            let saved = raw.events[place].clone();
            raw.events[place].at += 1;
            saved
        });
        assert!(!world.with_keys().intact, "event {place}");
        world.store.tamper(|raw| raw.events[place] = saved.unwrap()).unwrap();
    }
    assert!(world.with_keys().intact);
}
