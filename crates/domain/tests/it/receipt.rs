//! A receipt is given for a synced append that holds exactly the call's own start, and for nothing else.

use std::time::Duration;

use portcullis_canon::{Digest, Object};
use portcullis_domain::event::{Body, StepStarted};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::permit::{BatchCall, BatchIntent, Intent, commit, commit_batch};
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent, StoreError};
use portcullis_domain::question::Card;
use portcullis_domain::scope::Scope;
use portcullis_domain::standing::Standing;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::EffectClass;
use portcullis_testkit::block_on;
use portcullis_testkit::recording_store::RecordingStore;

fn started(run: RunId, step: StepId, call: Digest) -> NewEvent {
    let body = Body::StepStarted(StepStarted { call, epoch: Epoch(1), deadline_ms: 1, start: 1 });
    NewEvent { stream: run.into(), step: Some(step), at: Timestamp::from_micros(0), body }
}

fn intent() -> Intent {
    let (run, step) = (RunId::from_bytes([1; 16]), StepId::from_bytes([2; 16]));
    let card = card();
    let salt = b"salt".to_vec();
    let call = card.call_digest(&salt);
    let condition = Condition::Driver {
        run,
        seq: 1,
        epoch: Epoch(1),
        take: None,
        live_at: None,
        label_seq: None,
    };
    let append = Append {
        condition,
        events: vec![started(run, step, call)],
        contents: vec![],
        specs: vec![],
        durability: Durability::Synced,
    };
    Intent { run, step, card, salt, deadline: Duration::from_millis(1), append }
}

fn card() -> Card {
    Card {
        capability: "t".to_owned(),
        tool: "t".to_owned(),
        arguments: Object::new(),
        spec: Digest::ZERO,
        effect: EffectClass::LocalMutation,
        source: false,
        sink: true,
        authority: vec![],
        target: None,
        sandbox: None,
        rules: vec![],
        reviewers: None,
    }
}

/// Whether an intent gets its receipt. One that does not is not handed to the store either.
fn receipt(change: impl FnOnce(&mut Intent)) -> Result<(), StoreError> {
    let store = RecordingStore::new();
    let mut intent = intent();
    change(&mut intent);
    let given = block_on(commit(&store, &Scope::of_file_owner(), intent));
    assert_eq!(store.appends().len(), usize::from(given.is_ok()));
    given.map(|receipt| drop(receipt.into_permit(Standing::always())))
}

#[test]
fn only_a_synced_start_of_this_very_call_gives_a_receipt() {
    assert_eq!(receipt(|_| {}), Ok(()));
    let refused = Err(StoreError::NotAdmitted);
    assert_eq!(receipt(|intent| intent.append.durability = Durability::Written), refused);
    assert_eq!(receipt(|intent| intent.append.events.clear()), refused);
    // What would run is not what the event says: another argument, another tool, another salt.
    let argument = |intent: &mut Intent| drop(intent.card.arguments.insert("path", "x"));
    assert_eq!(receipt(argument), refused);
    assert_eq!(receipt(|intent| intent.card.tool = "u".to_owned()), refused);
    assert_eq!(receipt(|intent| intent.salt.clear()), refused);
    assert_eq!(receipt(|intent| intent.append.condition = Condition::Late), refused);
    assert_eq!(receipt(|intent| intent.step = StepId::from_bytes([3; 16])), refused);
    assert_eq!(receipt(|intent| intent.run = RunId::from_bytes([3; 16])), refused);
    let twice = |intent: &mut Intent| {
        let again = intent.append.events.clone();
        intent.append.events.extend(again);
    };
    assert_eq!(receipt(twice), refused);
}

/// A batch of two calls; each of another step.
fn batch() -> BatchIntent {
    let one = intent();
    let call = |number: u8| {
        let mut card = card();
        card.effect = EffectClass::ReadOnly;
        card.arguments = Object::from_iter([("n", u64::from(number))]);
        BatchCall { step: StepId::from_bytes([number; 16]), card, deadline: one.deadline }
    };
    let calls = vec![call(2), call(3)];
    let events = calls
        .iter()
        .map(|call| started(one.run, call.step, call.card.call_digest(&one.salt)))
        .collect();
    BatchIntent { run: one.run, calls, salt: one.salt, append: Append { events, ..one.append } }
}

/// Whether a batch gets its receipt, and the steps of its permits.
fn batch_receipt(change: impl FnOnce(&mut BatchIntent)) -> Result<Vec<StepId>, StoreError> {
    let store = RecordingStore::new();
    let mut intent = batch();
    change(&mut intent);
    let given = block_on(commit_batch(&store, &Scope::of_file_owner(), intent));
    assert_eq!(store.appends().len(), usize::from(given.is_ok()));
    let permits = given?.into_permits(&Standing::always()).0;
    Ok(permits.iter().map(portcullis_domain::permit::Permit::step).collect())
}

#[test]
fn only_the_synced_starts_of_exactly_these_calls_give_the_permits_of_a_batch() {
    let steps = [2, 3].map(|number| StepId::from_bytes([number; 16]));
    assert_eq!(batch_receipt(|_| {}), Ok(steps.to_vec()));
    let refused = Err(StoreError::NotAdmitted);
    let check = |change: &dyn Fn(&mut BatchIntent)| assert_eq!(batch_receipt(change), refused);
    check(&|intent| intent.append.durability = Durability::Written);
    check(&|intent| intent.append.condition = Condition::Late);
    check(&|intent| intent.run = RunId::from_bytes([3; 16]));
    check(&|intent| intent.salt.clear());
    check(&|intent| drop(intent.append.events.pop()));
    check(&|intent| drop(intent.calls.pop()));
    check(&|intent| intent.append.events.reverse());
    check(&|intent| {
        intent.append.events.clear();
        intent.calls.clear();
    });
    check(&|intent| drop(intent.calls[1].card.arguments.insert("n", 9_u64)));
    check(&|intent| intent.calls[1].step = StepId::from_bytes([9; 16]));
    // One more start, of a call that is not among them, or twice the same step.
    check(&|intent| {
        let again = intent.append.events[0].clone();
        intent.append.events.push(again);
    });
    check(&|intent| {
        intent.calls[1].step = intent.calls[0].step;
        intent.append.events[1].step = intent.append.events[0].step;
    });
}
