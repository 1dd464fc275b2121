//! The kit's doubles against the gate: whatever they do, nothing happens twice, and what is not an allow is a deny.

use std::sync::Arc;

use portcullis_domain::approval::Answer;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::StoreError;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::EndReason;
use portcullis_engine::{Attached, Driven, Driving, Gate, GateError, Progress};
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::{FaultyStore, HostileAgent};

use crate::world::{Conduct, Does, World, call, turn};

#[test]
fn a_policy_that_asks_nobody_or_changes_its_mind_lets_nothing_run() {
    let world = World::new();
    world.policy.behave(Conduct::AsksNobody);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call("write", 1)), Progress::Observed);
    assert_eq!(world.step(run, 0).observation.unwrap().refusal, Some(Refusal::NoReviewer));
    assert_eq!(world.tools.effects("write"), 0);

    // It allows the proposal, and denies it at the moment of use.
    let world = World::new();
    world.policy.behave(Conduct::Wavers);
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.step(run, 0).observation.unwrap().kind, ObservationKind::Denied);
    assert_eq!((world.policy.asked().len(), world.tools.effects("write")), (2, 0));
}

#[test]
fn a_result_that_is_too_much_or_no_json_is_not_shown() {
    for does in [Does::too_much(), Does::no_json()] {
        let world = World::new();
        world.tools.set("look", does.clone());
        let mut held = world.begin();
        let run = held.run();
        assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
        let observation = world.step(run, 0).observation.unwrap();
        let shown = world.observed(run, 0).to_canonical();
        assert!(
            observation.cut || observation.failure == Some(Failure::InvalidContent),
            "{does:?}"
        );
        assert!(shown.len() <= 4_096 + 256, "{does:?}: {}", shown.len());
    }
}

#[test]
fn an_agent_that_floods_or_repeats_is_ended_by_a_limit() {
    for (agent, reason, effects) in [
        (HostileAgent::floods(), EndReason::RepeatedFailures, 0),
        (
            HostileAgent::repeats(r#"{"kind":"tool_call","tool":"look","arguments":{"n":1}}"#),
            EndReason::LoopDetected,
            3,
        ),
    ] {
        let world = World::new();
        let held = world.begin_with(Limits::default());
        let mut driving = block_on(Driving::start(held, Box::new(agent.clone()))).unwrap();
        let driven = block_on(driving.finished()).unwrap();
        assert_eq!(
            (driven, world.tools.effects("look")),
            (Driven::Ended(reason), effects),
            "{agent:?}"
        );
    }
}

/// One step with a change, over a store that goes wrong once; then the process dies, and another goes on.
fn one_change(world: &World, store: FaultyStore) -> (Arc<FaultyStore>, Option<GateError>) {
    let store = Arc::new(store);
    let mut parts = world.parts(1);
    parts.store = Arc::<FaultyStore>::clone(&store);
    // Nobody moves the clock here, so that nothing is tried again.
    parts.timing.record = std::time::Duration::ZERO;
    let gate = Gate::new(parts);
    let error = match block_on(gate.begin(world.scope(), world.task(Limits::default()))) {
        Err(error) => Some(error),
        Ok(mut held) => {
            let proposed = block_on(held.propose(call("write", 1)));
            let error = proposed.and_then(|_| block_on(held.execute())).err();
            // A process that dies lets nothing go.
            std::mem::forget(held);
            error
        }
    };
    world.kill(1);
    (store, error)
}

#[test]
fn a_store_that_fails_on_the_nth_append_doubles_nothing() {
    let errors = [StoreError::Full, StoreError::Closed, StoreError::Medium { code: 10 }];
    for (number, error) in (1..=4).flat_map(|n| errors.clone().map(|error| (n, error))) {
        let world = World::new();
        let faulty = FaultyStore::new(Arc::new(world.store.clone())).failing(number, error.clone());
        let (store, heard) = one_change(&world, faulty);
        assert_eq!(store.fired(), 1, "{number} {error}");
        // Beginning, proposal, intent, outcome: no effect before the intent is stored.
        assert_eq!(world.tools.effects("write"), u32::from(number == 4), "{number} {error}");
        assert!(matches!(heard, Some(GateError::Store(_))), "{number} {error}: {heard:?}");
        if number == 1 {
            continue;
        }
        let run = world.only_run();
        match world.attach(2, run).unwrap() {
            Attached::Held(held, progress) => {
                assert_eq!(progress, if number == 2 { Progress::Open } else { Progress::Allowed });
                drop(held);
            }
            // The effect happened and its outcome is not recorded: a person says so.
            Attached::Waiting(_) => {
                assert_eq!(number, 4, "{error}");
                world.answer("ann", &world.question(run), Answer::Happened).unwrap();
            }
            Attached::Child(child) => panic!("{number} {error}: waits for {child}"),
            Attached::Ended(reason) => panic!("{number} {error}: ended as {reason:?}"),
        }
        assert_eq!(world.tools.effects("write"), u32::from(number == 4), "{number} {error}");
    }
}

/// Control of the test above: without a fault the four appends are made, and there is one effect.
#[test]
fn a_store_without_a_fault_makes_four_appends() {
    let world = World::new();
    let (store, heard) = one_change(&world, FaultyStore::new(Arc::new(world.store.clone())));
    assert!(heard.is_none(), "{heard:?}");
    assert_eq!((store.appends(), store.fired(), world.tools.effects("write")), (4, 0, 1));
}
