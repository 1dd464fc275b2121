//! Calls of which it is not known what they did: settled by a person, and in the way of other changes until then.

use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::question::QuestionKind;
use portcullis_engine::operator::Answered;
use portcullis_server::proxy::Settings;
use portcullis_store::memory::Fault;

use crate::world::{Does, World, made, make, repeated, until, word};

/// A change whose outcome is not known, and the question about it.
fn cut(world: &World) -> portcullis_domain::question::Question {
    world.tools.first("write", Does::Unknown);
    let told = make(&world.proxy(1), "write", 1);
    assert_eq!((word(&told), told.failed), ("UNKNOWN_OUTCOME", false));
    let question = world.question();
    assert_eq!(question.kind, QuestionKind::UnknownOutcome);
    question
}

#[test]
fn an_unknown_outcome_blocks_other_changes_with_the_tool() {
    let world = World::new();
    let question = cut(&world);
    let proxy = world.proxy(2);
    let blocked = make(&proxy, "write", 2);
    assert_eq!((word(&blocked), blocked.failed), ("BLOCKED", true));
    assert_eq!(word(&made(&proxy, repeated("write", 1, "again"))), "BLOCKED");
    assert_eq!(word(&make(&proxy, "write", 1)), "UNKNOWN_OUTCOME");
    assert_eq!(world.tools.effects("write"), 1);
    // Another tool, and what only reads, are in nobody's way.
    assert_eq!((word(&make(&proxy, "finish", 1)), word(&make(&proxy, "look", 1))), ("-", "-"));
    assert_eq!(world.question().id, question.id, "one question");
    world.answer(&question, Answer::Happened, None);
    assert_eq!(word(&make(&proxy, "write", 2)), "-");
    assert_eq!(word(&make(&proxy, "write", 1)), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn what_did_not_happen_is_made_when_it_is_asked_for_again() {
    let world = World::new();
    let answered = world.answer(&cut(&world), Answer::DidNotHappen, None);
    assert_eq!(answered, Answered::GoesOn);
    assert_eq!(word(&make(&world.proxy(2), "write", 1)), "-");
    assert_eq!(word(&make(&world.proxy(2), "write", 1)), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn a_person_can_have_it_made_again_and_it_is_collected_once() {
    let world = World::new();
    world.answer(&cut(&world), Answer::RunAgain, None);
    assert_eq!(world.tools.effects("write"), 1, "not by the answer");
    assert_eq!(word(&make(&world.proxy(2), "write", 1)), "-");
    assert_eq!(word(&make(&world.proxy(1), "write", 1)), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn a_question_that_expires_settles_nothing() {
    let world = World::new();
    let settings = Settings { question_ttl_ms: Some(1_000), ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    world.tools.first("write", Does::Unknown);
    assert_eq!(word(&make(&proxy, "write", 1)), "UNKNOWN_OUTCOME");
    world.clock.advance(Duration::from_hours(24));
    assert_eq!(word(&make(&proxy, "write", 1)), "UNKNOWN_OUTCOME");
    assert_eq!(world.tools.effects("write"), 1);
    // Only who means it expressly has it made.
    assert_eq!(word(&made(&proxy, repeated("write", 1, "after all"))), "-");
}

/// A process that is killed in the middle of a change: the call never comes back.
fn killed_in_the_middle(world: &World) {
    world.tools.first("write", Does::Never);
    let proxy = world.proxy(1);
    std::thread::spawn(move || make(&proxy, "write", 1));
    until(|| world.tools.effects("write") > 0);
    world.kill(1);
}

#[test]
fn a_process_that_dies_in_the_middle_leaves_one_question_and_no_second_change() {
    let world = World::new();
    killed_in_the_middle(&world);
    for pid in [2, 3] {
        assert_eq!(word(&make(&world.proxy(pid), "write", 1)), "UNKNOWN_OUTCOME");
    }
    let question = world.question();
    let told = world.told.asked.lock().unwrap().clone();
    assert_eq!(told, [(question.id, QuestionKind::UnknownOutcome, "write".to_owned())]);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn another_change_takes_up_what_a_dead_process_left() {
    let world = World::new();
    killed_in_the_middle(&world);
    assert_eq!(word(&make(&world.proxy(2), "write", 2)), "BLOCKED");
    assert_eq!(world.question().kind, QuestionKind::UnknownOutcome);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn what_a_process_could_not_record_is_in_the_way_of_its_own_changes_too() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "look", 1)), "-");
    // Beginning, proposal and intent are stored; then the disk is full, also for the end of the lease.
    world
        .store
        .plan(std::iter::repeat_n(None, 3).chain(std::iter::repeat_n(Some(Fault::Full), 99)));
    let lost = {
        let proxy = Arc::clone(&proxy);
        std::thread::spawn(move || make(&proxy, "write", 1))
    };
    until(|| world.tools.effects("write") > 0);
    // Time passes only while the end is tried again: its deadline must not pass because a thread of the test was slow.
    until(|| {
        let pause = Duration::from_millis(500);
        if let Some(wake) = world.clock.next_wake().filter(|wake| *wake <= pause) {
            world.clock.advance(wake);
        }
        lost.is_finished()
    });
    assert_eq!((word(&lost.join().unwrap()), world.tools.effects("write")), ("UNAVAILABLE", 1));
    until(|| word(&make(&proxy, "look", 1)) == "-");
    world.clock.advance(Duration::from_mins(1));
    assert_eq!(word(&make(&proxy, "write", 2)), "BLOCKED");
    assert_eq!(world.question().kind, QuestionKind::UnknownOutcome);
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn while_its_process_lives_a_call_is_in_progress() {
    let world = World::new();
    world.tools.first("write", Does::Never);
    let proxy = world.proxy(1);
    let first = Arc::clone(&proxy);
    std::thread::spawn(move || make(&first, "write", 1));
    until(|| world.tools.effects("write") > 0);
    for pid in [1, 2] {
        let told = make(&world.proxy(pid), "write", 1);
        assert_eq!((word(&told), told.failed), ("IN_PROGRESS", false));
    }
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn a_read_that_was_cut_off_is_made_anew() {
    let world = World::new();
    world.tools.first("look", Does::Never);
    let proxy = world.proxy(1);
    std::thread::spawn(move || make(&proxy, "look", 1));
    until(|| world.tools.effects("look") > 0);
    world.kill(1);
    assert_eq!(word(&make(&world.proxy(2), "look", 1)), "-");
    assert!(world.open_questions().is_empty());
}
