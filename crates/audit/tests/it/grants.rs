//! Grants that were used: by whoever could write the whole file, with every hash and row made anew, and by whom the
//! configuration names now.

use std::sync::Arc;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_audit::{Break, Options, Report};
use portcullis_canon::{Digest, Value};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::event::{
    ApprovalUsed, Body, LeaseAcquired, LeaseCause, QuestionAnswered, QuestionAsked, StepStarted,
};
use portcullis_domain::grant::ApprovalFault;
use portcullis_domain::id::{InstanceId, RunId, StepId};
use portcullis_domain::lease::{Epoch, Holder, ProcessIdentity};
use portcullis_domain::ports::{KeyRefusal, ReviewerKeys, Store as _, StoredEvent};
use portcullis_domain::question::{QuestionStatus, Terms};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::{Scope, Tenant};
use portcullis_domain::time::Timestamp;
use portcullis_domain::verdict::Reviewers;
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;

use crate::attacks::Counted;
use crate::forge::{rewrite, rewrite_all};
use crate::scene::{Drawn, START, Scene};
use crate::tables::Editable as _;

struct World {
    store: MemoryStore,
    scene: Scene,
}

impl World {
    fn new() -> Self {
        let store = MemoryStore::new(START, &Drawn::default());
        let mut scene = Scene::new(Arc::new(store.clone()));
        scene.play();
        Self { store, scene }
    }

    fn verify(&self, ring: &Keyring) -> Report {
        self.store.verify(Options { keys: &[ring], ..Options::default() })
    }

    /// The report by the keys as they are, on a record whose events are as `edit` leaves them.
    fn edited(&self, edit: impl Fn(&mut Body)) -> Report {
        rewrite(&self.store, self.store.instance(), |_, _, body| {
            edit(body);
            true
        });
        self.verify(&self.scene.ring())
    }

    /// The report by other keys than those of the answers.
    fn by(&self, ann: KeyEntry, bob: KeyEntry) -> Report {
        self.verify(&Keyring::new([ann, bob]).unwrap())
    }

    fn ann(&self) -> KeyEntry {
        KeyEntry::new(self.scene.ann.public(), "ann", ["operator"])
    }

    fn bob(&self) -> KeyEntry {
        KeyEntry::new(self.scene.bob.public(), "bob", ["operator"])
    }
}

/// What is said against each grant that was used.
fn no_leave(report: &Report) -> Vec<&str> {
    let of_grants = report.breaks.iter().filter_map(|found| match found {
        Break::NoLeave { why, .. } => Some(why.as_str()),
        _ => None,
    });
    of_grants.collect()
}

fn said(fault: impl Into<ApprovalFault>) -> String {
    fault.into().to_string()
}

fn sign(answered: &mut QuestionAnswered, key: &SigningKey) {
    answered.statement.key = key.id();
    answered.signature = key.sign(&answered.statement);
}

#[test]
fn a_grant_that_was_leave_is_counted() {
    let world = World::new();
    let report = world.verify(&world.scene.ring());
    assert_eq!((report.breaks.as_slice(), report.grants.checked), ([].as_slice(), 1));
    assert_eq!((report.signatures.checked, report.signatures.other_role), (4, 0));
    let report = world.store.verify(Options::default());
    assert!(report.intact);
    assert_eq!((report.grants.checked, report.grants.unchecked), (0, 1));
}

#[test]
fn a_grant_is_leave_by_one_set_of_keys_alone() {
    let world = World::new();
    let ring = |entries: &[&KeyEntry]| Keyring::new(entries.iter().copied().cloned()).unwrap();
    let verify = |sets: &[&dyn ReviewerKeys]| {
        world.store.verify(Options { keys: sets, ..Options::default() })
    };
    let (ann, bob) = (world.ann(), world.bob());
    let whole = ring(&[&ann, &bob]);
    // Another configuration may know nobody of them, or the same key by another name and role.
    let strangers = Keyring::default();
    let renamed = KeyEntry::new(world.scene.ann.public(), "anna", ["auditor"]);
    let renamed = ring(&[&renamed, &bob]);
    for sets in [[&strangers, &whole], [&whole, &strangers], [&renamed, &whole]] {
        let report = verify(&sets.map(|set| set as &dyn ReviewerKeys));
        assert_eq!((report.breaks.as_slice(), report.grants.checked), ([].as_slice(), 1));
        assert_eq!((report.signatures.checked, report.signatures.other_role), (4, 0));
        assert_eq!(report.signatures.unknown_key, 0);
    }
    // Two sets of one each are not two people, though each answer by itself is known.
    let report = verify(&[&ring(&[&ann]), &ring(&[&bob])]);
    assert_eq!(no_leave(&report), [said(KeyRefusal::UnknownKey)]);
    assert_eq!((report.signatures.checked, report.grants.checked), (4, 0));
    // What is known to be wrong is said rather than that somebody is not known.
    let revoked = KeyEntry { revoked: true, ..bob };
    let report = verify(&[&strangers, &ring(&[&ann, &revoked])]);
    assert_eq!(no_leave(&report), [said(KeyRefusal::NotValid)]);
    assert_eq!((report.signatures.not_valid, report.signatures.checked), (2, 2));
}

#[test]
fn a_forgers_own_key_is_no_leave_and_elsewhere_is_counted() {
    let world = World::new();
    let forger = SigningKey::generate(&Counted);
    let report = world.edited(|body| {
        if let Body::QuestionAnswered(answered) = body
            && answered.person == "bob"
        {
            sign(answered, &forger);
        }
    });
    // Bob's two answers: one of a grant, one a no.
    assert_eq!(no_leave(&report), [said(KeyRefusal::UnknownKey)]);
    assert_eq!(report.breaks.len(), 1);
    assert_eq!((report.signatures.unknown_key, report.signatures.checked), (2, 2));
    assert_eq!(report.grants.checked, 0);
}

/// Answers the question that nobody answered, with this key, and lets its call start instead of the run's end.
fn forge_a_grant(world: &World, key: &SigningKey) {
    let asked = std::cell::RefCell::new(None);
    let map = |_: usize, stored: StoredEvent, body: Body| match body {
        Body::QuestionAsked(body) => {
            *asked.borrow_mut() = Some((stored.step.clone(), body.clone()));
            vec![(stored, Body::QuestionAsked(body))]
        }
        Body::QuestionClosed(body) if body.status == QuestionStatus::Expired => {
            let (step, asked) = asked.borrow().clone().unwrap();
            let at = asked.expires_at.unwrap();
            let stored = StoredEvent { step, at: at.micros(), ..stored };
            grant(&asked, at, key).into_iter().map(|body| (stored.clone(), body)).collect()
        }
        Body::RunFinished(body) if body.reason == EndReason::ApprovalExpired => Vec::new(),
        body => vec![(stored, body)],
    };
    rewrite_all(&world.store, world.store.instance(), map, |_| ());
}

fn grant(asked: &QuestionAsked, at: Timestamp, key: &SigningKey) -> [Body; 4] {
    let (question, epoch) = (asked.question, Epoch(2));
    let covers = vec![asked.digest];
    let (answer, key_id) = (Answer::Approve, key.id());
    let statement = Statement { covers, answer, key: key_id, at, note: None, result: None };
    let signature = key.sign(&statement);
    let process =
        ProcessIdentity { boot_id: "0".repeat(8), pid_namespace: 1, pid: 7, start_ticks: 9 };
    let holder = Holder { process, nonce: "0".repeat(32) };
    let person = "ann".to_owned();
    [
        Body::QuestionAnswered(QuestionAnswered { question, person, statement, signature }),
        Body::LeaseAcquired(LeaseAcquired { epoch, holder, cause: LeaseCause::Free }),
        Body::ApprovalUsed(ApprovalUsed { question }),
        Body::StepStarted(StepStarted { call: asked.call, epoch, deadline_ms: 1_000, start: 1 }),
    ]
}

#[test]
fn a_grant_made_up_by_a_forger_is_no_leave() {
    // The control: signed with the key of the person it names, nothing gives it away.
    let world = World::new();
    forge_a_grant(&world, &world.scene.ann);
    let report = world.verify(&world.scene.ring());
    assert_eq!((report.breaks.as_slice(), report.grants.checked), ([].as_slice(), 2));

    let world = World::new();
    forge_a_grant(&world, &SigningKey::generate(&Counted));
    assert!(world.store.verify(Options::default()).intact, "without keys it is a good record");
    let report = world.verify(&world.scene.ring());
    assert_eq!(no_leave(&report), [said(KeyRefusal::UnknownKey)]);
    assert_eq!((report.breaks.len(), report.grants.checked), (1, 1));
}

/// How far a forger goes who asks one person where two were asked, and leaves out the second.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Far {
    Count,
    /// And the question's digest follows.
    Digest,
    /// And so does what the other answer covers.
    Covers,
}

fn ask_fewer(far: Far) -> Report {
    let world = World::new();
    let instance = world.store.instance();
    let forged = std::cell::Cell::new(None);
    let map = |_: usize, stored: StoredEvent, mut body: Body| {
        match &mut body {
            Body::QuestionAsked(asked) if asked.reviewers.count == 2 => {
                asked.reviewers.count = 1;
                if far != Far::Count {
                    asked.digest = terms_digest(instance, &stored, asked);
                }
                forged.set(Some((asked.question, asked.digest)));
            }
            Body::QuestionAnswered(answered) => match forged.get() {
                Some((id, _)) if id == answered.question && answered.person == "bob" => {
                    return Vec::new();
                }
                Some((id, digest)) if id == answered.question && far == Far::Covers => {
                    answered.statement.covers = vec![digest];
                }
                _ => {}
            },
            _ => {}
        }
        vec![(stored, body)]
    };
    rewrite_all(&world.store, instance, map, |_| ());
    world.verify(&world.scene.ring())
}

fn terms_digest(instance: InstanceId, stored: &StoredEvent, asked: &QuestionAsked) -> Digest {
    let tenant = Tenant::try_from(stored.tenant.clone()).unwrap();
    let terms = Terms {
        instance,
        tenant: &tenant,
        run: RunId::from_bytes(stored.stream_id.as_slice().try_into().unwrap()),
        step: StepId::from_bytes(stored.step.as_deref().unwrap().try_into().unwrap()),
        question: asked.question,
        kind: asked.kind,
        call: asked.call,
        expires_at: asked.expires_at,
        reviewers: &asked.reviewers,
        uses: asked.uses,
        grant_ttl_ms: asked.grant_ttl_ms,
    };
    terms.digest()
}

#[test]
fn fewer_people_than_were_asked_is_seen_however_far_the_forger_goes() {
    let reviewers = |b: &Break| matches!(b, Break::ReviewersMismatch { .. });
    // The count alone.
    let report = ask_fewer(Far::Count);
    let question = |b: &Break| matches!(b, Break::DigestMismatch { which: "question", .. });
    assert!(report.breaks.iter().any(question), "{:?}", report.breaks);
    assert!(report.breaks.iter().any(reviewers));
    assert_eq!(no_leave(&report), [said(ApprovalFault::Card)]);
    // With the digest, which is then not the one that was signed.
    let report = ask_fewer(Far::Digest);
    assert!(report.breaks.iter().any(|b| matches!(b, Break::NotAdmitted { .. })));
    // With what the answer covers, which is then not signed.
    let report = ask_fewer(Far::Covers);
    assert!(report.breaks.iter().any(|b| matches!(b, Break::BadSignature { .. })));
    assert!(report.breaks.iter().any(reviewers));
    assert_eq!(no_leave(&report).len(), 1);
}

#[test]
fn a_question_that_asks_others_than_its_card_is_seen_without_keys() {
    let world = World::new();
    rewrite(&world.store, world.store.instance(), |_, _, body| {
        if let Body::QuestionAsked(asked) = body {
            asked.reviewers = Reviewers { role: "anybody".to_owned(), ..asked.reviewers.clone() };
        }
        true
    });
    let report = world.store.verify(Options::default());
    let other = |b: &Break| matches!(b, Break::ReviewersMismatch { .. });
    assert_eq!(report.breaks.iter().filter(|b| other(b)).count(), 4);
}

#[test]
fn the_asker_is_not_among_two() {
    let world = World::new();
    let report = world.edited(|body| match body {
        Body::RunCreated(created) => created.owner = "ann".to_owned(),
        Body::ThreadOpened(opened) => opened.owner = "ann".to_owned(),
        _ => {}
    });
    assert_eq!(no_leave(&report), [said(ApprovalFault::People)]);
    assert_eq!(report.breaks.len(), 1);
}

#[test]
fn one_person_with_two_keys_is_one() {
    let world = World::new();
    let bob = KeyEntry { person: "ann".to_owned(), ..world.bob() };
    assert_eq!(no_leave(&world.by(world.ann(), bob)), [said(ApprovalFault::People)]);
}

#[test]
fn an_answer_that_states_a_time_before_its_question_is_no_leave() {
    let world = World::new();
    let early = Timestamp::from_micros(START.micros() - 1);
    let bob = &world.scene.bob;
    let back_dated = |body: &mut Body| {
        if let Body::QuestionAnswered(answered) = body
            && answered.person == "bob"
        {
            answered.statement.at = early;
            sign(answered, bob);
        }
    };
    world.edited(back_dated);
    // By its owner's own hand, with a key that was good at that time.
    let report = world.by(world.ann(), KeyEntry { not_after: Some(early), ..world.bob() });
    assert_eq!(report.signatures.checked, 4);
    assert_eq!(no_leave(&report), [said(ApprovalFault::Time)]);
}

#[test]
fn a_key_that_went_out_of_use_still_counts_and_a_revoked_one_does_not() {
    let world = World::new();
    let late = Timestamp::from_micros(START.micros() + 3_600_000_000);
    let report = world.by(world.ann(), KeyEntry { not_after: Some(late), ..world.bob() });
    assert_eq!((report.breaks.as_slice(), report.grants.checked), ([].as_slice(), 1), "control");

    for lost in [
        KeyEntry { revoked: true, ..world.bob() },
        KeyEntry { not_after: Some(START), ..world.bob() },
    ] {
        let report = world.by(world.ann(), lost);
        assert_eq!(no_leave(&report), [said(KeyRefusal::NotValid)]);
        assert_eq!(report.breaks.len(), 1);
        assert_eq!((report.signatures.not_valid, report.signatures.checked), (2, 2));
    }
    // A forgery under a revoked key is one all the same.
    let report = world.edited(|body| {
        if let Body::QuestionAnswered(answered) = body {
            answered.signature = portcullis_domain::approval::Signature([1; 64]);
        }
    });
    assert_eq!(no_leave(&report), [said(KeyRefusal::BadSignature)]);
    assert_eq!(report.breaks.len(), 5);
}

#[test]
fn whoever_has_lost_the_role_is_counted_and_no_leave() {
    let world = World::new();
    let bob = KeyEntry { roles: vec!["reader".to_owned()], ..world.bob() };
    let report = world.by(world.ann(), bob);
    assert_eq!(no_leave(&report), [said(ApprovalFault::Role)]);
    assert_eq!((report.signatures.other_role, report.signatures.checked), (2, 4));
}

#[test]
fn a_grant_used_after_its_time_is_no_leave() {
    let world = World::new();
    // A minute and more after the last yes was signed; the recorded times are all the forger's.
    let shift = |stored: &mut StoredEvent| stored.at += 61_000_000;
    let seen = std::cell::Cell::new(false);
    rewrite(&world.store, world.store.instance(), |_, stored, body| {
        seen.set(seen.get() || matches!(body, Body::QuestionAnswered(_)));
        if seen.get() {
            shift(stored);
        }
        true
    });
    let report = world.verify(&world.scene.ring());
    assert_eq!(no_leave(&report), [said(ApprovalFault::Time)], "{:?}", report.breaks);
}

#[test]
fn an_erased_card_excuses_nobody() {
    let erased = || {
        let world = World::new();
        let events = world.store.tamper(|raw| raw.events.clone()).unwrap();
        let card =
            events.iter().find_map(|stored| match Body::read(&stored.kind, 1, &stored.payload) {
                Ok(Body::QuestionAsked(asked)) if asked.reviewers.count == 2 => Some(asked.card),
                _ => None,
            });
        let (scope, digest) = (Scope::of_file_owner(), card.unwrap().digest);
        let at = Timestamp::from_micros(START.micros() + 3_600_000_000);
        block_on(world.store.erase(&scope, digest, "ann", at)).unwrap();
        world
    };
    let world = erased();
    let report = world.verify(&world.scene.ring());
    assert_eq!((report.breaks.as_slice(), report.grants.checked), ([].as_slice(), 1), "control");
    assert_eq!(report.cards_unchecked, 1);
    let report = erased().edited(|body| {
        if let Body::QuestionAnswered(answered) = body
            && answered.person == "bob"
        {
            sign(answered, &SigningKey::generate(&Counted));
        }
    });
    assert_eq!(no_leave(&report), [said(KeyRefusal::UnknownKey)]);
}

#[test]
fn a_break_of_a_grant_has_a_stable_machine_form() {
    let world = World::new();
    let report = world.by(world.ann(), KeyEntry { revoked: true, ..world.bob() });
    let value = portcullis_canon::to_value(&report.breaks[0]).unwrap();
    let text = |name| value.get(name).and_then(Value::as_str).unwrap_or_default();
    assert_eq!((text("kind"), text("why")), ("no_leave", said(KeyRefusal::NotValid).as_str()));
    assert!(text("question").starts_with("q_"));
}
