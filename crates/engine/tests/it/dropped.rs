//! Every public future is polled k times and dropped, for every k: no record is lost, nothing happens twice.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use portcullis_engine::{Attached, Progress};
use portcullis_testkit::block_on;

use crate::batches::calls;
use crate::world::{FakeTools, World, call, until};

/// Polls at most `times`; what it gave, if it came to an end.
fn poll_times<F: Future + ?Sized>(future: &mut Pin<Box<F>>, times: u32) -> Option<F::Output> {
    let mut task = Context::from_waker(Waker::noop());
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
            return Some(output);
        }
        // The work runs in other threads: give it a moment, so that different k see different moments.
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// The most polls that any operation here needs before it is ready.
const MOST: u32 = 24;

#[test]
fn dropping_execute_after_any_number_of_polls_loses_no_record() {
    let mut dropped = 0;
    for times in 0..MOST {
        let world = World::with_tools(FakeTools::new(true));
        let mut held = world.begin();
        let run = held.run();
        assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
        let ended = poll_times(&mut Box::pin(held.execute()), times).is_some();
        dropped += u32::from(!ended);
        // The next operation waits for the one that was abandoned.
        let state = block_on(held.state()).unwrap();
        let started = world.count("step.started");
        assert_eq!(
            started,
            usize::from(times > 0),
            "an operation that was polled once is carried through"
        );
        assert_eq!(world.count("step.finished"), started);
        assert_eq!(world.tools.effects("write"), u32::try_from(started).unwrap());
        assert_eq!(state, world.state(run));
    }
    assert!(dropped > 1, "the control: some futures were dropped before they were ready");
}

#[test]
fn dropping_the_execution_of_a_batch_after_any_number_of_polls_loses_no_record() {
    let mut dropped = 0;
    for times in 0..MOST {
        let mut world = World::with_tools(FakeTools::new(times % 2 == 0));
        world.spawn = portcullis_testkit::ports::ThreadSpawn::with_places(8);
        let mut held = world.begin();
        let run = held.run();
        let raw = calls(&[("look", 1), ("look", 2), ("look", 3)]);
        assert_eq!(block_on(held.propose(raw)).unwrap(), Progress::Allowed);
        let ended = poll_times(&mut Box::pin(held.execute()), times).is_some();
        dropped += u32::from(!ended);
        let state = block_on(held.state()).unwrap();
        let carried = if times > 0 { 3 } else { 0 };
        assert_eq!(world.count("step.started"), carried);
        assert_eq!(world.count("step.finished"), carried);
        assert_eq!(world.tools.effects("look"), u32::try_from(carried).unwrap());
        assert_eq!(state, world.state(run));
    }
    assert!(dropped > 1, "the control: some futures were dropped before they were ready");
}

#[test]
fn dropping_propose_after_any_number_of_polls_loses_no_record() {
    for times in 0..MOST {
        let world = World::new();
        let mut held = world.begin();
        let run = held.run();
        drop(poll_times(&mut Box::pin(held.propose(call("burn", 1))), times));
        let state = block_on(held.state()).unwrap();
        let proposed = world.count("step.proposed");
        assert_eq!(proposed, usize::from(times > 0));
        assert_eq!(world.count("step.finished"), proposed, "what was proposed is judged");
        assert_eq!(state, world.state(run));
    }
}

#[test]
fn dropping_begin_or_attach_leaves_a_run_that_can_be_taken_up() {
    for times in 1..MOST {
        let world = World::new();
        let gate = world.gate(1);
        drop(poll_times(
            &mut Box::pin(gate.begin(world.scope(), world.task(Default::default()))),
            times,
        ));
        until(|| world.count("lease.released") == 1);
        let run = world.only_run();
        drop(poll_times(&mut Box::pin(world.gate(2).attach(world.scope(), run)), times));
        until(|| world.count("lease.released") == 2);
        assert!(matches!(world.attach(3, run).unwrap(), Attached::Held(_, Progress::Open)));
    }
}

#[test]
fn dropping_step_fail_and_close_changes_nothing_that_is_recorded() {
    for times in 0..MOST {
        let world = World::new();
        let mut held = world.begin();
        drop(poll_times(&mut Box::pin(held.step()), times));
        block_on(held.state()).unwrap();
        let failure = portcullis_domain::ports::AgentFailure {
            reason: portcullis_domain::run::EndReason::AgentExited,
            message: "gone".to_owned(),
        };
        drop(poll_times(&mut Box::pin(held.fail(failure)), times));
        let state = block_on(held.state()).unwrap();
        assert_eq!(state.run.status.is_terminal(), times > 0);
        drop(poll_times(&mut Box::pin(held.close()), times));
    }
}
