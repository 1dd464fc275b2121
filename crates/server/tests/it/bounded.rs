//! Limits of a whole conversation: counted over all of its calls, in whatever process, and read back from the record.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::Body;
use portcullis_domain::ports::Clock as _;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tally::ThreadLimits;
use portcullis_server::proxy::Settings;
use portcullis_store::memory::Fault;

use crate::world::{Does, World, in_thread, made, make, repeated, word};

const NONE: ThreadLimits = ThreadLimits::NONE;

fn world(limits: ThreadLimits) -> World {
    let mut world = World::new();
    world.conversation = Some(limits);
    world
}

/// How often something was refused for this reason, as it is recorded.
fn refused(world: &World, refusal: Refusal) -> usize {
    let is = |body: &Body| {
        matches!(body, Body::StepFinished(body)
        if body.observation.as_ref().and_then(|seen| seen.refusal) == Some(refusal))
    };
    world.bodies().iter().filter(|body| is(body)).count()
}

#[test]
fn calls_are_counted_over_all_processes_and_their_starts() {
    let world = world(ThreadLimits { max_calls: Some(2), ..NONE });
    let ends = format!("until {}", world.clock.now().after(Duration::from_hours(1)));
    assert_eq!(word(&make(&world.proxy(1), "look", 1)), "-");
    world.kill(1);
    assert_eq!(word(&make(&world.proxy(2), "look", 2)), "-");
    for (pid, n) in [(2, 3), (3, 1)] {
        let blocked = make(&world.proxy(pid), "look", n);
        assert_eq!((word(&blocked), blocked.failed), ("BLOCKED", true));
        assert!(blocked.text.contains("new conversation"), "{}", blocked.text);
        assert!(blocked.text.contains(&ends), "{ends} in {}", blocked.text);
    }
    assert_eq!(world.tools.effects("look"), 2);
    assert_eq!(refused(&world, Refusal::ThreadCalls), 2, "each refusal is recorded");
    // Another conversation has counts of its own.
    let proxy = world.proxy(2);
    assert_eq!(word(&made(&proxy, in_thread("look", 1, "other"))), "-");
    // A window that has passed, and not one that has almost, makes room.
    world.clock.advance(Duration::from_hours(1).saturating_sub(Duration::from_millis(1)));
    assert_eq!(word(&make(&proxy, "look", 4)), "BLOCKED");
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(word(&make(&proxy, "look", 4)), "-");
}

#[test]
fn a_raised_limit_holds_at_once() {
    let mut world = world(ThreadLimits { max_calls: Some(1), ..NONE });
    assert_eq!(word(&make(&world.proxy(1), "look", 1)), "-");
    assert_eq!(word(&make(&world.proxy(1), "look", 2)), "BLOCKED");
    world.conversation = Some(ThreadLimits { max_calls: Some(2), ..NONE });
    assert_eq!(word(&make(&world.proxy(1), "look", 2)), "-");
    assert_eq!(word(&make(&world.proxy(1), "look", 3)), "BLOCKED");
    // A proxy without bounds makes its calls, and they count for the others.
    world.conversation = None;
    assert_eq!(word(&make(&world.proxy(1), "look", 3)), "BLOCKED", "the last bounds still hold");
    world.conversation = Some(NONE);
    assert_eq!(word(&make(&world.proxy(1), "look", 3)), "-");
    world.conversation = Some(ThreadLimits { max_calls: Some(3), ..NONE });
    assert_eq!(word(&make(&world.proxy(1), "look", 4)), "BLOCKED");
}

#[test]
fn reads_go_on_when_no_change_may_be_made() {
    let world = world(ThreadLimits { max_changes: Some(1), ..NONE });
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    assert_eq!(word(&make(&proxy, "write", 2)), "BLOCKED");
    assert_eq!(word(&made(&proxy, repeated("write", 1, "again"))), "BLOCKED");
    assert_eq!(word(&make(&proxy, "look", 1)), "-");
    // Nobody is asked about what could not be made.
    assert_eq!(word(&make(&proxy, "send", 1)), "BLOCKED");
    assert!(world.open_questions().is_empty());
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn a_burst_through_two_processes_crosses_no_limit() {
    let world = world(ThreadLimits { max_changes: Some(4), ..NONE });
    let proxies = [world.proxy(1), world.proxy(2)];
    let words: Vec<String> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0_u8..16)
            .map(|n| {
                let proxy = &proxies[usize::from(n % 2)];
                scope.spawn(move || word(&make(proxy, "write", i64::from(n))).to_owned())
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    // Whoever lost too many races to others is told to come back, and has done nothing.
    let others = words.iter().filter(|word| *word != "-");
    let known = ["BLOCKED", "IN_PROGRESS", "UNAVAILABLE"];
    assert!(others.clone().all(|word| known.contains(&word.as_str())), "{words:?}");
    assert!(world.tools.effects("write") <= 4, "{words:?}");
    let mut n = 100;
    while word(&make(&proxies[0], "write", n)) == "-" {
        n += 1;
    }
    assert_eq!(world.tools.effects("write"), 4, "{words:?}");
}

#[test]
fn after_so_many_denials_nothing_is_made_for_a_while() {
    let world = world(ThreadLimits { max_denials: Some(2), ..NONE });
    let proxy = world.proxy(1);
    for n in 1..=2 {
        assert_eq!(word(&make(&proxy, "look", n)), "-");
        assert_eq!(word(&make(&proxy, "burn", n)), "DENIED");
    }
    assert_eq!(word(&make(&proxy, "look", 3)), "BLOCKED");
    assert_eq!(word(&make(&proxy, "burn", 3)), "DENIED", "it is told what is so");
    // What a limit refuses is no denial, and prolongs nothing.
    assert_eq!(refused(&world, Refusal::ThreadDenials), 1);
    world.clock.advance(Duration::from_hours(1));
    assert_eq!(word(&make(&proxy, "look", 3)), "-");
}

#[test]
fn denials_in_a_row_are_those_with_no_call_between_them() {
    let world = world(ThreadLimits { max_consecutive_denials: Some(2), ..NONE });
    let proxy = world.proxy(1);
    for n in 1..=3 {
        assert_eq!(word(&make(&proxy, "burn", n)), "DENIED");
        assert_eq!(word(&make(&proxy, "look", n)), "-");
    }
    assert_eq!(word(&make(&proxy, "burn", 8)), "DENIED");
    assert_eq!(word(&make(&proxy, "burn", 9)), "DENIED");
    assert_eq!(word(&make(&proxy, "look", 9)), "BLOCKED");
}

#[test]
fn what_people_reject_counts_and_they_are_not_asked_for_ever() {
    let world = world(ThreadLimits { max_denials: Some(2), ..NONE });
    let proxy = world.proxy(1);
    for n in 1..=2 {
        assert_eq!(word(&make(&proxy, "send", n)), "PENDING_APPROVAL");
        world.answer(&world.question(), Answer::Reject, None);
    }
    assert_eq!(word(&make(&proxy, "send", 3)), "BLOCKED");
    assert!(world.open_questions().is_empty());

    let world = self::world(ThreadLimits { max_questions: Some(1), ..NONE });
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "send", 1)), "PENDING_APPROVAL");
    world.answer(&world.question(), Answer::Approve, None);
    assert_eq!(word(&make(&proxy, "send", 1)), "-");
    assert_eq!(word(&make(&proxy, "send", 2)), "BLOCKED");
    assert!(world.open_questions().is_empty());
    assert_eq!(word(&make(&proxy, "write", 2)), "-", "what asks nobody goes on");
}

#[test]
fn an_approval_is_kept_until_there_is_room() {
    let world = world(ThreadLimits { max_changes: Some(1), ..NONE });
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "send", 1)), "PENDING_APPROVAL");
    world.answer(&world.question(), Answer::Approve, None);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    let before = world.bodies().len();
    for pid in [1, 2] {
        assert_eq!(word(&make(&world.proxy(pid), "send", 1)), "BLOCKED");
    }
    assert_eq!(world.bodies().len(), before, "a look writes nothing");
    assert_eq!(world.tools.effects("send"), 0);
    world.clock.advance(Duration::from_hours(1));
    assert_eq!(word(&make(&proxy, "send", 1)), "-");
    assert_eq!(word(&make(&proxy, "send", 1)), "DUPLICATE");
    assert_eq!(world.tools.effects("send"), 1);
}

#[test]
fn a_read_that_goes_round_is_refused_and_everything_else_goes_on() {
    let world = world(ThreadLimits { loop_threshold: Some(3), ..NONE });
    for pid in 1..=3 {
        assert_eq!(word(&make(&world.proxy(pid), "look", 1)), "-");
    }
    let proxy = world.proxy(4);
    for _ in 0..2 {
        let blocked = make(&proxy, "look", 1);
        assert_eq!((word(&blocked), blocked.failed), ("BLOCKED", true));
        assert!(blocked.text.contains("same results again and again"), "{}", blocked.text);
    }
    assert_eq!(world.tools.effects("look"), 3);
    assert_eq!(refused(&world, Refusal::ThreadLoop), 2);
    assert_eq!(word(&make(&proxy, "look", 2)), "-");
    assert_eq!(word(&make(&proxy, "look", 1)), "-", "it stands alone again");
    // A changed result is progress.
    for n in 0..6 {
        world.tools.first("look", Does::Answer(n.to_string().into_bytes()));
        assert_eq!(word(&make(&proxy, "look", 7)), "-");
    }
}

#[test]
fn a_cycle_of_several_calls_is_seen_and_so_are_repeats_that_say_they_are_meant() {
    let world = world(ThreadLimits { loop_threshold: Some(2), ..NONE });
    let proxy = world.proxy(1);
    for _ in 0..2 {
        for n in 1..=3 {
            assert_eq!(word(&make(&proxy, "look", n)), "-");
        }
    }
    assert_eq!(word(&make(&proxy, "look", 1)), "BLOCKED");

    let world = self::world(ThreadLimits { loop_threshold: Some(2), ..NONE });
    let proxy = world.proxy(1);
    for key in ["1", "2"] {
        assert_eq!(word(&made(&proxy, repeated("write", 1, key))), "-");
    }
    assert_eq!(word(&made(&proxy, repeated("write", 1, "3"))), "BLOCKED");
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn an_old_conversation_ends_and_another_begins() {
    let world = world(ThreadLimits { max_elapsed_ms: Some(60_000), ..NONE });
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "look", 1)), "-");
    world.clock.advance(Duration::from_mins(1));
    assert_eq!(word(&make(&proxy, "look", 2)), "BLOCKED");
    world.clock.advance(Duration::from_hours(24));
    assert_eq!(word(&make(&proxy, "look", 3)), "BLOCKED", "no window ends it");
    let settings = Settings { thread: Some("new".to_owned()), ..world.settings() };
    assert_eq!(word(&make(&world.proxy_with(1, settings), "look", 3)), "-");
}

#[test]
fn what_cannot_be_counted_is_not_made() {
    let world = world(ThreadLimits { max_changes: Some(5), ..NONE });
    let proxy = world.proxy(1);
    // Beginning and proposal are stored; the intent with its count is not.
    world.store.plan(std::iter::repeat_n(None, 2).chain(std::iter::repeat_n(Some(Fault::Full), 2)));
    assert_eq!(word(&make(&proxy, "write", 1)), "UNAVAILABLE");
    assert_eq!((world.tools.effects("write"), world.count("thread.counted")), (0, 0));
}
