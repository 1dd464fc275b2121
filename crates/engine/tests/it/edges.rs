//! Each limit of a run one before, at, and one after its bound; and nothing follows the end.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::limits::Limits;
use portcullis_domain::run::EndReason;
use portcullis_engine::Progress;
use portcullis_testkit::block_on;

use crate::world::{Does, World, ask, call, turn};

fn roomy() -> Limits {
    Limits {
        max_steps: 1_000,
        max_consecutive_failures: 1_000,
        max_denials: 1_000,
        loop_threshold: Limits::MAX_LOOP_THRESHOLD,
        ..Limits::default()
    }
}

/// A limit, how a step counts against it, and how its run ends.
struct Edge {
    name: &'static str,
    limits: fn(u64) -> Limits,
    raw: fn(i64) -> Vec<u8>,
    /// How much time a step takes.
    takes: Duration,
    reason: EndReason,
}

const NO_TIME: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

fn edges() -> Vec<Edge> {
    vec![
        Edge {
            name: "max_steps",
            limits: |n| Limits { max_steps: n, ..roomy() },
            raw: |n| call("look", n),
            takes: NO_TIME,
            reason: EndReason::LimitSteps,
        },
        Edge {
            name: "max_consecutive_failures",
            limits: |n| Limits { max_consecutive_failures: n, ..roomy() },
            raw: |n| call("fly", n),
            takes: NO_TIME,
            reason: EndReason::RepeatedFailures,
        },
        Edge {
            name: "max_denials",
            limits: |n| Limits { max_denials: n, ..roomy() },
            raw: |n| call("burn", n),
            takes: NO_TIME,
            reason: EndReason::LimitDenials,
        },
        Edge {
            name: "loop_threshold",
            limits: |n| Limits { loop_threshold: n, ..roomy() },
            raw: |_| call("look", 7),
            takes: NO_TIME,
            reason: EndReason::LoopDetected,
        },
        Edge {
            name: "max_active_ms",
            limits: |n| Limits { max_active_ms: Some(n * 1_000), ..roomy() },
            raw: |n| call("look", n),
            takes: SECOND,
            reason: EndReason::LimitActiveTime,
        },
        Edge {
            name: "max_elapsed_ms",
            limits: |n| Limits { max_elapsed_ms: Some(n * 1_000), ..roomy() },
            raw: |n| call("look", n),
            takes: SECOND,
            reason: EndReason::LimitElapsedTime,
        },
    ]
}

#[test]
fn every_limit_ends_its_run_at_its_bound_and_not_before() {
    for edge in edges() {
        for bound in [2, 3, 7, Limits::MAX_LOOP_THRESHOLD] {
            let world = World::new();
            let mut held = world.begin_with((edge.limits)(bound));
            let run = held.run();
            let name = format!("{} {bound}", edge.name);
            for n in 1..=bound {
                world.clock.advance(edge.takes);
                let progress = turn(&mut held, (edge.raw)(i64::try_from(n).unwrap()));
                let expected =
                    if n < bound { Progress::Observed } else { Progress::Ended(edge.reason) };
                assert_eq!(progress, expected, "{name}: step {n}");
            }
            let events = world.bodies().len();
            let after = Progress::Ended(edge.reason);
            assert_eq!(turn(&mut held, call("look", 99)), after, "{name}: after the end");
            assert_eq!(block_on(held.step()).unwrap(), after, "{name}");
            assert_eq!(block_on(held.execute()).unwrap(), after, "{name}");
            assert_eq!(world.bodies().len(), events, "{name}: nothing follows the end");
            assert_eq!(world.state(run).run.step_count, bound, "{name}");
        }
    }
}

#[test]
fn a_limit_of_time_is_met_to_the_microsecond() {
    for (off, ends) in [(-1_i64, false), (0, true), (1, true)] {
        let took = Duration::from_micros(u64::try_from(1_000_000 + off).unwrap());
        for (limits, reason) in [
            (Limits { max_active_ms: Some(1_000), ..roomy() }, EndReason::LimitActiveTime),
            (Limits { max_elapsed_ms: Some(1_000), ..roomy() }, EndReason::LimitElapsedTime),
        ] {
            let world = World::new();
            let mut held = world.begin_with(limits);
            world.clock.advance(took);
            let expected = if ends { Progress::Ended(reason) } else { Progress::Observed };
            assert_eq!(turn(&mut held, call("look", 1)), expected, "{reason:?} {off}");
        }
    }
}

#[test]
fn a_loop_threshold_beyond_the_window_is_refused() {
    let world = World::new();
    let wide = Limits { loop_threshold: u64::MAX, ..roomy() };
    let begun = block_on(world.gate(1).begin(world.scope(), world.task(wide)));
    assert!(matches!(begun, Err(portcullis_engine::GateError::Limits(_))));
}

#[test]
fn active_time_is_summed_over_waits_and_processes_and_waiting_is_none() {
    let world = World::new();
    let mut held = world.begin_with(Limits { max_active_ms: Some(1_000), ..roomy() });
    let run = held.run();
    world.clock.advance(Duration::from_millis(400));
    ask(&mut held, "send");
    world.clock.advance(Duration::from_secs(3_600));
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    let (mut held, _) = world.take(2, run);
    world.clock.advance(Duration::from_millis(400));
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.state(run).run.active_us, 800_000);
    world.clock.advance(Duration::from_millis(199));
    assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(turn(&mut held, call("look", 2)), Progress::Ended(EndReason::LimitActiveTime));
}

#[test]
fn what_a_run_says_at_a_pause_is_whole() {
    let world = World::new();
    let mut held = world.begin_with(roomy());
    let run = held.run();
    world.tools.set("write", Does::Fail);
    world.clock.advance(Duration::from_millis(5));
    turn(&mut held, call("write", 1));
    turn(&mut held, call("burn", 1));
    world.clock.advance(Duration::from_millis(7));
    ask(&mut held, "send");
    let said = block_on(held.state()).unwrap();
    assert_eq!(said, world.state(run));
    let totals = (said.run.step_count, said.run.failures, said.run.denials, said.run.active_us);
    assert_eq!(totals, (3, 1, 1, 12_000));
}
