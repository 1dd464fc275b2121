//! The sweeper: who is reminded, once, and what time ends.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::limits::Limits;
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::wait::Wait;
use portcullis_engine::sweep::{self, Swept};
use portcullis_testkit::block_on;

use crate::world::{World, ask};

const MINUTE: Duration = Duration::from_secs(60);

/// A pass of another process.
fn pass(world: &World, pid: u32, before: Option<Duration>) -> Swept {
    block_on(sweep::pass(&world.parts(pid), world.scope(), before)).unwrap()
}

fn limits() -> Limits {
    Limits {
        question_ttl_ms: Some(10 * 60_000),
        grant_ttl_ms: Some(10 * 60_000),
        ..Limits::default()
    }
}

#[test]
fn people_are_reminded_once_of_a_question_and_once_of_its_grant_and_then_time_ends_it() {
    let world = World::new();
    let mut held = world.begin_with(limits());
    let run = held.run();
    let question = ask(&mut held, "send");
    let early = pass(&world, 2, Some(5 * MINUTE));
    assert_eq!(early, Swept::default(), "it is not near");
    world.clock.advance(6 * MINUTE);
    assert_eq!(pass(&world, 2, None), Swept::default(), "nobody is to be reminded");
    let first = pass(&world, 2, Some(5 * MINUTE));
    assert_eq!(first.reminded.iter().map(|q| q.id).collect::<Vec<_>>(), [question]);
    assert_eq!(first.ended, 0);
    assert_eq!(pass(&world, 3, Some(5 * MINUTE)), Swept::default(), "once, in whatever process");

    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    assert_eq!(world.state(run).run.waits, Some(Wait::Grant));
    assert_eq!(pass(&world, 3, Some(5 * MINUTE)), Swept::default(), "the grant is fresh");
    world.clock.advance(9 * MINUTE);
    let second = pass(&world, 3, Some(5 * MINUTE));
    let of = second.reminded.iter().map(|q| (q.id, q.status)).collect::<Vec<_>>();
    assert_eq!(of, [(question, QuestionStatus::Granted)]);
    assert_eq!(pass(&world, 2, Some(5 * MINUTE)), Swept::default());

    world.clock.advance(2 * MINUTE);
    assert_eq!(pass(&world, 2, Some(5 * MINUTE)).ended, 1);
    let state = world.state(run).run;
    assert_eq!(
        (state.status, state.reason),
        (RunStatus::Cancelled, Some(EndReason::ApprovalExpired))
    );
    assert_eq!((state.waits, state.free_since), (None, None));
    assert_eq!(pass(&world, 2, Some(5 * MINUTE)), Swept::default());
}

#[test]
fn a_pass_goes_through_more_than_a_page_and_ends_each_once() {
    let world = World::new();
    let runs: Vec<_> = (0..501)
        .map(|_| {
            let mut held = world.begin_with(limits());
            ask(&mut held, "send");
            held.run()
        })
        .collect();
    world.clock.advance(8 * MINUTE);
    let first = pass(&world, 2, Some(5 * MINUTE)).reminded.len();
    assert_eq!(first, sweep::MAX_REMINDED, "what a pass answers is bounded");
    assert_eq!(pass(&world, 2, Some(5 * MINUTE)).reminded.len(), runs.len() - first);
    world.clock.advance(3 * MINUTE);
    assert_eq!(pass(&world, 2, Some(5 * MINUTE)).ended, 501);
    assert!(runs.iter().all(|run| world.state(*run).run.status == RunStatus::Cancelled));
}
