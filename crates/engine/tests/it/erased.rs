//! A proposal that was erased while its step goes on: what the record still allows happens, and never nothing for ever.

use portcullis_canon::Digest;
use portcullis_domain::approval::Answer;
use portcullis_domain::id::RunId;
use portcullis_domain::observation::{Failure, ObservationKind};
use portcullis_domain::ports::{Clock as _, Store as _};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::run::EndReason;
use portcullis_domain::step::StepStatus;
use portcullis_engine::operator::Answered;
use portcullis_engine::{Attached, Progress};
use portcullis_testkit::block_on;

use crate::unknown::{crashed, poll_once};
use crate::world::{Does, World, ask, call};

fn erase(world: &World, digest: Digest) {
    block_on(world.store.erase(world.scope(), digest, "ann", world.clock.now())).unwrap();
}

fn erase_proposal(world: &World, run: RunId) {
    erase(world, world.step(run, 0).proposal.unwrap().digest);
}

/// A run whose approved call of `send` was begun by a process that died.
fn crashed_after_leave(world: &World) -> RunId {
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    world.tools.set("send", Does::Hang);
    let (mut held, _) = world.take(2, run);
    let mut executing = Box::pin(async move { held.execute().await });
    poll_once(&mut executing);
    while world.tools.effects("send") == 0 {
        std::thread::yield_now();
    }
    std::mem::forget(executing);
    world.kill(2);
    run
}

#[test]
fn what_was_begun_is_asked_about_with_the_card_that_was_shown() {
    let world = World::new();
    let run = crashed_after_leave(&world);
    erase_proposal(&world, run);
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Waiting(_)));
    let question = world.question(run);
    assert_eq!(question.kind, QuestionKind::UnknownOutcome);
    // It cannot be made again: whoever says so is asked anew.
    assert_eq!(world.answer("ann", &question, Answer::RunAgain).unwrap(), Answered::Granted);
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Waiting(_)));
    let again = world.question(run);
    assert_ne!(again.id, question.id);
    assert_eq!(world.answer("ann", &again, Answer::DidNotHappen).unwrap(), Answered::GoesOn);
    assert_eq!(world.take(3, run).1, Progress::Open);
    assert_eq!(world.tools.effects("send"), 1);
    world.tools.let_go();
}

#[test]
fn what_was_begun_and_nobody_can_be_shown_ends_its_run() {
    let world = World::new();
    let run = crashed(&world, "write");
    erase_proposal(&world, run);
    let ended = world.attach(2, run).unwrap();
    assert!(matches!(ended, Attached::Ended(EndReason::ReconcileConflict)));
    assert_eq!(world.step(run, 0).observation.unwrap().failure, Some(Failure::Crash));
    let (world, card) = {
        let world = World::new();
        let run = crashed_after_leave(&world);
        erase_proposal(&world, run);
        let card = world.question(run).card.digest;
        ((world, run), card)
    };
    let (world, run) = world;
    erase(&world, card);
    assert!(matches!(world.attach(3, run).unwrap(), Attached::Ended(EndReason::ReconcileConflict)));
    world.tools.let_go();
}

#[test]
fn what_was_not_begun_is_no_proposal_any_more() {
    let invalid = |world: &World, run| {
        let step = world.step(run, 0);
        assert_eq!(step.status, StepStatus::Failed);
        assert_eq!(step.observation.unwrap().kind, ObservationKind::InvalidProposal);
        assert_eq!(world.state(run).question.filter(|q| q.closed_at.is_none()), None);
    };
    // Allowed, and its process died.
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(block_on(held.propose(call("write", 1))).unwrap(), Progress::Allowed);
    std::mem::forget(held);
    world.kill(1);
    erase_proposal(&world, run);
    assert_eq!(world.take(2, run).1, Progress::Observed);
    invalid(&world, run);
    // Granted.
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Answer::Approve).unwrap();
    erase_proposal(&world, run);
    assert_eq!(world.take(2, run).1, Progress::Observed);
    invalid(&world, run);
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn a_granted_call_whose_card_was_erased_is_asked_about_again() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    let question = world.question(run);
    world.answer("ann", &question, Answer::Approve).unwrap();
    erase(&world, question.card.digest);
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    let again = world.question(run);
    assert_ne!(again.id, question.id);
    world.answer("ann", &again, Answer::Approve).unwrap();
    let (mut held, _) = world.take(2, run);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(world.tools.effects("send"), 1);
}
