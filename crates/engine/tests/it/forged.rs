//! A grant in a record that was rewritten whole, every hash and row made anew: nothing runs on it.

use std::time::Duration;

use portcullis_audit::keys::SigningKey;
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::event::{Body, QuestionAnswered, QuestionAsked};
use portcullis_domain::id::RunId;
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Store as _, StoredEvent};
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::{ApprovalFault, Attached, GateError, Progress};
use portcullis_policy::Outcome;
use portcullis_testkit::block_on;
use portcullis_testkit::forge::forge;
use portcullis_testkit::ports::SeededEntropy;

use crate::world::{World, ask};

fn rewrite(world: &World, map: impl Fn(StoredEvent, Body) -> Vec<(StoredEvent, Body)>) {
    let events = world.store.tamper(|raw| raw.events.clone()).unwrap();
    let map = |_: usize, stored, body| map(stored, body);
    let forged = forge(events, world.store.instance(), map, |_| ());
    world
        .store
        .tamper(|raw| {
            raw.events = forged.events;
            raw.rows.values_mut().for_each(Vec::clear);
            raw.rows.extend(forged.rows);
        })
        .unwrap();
}

fn asked(world: &World, limits: Limits) -> RunId {
    let mut held = world.begin_with(limits);
    ask(&mut held, "send");
    held.run()
}

/// An answer of Ben's, whoever signs it.
fn approve(asked: &QuestionAsked, at: &StoredEvent, key: &SigningKey) -> Body {
    let statement = Statement {
        covers: vec![asked.digest],
        answer: Answer::Approve,
        key: key.id(),
        at: portcullis_domain::time::Timestamp::from_micros(at.at),
        note: None,
        result: None,
    };
    let (question, person, signature) = (asked.question, "ben".to_owned(), key.sign(&statement));
    Body::QuestionAnswered(QuestionAnswered { question, person, statement, signature })
}

/// Answers the question in Ben's name.
fn forge_answer(world: &World, key: &SigningKey) {
    rewrite(world, |stored, body| match &body {
        Body::QuestionAsked(asked) => {
            let answered = (stored.clone(), approve(asked, &stored, key));
            vec![(stored, body), answered]
        }
        _ => vec![(stored, body)],
    });
}

#[test]
fn an_answer_under_a_forgers_own_key_is_asked_about_again() {
    // The control: under the key of the person whom it names it runs.
    let world = World::new();
    let run = asked(&world, Limits::default());
    forge_answer(&world, &world.people["ben"]);
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed);
    block_on(held.execute()).unwrap();
    assert_eq!(world.tools.effects("send"), 1);

    let world = World::new();
    let run = asked(&world, Limits::default());
    let first = world.question(run).id;
    forge_answer(&world, &SigningKey::generate(&SeededEntropy::new(99)));
    assert_eq!(world.question(run).status, QuestionStatus::Granted);
    let Ok(Attached::Waiting(second)) = world.attach(2, run) else { panic!("asks again") };
    assert_ne!(first, second);
    assert_eq!((world.count("approval.used"), world.tools.effects("send")), (0, 0));
}

#[test]
fn a_question_that_asks_fewer_than_its_card_lets_nothing_run() {
    let world = World::new();
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("operator", 2).unwrap());
    let run = asked(&world, Limits::default());
    world.answer("ben", &world.question(run), Answer::Approve).unwrap();
    rewrite(&world, |stored, mut body| {
        if let Body::QuestionAsked(asked) = &mut body {
            asked.reviewers.count = 1;
        }
        vec![(stored, body)]
    });
    assert_eq!(world.question(run).status, QuestionStatus::Granted);
    let attached = world.attach(2, run).map(drop);
    let card = matches!(attached, Err(GateError::Approval(ApprovalFault::Card)));
    assert!(card, "{attached:?}");
    assert_eq!((world.count("approval.used"), world.tools.effects("send")), (0, 0));
}

#[test]
fn a_grant_is_not_made_younger_by_its_recorded_time() {
    let world = World::new();
    let limits = Limits { grant_ttl_ms: Some(1_000), ..Limits::default() };
    let run = asked(&world, limits);
    world.answer("ben", &world.question(run), Answer::Approve).unwrap();
    world.clock.advance(Duration::from_secs(2));
    rewrite(&world, |mut stored, body| {
        if matches!(body, Body::QuestionAnswered(_)) {
            stored.at += 2_000_000;
        }
        vec![(stored, body)]
    });
    let attached = world.attach(2, run).map(drop);
    let time = matches!(attached, Err(GateError::Approval(ApprovalFault::Time)));
    assert!(time, "{attached:?}");
    assert_eq!((world.count("approval.used"), world.tools.effects("send")), (0, 0));
}
