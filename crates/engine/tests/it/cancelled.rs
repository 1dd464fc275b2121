//! A cancel during a wait: for a tool, an agent, a probe or the host. The wait ends, and the outcome is late.

use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::id::RunId;
use portcullis_domain::ports::BoxFuture;
use portcullis_domain::question::Card;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::StepStatus;
use portcullis_engine::operator::cancel;
use portcullis_engine::{Driven, Driving, Progress, Reconcile, Reconciled};
use portcullis_testkit::block_on;
use portcullis_testkit::doubles::HostileAgent;

use crate::world::{Does, FakeTools, World, call, turn};

const CANCELLED: Progress = Progress::Ended(EndReason::OperatorCancelled);

/// Cancels as another process does, and lets the time pass in which the driver looks.
pub(crate) fn cancel_elsewhere(world: &World, run: RunId) {
    block_on(cancel(&world.parts(9), world.scope(), run, "ann", None)).unwrap();
    while world.clock.next_wake().is_none_or(|wait| wait > Duration::from_secs(1)) {
        std::thread::yield_now();
    }
    world.clock.advance(Duration::from_secs(1));
}

/// A call that never answers, in a run that is cancelled meanwhile.
fn cancelled_call(blocks: bool, does: Does) -> (World, RunId) {
    let world = World::with_tools(FakeTools::new(blocks));
    world.tools.set("write", does);
    let mut held = world.begin();
    let run = held.run();
    let progress = std::thread::scope(|scope| {
        let executing = scope.spawn(|| turn(&mut held, call("write", 1)));
        while world.tools.effects("write") == 0 {
            std::thread::yield_now();
        }
        cancel_elsewhere(&world, run);
        executing.join().unwrap()
    });
    assert_eq!(progress, CANCELLED);
    assert_eq!((world.count("outcome.late"), world.count("question.asked")), (0, 0));
    assert_eq!(world.step(run, 0).status, StepStatus::Interrupted);
    (world, run)
}

#[test]
fn a_blocking_call_is_abandoned_and_its_outcome_is_late() {
    let (world, run) = cancelled_call(true, Does::Hang);
    world.tools.let_go();
    while world.count("outcome.late") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(world.step(run, 0).status, StepStatus::Interrupted);
    assert_eq!(world.state(run).run.reason, Some(EndReason::OperatorCancelled));
}

#[test]
fn an_abandoned_call_keeps_its_thread_and_that_is_counted() {
    let mut world = World::new();
    world.spawn = portcullis_testkit::ports::ThreadSpawn::with_places(1);
    world.tools.set("look", Does::Hang);
    let mut held = world.begin();
    let run = held.run();
    std::thread::scope(|scope| {
        let executing = scope.spawn(|| turn(&mut held, call("look", 1)));
        while world.tools.effects("look") == 0 {
            std::thread::yield_now();
        }
        cancel_elsewhere(&world, run);
        assert_eq!(executing.join().unwrap(), CANCELLED);
    });
    let mut held = world.begin();
    assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
    let refusal = world.step(held.run(), 0).observation.unwrap().refusal;
    assert_eq!(refusal, Some(portcullis_domain::refusal::Refusal::NoCapacity));
    world.tools.let_go();
}

#[test]
fn a_call_that_only_waits_is_left_alone() {
    let (world, run) = cancelled_call(false, Does::Never);
    assert_eq!(world.state(run).run.reason, Some(EndReason::OperatorCancelled));
}

#[test]
fn an_agent_that_never_answers_is_not_waited_for() {
    let world = World::new();
    let held = world.begin();
    let run = held.run();
    let mut driving = block_on(Driving::start(held, Box::new(HostileAgent::stalls()))).unwrap();
    cancel_elsewhere(&world, run);
    let driven = block_on(driving.finished()).unwrap();
    assert_eq!(driven, Driven::Ended(EndReason::OperatorCancelled));
}

/// Answers nothing, ever.
struct Silent;

impl Reconcile for Silent {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_host_that_never_answers_is_not_waited_for() {
    let mut world = World::with_tools(FakeTools::new(false));
    world.reconcile = Some(Arc::new(Silent));
    world.tools.set("write", Does::Unknown);
    let mut held = world.begin();
    let run = held.run();
    let progress = std::thread::scope(|scope| {
        let executing = scope.spawn(|| turn(&mut held, call("write", 1)));
        while world.count("probe.started") == 0 {
            std::thread::yield_now();
        }
        cancel_elsewhere(&world, run);
        executing.join().unwrap()
    });
    assert_eq!(progress, CANCELLED);
    assert_eq!((world.count("probe.finished"), world.count("question.asked")), (0, 0));
}
