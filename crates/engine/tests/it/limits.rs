//! Each limit one before, at, and after its bound.

use std::time::Duration;

use portcullis_domain::limits::Limits;
use portcullis_domain::run::EndReason;
use portcullis_engine::{GateError, Progress};
use portcullis_testkit::block_on;

use crate::world::{Does, World, call, turn};

/// Turns until the run ends, at most `most`; how many turns there were and why it ended.
#[track_caller]
fn until_end(
    world: &World,
    limits: Limits,
    most: i64,
    raw: impl Fn(i64) -> Vec<u8>,
) -> (i64, Option<EndReason>) {
    let mut held = world.begin_with(limits);
    for n in 0..most {
        if let Progress::Ended(reason) = turn(&mut held, raw(n)) {
            return (n + 1, Some(reason));
        }
    }
    (most, None)
}

fn roomy() -> Limits {
    Limits {
        max_steps: 1_000,
        max_consecutive_failures: 1_000,
        max_denials: 1_000,
        loop_threshold: 32,
        ..Limits::default()
    }
}

#[test]
fn steps() {
    let limits = Limits { max_steps: 4, ..roomy() };
    let world = World::new();
    assert_eq!(until_end(&world, limits.clone(), 3, |n| call("look", n)), (3, None));
    assert_eq!(until_end(&world, limits, 9, |n| call("look", n)), (4, Some(EndReason::LimitSteps)));
}

#[test]
fn failures_in_a_row_and_a_success_resets_them() {
    let limits = Limits { max_consecutive_failures: 3, ..roomy() };
    let world = World::new();
    assert_eq!(until_end(&world, limits.clone(), 2, |n| call("fly", n)), (2, None));
    assert_eq!(
        until_end(&world, limits.clone(), 9, |n| call("fly", n)),
        (3, Some(EndReason::RepeatedFailures))
    );
    world.tools.set("write", Does::Fail);
    assert_eq!(
        until_end(&world, limits.clone(), 9, |n| call("write", n)),
        (3, Some(EndReason::RepeatedFailures))
    );
    let mixed = |n: i64| call(if n % 3 == 2 { "look" } else { "fly" }, n);
    assert_eq!(until_end(&world, limits, 12, mixed), (12, None));
}

#[test]
fn denials_have_a_cap_of_their_own() {
    let limits = Limits { max_denials: 4, max_consecutive_failures: 2, ..roomy() };
    let world = World::new();
    assert_eq!(until_end(&world, limits.clone(), 3, |n| call("burn", n)), (3, None));
    assert_eq!(
        until_end(&world, limits.clone(), 9, |n| call("burn", n)),
        (4, Some(EndReason::LimitDenials))
    );
    // A success in between does not give denials back.
    let mixed = |n: i64| call(if n % 2 == 0 { "burn" } else { "look" }, n);
    assert_eq!(until_end(&world, limits, 20, mixed), (7, Some(EndReason::LimitDenials)));
}

#[test]
fn loops_of_one_two_and_three() {
    let limits = Limits { loop_threshold: 3, ..roomy() };
    let world = World::new();
    assert_eq!(
        until_end(&world, limits.clone(), 9, |_| call("look", 0)),
        (3, Some(EndReason::LoopDetected))
    );
    assert_eq!(
        until_end(&world, limits.clone(), 20, |n| call("look", n % 2)),
        (6, Some(EndReason::LoopDetected))
    );
    assert_eq!(
        until_end(&world, limits.clone(), 20, |n| call("look", n % 3)),
        (9, Some(EndReason::LoopDetected))
    );
    assert_eq!(until_end(&world, limits, 20, |n| call("look", n)), (20, None));
}

#[test]
fn a_changed_result_is_progress() {
    let limits = Limits { loop_threshold: 3, ..roomy() };
    let world = World::new();
    let tools = std::sync::Arc::clone(&world.tools);
    let changing = |n: i64| {
        tools.set("look", Does::Answer(format!("{n}").into_bytes()));
        call("look", 0)
    };
    assert_eq!(until_end(&world, limits, 10, changing), (10, None));
}

#[test]
fn elapsed_time_counts_waiting_and_ends_at_its_bound() {
    let world = World::new();
    for (ms, ended) in [(999, None), (1_000, Some(EndReason::LimitElapsedTime))] {
        let mut held = world.begin_with(Limits { max_elapsed_ms: Some(1_000), ..roomy() });
        world.clock.advance(Duration::from_millis(ms));
        let progress = turn(&mut held, call("look", 1));
        assert_eq!(progress, ended.map_or(Progress::Observed, Progress::Ended), "{ms}");
    }
}

#[test]
fn active_time_is_summed_over_steps() {
    let world = World::new();
    let mut held = world.begin_with(Limits { max_active_ms: Some(1_000), ..roomy() });
    for n in 0..2 {
        world.clock.advance(Duration::from_millis(400));
        assert_eq!(turn(&mut held, call("look", n)), Progress::Observed);
    }
    world.clock.advance(Duration::from_millis(200));
    assert_eq!(turn(&mut held, call("look", 9)), Progress::Ended(EndReason::LimitActiveTime));
}

#[test]
fn a_limit_of_zero_starts_nothing() {
    let world = World::new();
    let zero = Limits { max_steps: 0, ..Limits::default() };
    let begun = block_on(world.gate(1).begin(world.scope(), world.task(zero)));
    assert!(matches!(begun, Err(GateError::Limits(_))));
    assert_eq!(world.count("run.created"), 0);
}
