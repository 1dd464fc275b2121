//! Calls that a person has to approve: held, collected once, and not asked about twice.

use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::question::QuestionKind;
use portcullis_mcp::Served as _;
use portcullis_server::proxy::Settings;
use portcullis_testkit::block_on;

use crate::world::{Ear, Gone, World, host_call, make, until, word};

#[test]
fn a_call_that_waits_is_made_after_its_approval_and_collected_once() {
    let world = World::new();
    let proxy = world.proxy(1);
    let waits = make(&proxy, "send", 1);
    assert_eq!((word(&waits), waits.failed), ("PENDING_APPROVAL", false));
    let question = world.question();
    let told = world.told.asked.lock().unwrap().clone();
    assert_eq!(told, [(question.id, QuestionKind::Approval, "send".to_owned())]);
    // Asking again asks nobody, and makes nothing.
    assert_eq!(word(&make(&world.proxy(2), "send", 1)), "PENDING_APPROVAL");
    assert_eq!((world.tools.effects("send"), world.count("question.asked")), (0, 1));
    world.answer(&question, Answer::Approve, None);
    // An approval alone makes nothing.
    assert_eq!(world.tools.effects("send"), 0);
    let collected = make(&world.proxy(2), "send", 1);
    assert_eq!((collected.text.as_str(), collected.failed), (r#"{"ok":true}"#, false));
    assert_eq!(word(&make(&proxy, "send", 1)), "DUPLICATE");
    assert_eq!((world.tools.effects("send"), world.count("approval.used")), (1, 1));
}

#[test]
fn a_no_is_told_with_its_words_and_holds_for_a_while() {
    let world = World::new();
    let proxy = world.proxy(1);
    make(&proxy, "send", 1);
    world.answer(&world.question(), Answer::Reject, Some("not on a Friday"));
    for _ in 0..2 {
        let told = make(&proxy, "send", 1);
        assert_eq!((word(&told), told.failed), ("REJECTED", true));
        assert!(told.text.contains("not on a Friday"), "{}", told.text);
    }
    assert_eq!(world.count("question.asked"), 1);
    world.clock.advance(Duration::from_mins(10));
    assert_eq!(word(&make(&proxy, "send", 1)), "PENDING_APPROVAL");
    assert_eq!((world.tools.effects("send"), world.count("question.asked")), (0, 2));
}

#[test]
fn a_question_that_nobody_answers_expires() {
    let world = World::new();
    let settings = Settings { question_ttl_ms: Some(60_000), ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    make(&proxy, "send", 1);
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(word(&make(&proxy, "send", 1)), "EXPIRED");
    assert_eq!(world.tools.effects("send"), 0);
}

#[test]
fn an_approval_during_the_hold_is_collected_at_once() {
    let world = World::new();
    let settings = Settings { hold: Duration::from_secs(15), ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    let ear = Arc::new(Ear::default());
    let held = {
        let (proxy, ear) = (Arc::clone(&proxy), Arc::clone(&ear));
        std::thread::spawn(move || block_on(proxy.call(host_call("send", 1), ear.as_ref())))
    };
    until(|| !ear.notices.lock().unwrap().is_empty());
    // Another process writes: nothing wakes this one but its next look.
    world.answer(&world.question(), Answer::Approve, None);
    // Time passes only while it looks: a lease must not end because a thread of the test was slow.
    let look = Duration::from_millis(200);
    until(|| {
        if let Some(wake) = world.clock.next_wake().filter(|wake| *wake <= look) {
            world.clock.advance(wake);
        }
        held.is_finished()
    });
    let reply = held.join().unwrap();
    assert_eq!((reply.text.as_str(), reply.failed), (r#"{"ok":true}"#, false));
    assert_eq!(world.tools.effects("send"), 1);
    let notices = ear.notices.lock().unwrap().clone();
    assert_eq!(notices[0].message, Some("waiting for a person to approve the call"));
    assert!(notices.windows(2).all(|pair| pair[0].so_far < pair[1].so_far), "{notices:?}");
}

#[test]
fn a_hold_ends_by_itself_and_when_nobody_waits() {
    let world = World::new();
    let settings = Settings { hold: Duration::from_secs(15), ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    // The clock stands still: only that the host is gone ends this one.
    let gone = block_on(proxy.call(host_call("send", 1), &Gone));
    assert_eq!(word(&gone), "PENDING_APPROVAL");
    let held = {
        let proxy = Arc::clone(&proxy);
        std::thread::spawn(move || make(&proxy, "send", 1))
    };
    let mut waited = Duration::ZERO;
    until(|| {
        world.clock.advance(Duration::from_millis(200));
        waited += Duration::from_millis(200);
        held.is_finished()
    });
    assert_eq!(word(&held.join().unwrap()), "PENDING_APPROVAL");
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    assert_eq!(world.count("question.asked"), 1, "what is waited for is still asked");
}

#[test]
fn so_many_questions_wait_and_what_asks_nobody_goes_on() {
    let world = World::new();
    let settings = Settings { max_pending: 2, ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    assert_eq!(word(&make(&proxy, "send", 1)), "PENDING_APPROVAL");
    assert_eq!(word(&make(&proxy, "send", 2)), "PENDING_APPROVAL");
    let full = make(&proxy, "send", 3);
    assert_eq!((word(&full), full.failed), ("BLOCKED", true));
    assert_eq!((word(&make(&proxy, "write", 1)), word(&make(&proxy, "look", 1))), ("-", "-"));
    assert_eq!(world.open_questions().len(), 2);
    // One is decided: there is room again.
    world.answer(&world.open_questions()[0], Answer::Reject, None);
    assert_eq!(word(&make(&proxy, "send", 3)), "PENDING_APPROVAL");
}

#[test]
fn calls_side_by_side_ask_no_more_than_one_after_the_other() {
    let world = World::new();
    let settings = Settings { max_pending: 2, ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    // The thread is there, so that no call has to look anew.
    assert_eq!(word(&make(&proxy, "look", 1)), "-");
    let begin = Arc::new(std::sync::Barrier::new(8));
    let calls: Vec<_> = (0..8)
        .map(|n| {
            let (proxy, begin) = (Arc::clone(&proxy), Arc::clone(&begin));
            std::thread::spawn(move || {
                begin.wait();
                make(&proxy, "send", n)
            })
        })
        .collect();
    let told: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
    let times = |wanted| told.iter().filter(|reply| word(reply) == wanted).count();
    assert_eq!((times("PENDING_APPROVAL"), times("BLOCKED")), (2, 6), "{told:?}");
    assert_eq!(world.open_questions().len(), 2);
}

#[test]
fn so_many_calls_are_on_their_way_and_one_more_is_not_taken() {
    let world = World::new();
    let settings = Settings { hold: Duration::from_secs(15), max_calls: 1, ..world.settings() };
    let proxy = world.proxy_with(1, settings);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    let held = {
        let proxy = Arc::clone(&proxy);
        std::thread::spawn(move || make(&proxy, "send", 1))
    };
    until(|| !world.open_questions().is_empty());
    assert_eq!(word(&make(&proxy, "write", 2)), "UNAVAILABLE");
    // Closing ends the hold, and the clock stands still.
    proxy.close();
    assert_eq!(word(&held.join().unwrap()), "PENDING_APPROVAL");
    assert_eq!(world.tools.effects("write"), 1);
}

#[test]
fn a_proxy_that_closes_takes_no_more_calls() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    proxy.close();
    assert_eq!(word(&make(&proxy, "write", 2)), "UNAVAILABLE");
    assert_eq!(world.tools.effects("write"), 1);
    block_on(proxy.finished());
}
