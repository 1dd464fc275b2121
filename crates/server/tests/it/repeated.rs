//! The same call once more: changes are made once, reads as often as they are asked for.

use std::time::Duration;

use portcullis_domain::run::{EndReason, RunStatus};

use crate::world::{Does, World, host_call, in_thread, made, make, repeated, word};

#[test]
fn a_read_passes_and_may_be_repeated() {
    let world = World::new();
    let proxy = world.proxy(1);
    for times in 1..=3 {
        let reply = make(&proxy, "look", 1);
        assert_eq!((reply.text.as_str(), reply.failed), (r#"{"ok":true}"#, false));
        assert!(reply.structured.is_some());
        assert_eq!(world.tools.effects("look"), times);
    }
    let runs = world.runs();
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.reason == Some(EndReason::GoalCompleted)));
    assert!(runs.iter().all(|run| run.thread == runs[0].thread), "one thread");
    assert_eq!(world.count("thread.opened"), 1);
}

#[test]
fn a_change_that_is_repeated_blindly_is_made_once() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    for pid in [1, 1, 2] {
        let again = make(&world.proxy(pid), "write", 1);
        assert_eq!((word(&again), again.failed), ("DUPLICATE", true));
        assert!(again.text.contains(r#"{"ok":true}"#), "{}", again.text);
    }
    assert_eq!(world.tools.effects("write"), 1);
    // Another spelling of the same arguments is the same call.
    let mut spelled = host_call("write", 1);
    spelled.arguments = crate::world::object(r#"{"n":1e0}"#);
    assert_eq!(word(&made(&proxy, spelled)), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 1);
    // Other arguments are another call.
    assert_eq!(word(&make(&proxy, "write", 2)), "-");
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn a_change_that_its_receiver_reports_as_failed_is_made_once() {
    let world = World::new();
    let proxy = world.proxy(1);
    world.tools.first("write", Does::Refuse("declined".to_owned()));
    let failed = make(&proxy, "write", 1);
    assert!(failed.failed && failed.text.contains("declined"), "{failed:?}");
    let again = make(&proxy, "write", 1);
    assert_eq!((word(&again), again.failed), ("DUPLICATE", true));
    assert!(again.text.contains("declined"), "{}", again.text);
    assert_eq!(world.count("step.started"), 1);
}

#[test]
fn a_repeat_that_is_meant_is_made_once_for_each_word() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    for key in ["second", "third"] {
        assert_eq!(word(&made(&proxy, repeated("write", 1, key))), "-");
        assert_eq!(word(&made(&proxy, repeated("write", 1, key))), "DUPLICATE");
    }
    assert_eq!(world.tools.effects("write"), 3);
    assert_eq!(word(&made(&proxy, repeated("write", 1, ""))), "INVALID");
}

#[test]
fn after_the_window_the_same_change_is_made_again() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    world.clock.advance(Duration::from_mins(10).saturating_sub(Duration::from_micros(1)));
    assert_eq!(word(&make(&proxy, "write", 1)), "DUPLICATE");
    world.clock.advance(Duration::from_micros(1));
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    assert_eq!(word(&make(&proxy, "write", 1)), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 2);
}

#[test]
fn another_conversation_is_another_request() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    assert_eq!(word(&made(&proxy, in_thread("write", 1, "other"))), "-");
    assert_eq!(word(&made(&proxy, in_thread("write", 1, "other"))), "DUPLICATE");
    assert_eq!(word(&made(&proxy, in_thread("write", 1, "editor"))), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 2);
    // A connection that nobody names is a conversation of its own.
    let unnamed = || crate::world::World::settings(&world);
    let unnamed = portcullis_server::proxy::Settings { thread: None, ..unnamed() };
    let proxy = world.proxy_with(1, unnamed);
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    assert_eq!(world.count("thread.opened"), 3);
}

#[test]
fn what_changed_nothing_may_be_tried_again() {
    let world = World::new();
    let proxy = world.proxy(1);
    world.tools.first("write", Does::Fail);
    let failed = make(&proxy, "write", 1);
    assert_eq!((failed.text.as_str(), failed.failed), ("The tool failed: as planned", true));
    let run = world.runs().remove(0);
    assert_eq!((run.status, run.reason), (RunStatus::Failed, Some(EndReason::GoalFailed)));
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
    assert_eq!(world.tools.effects("write"), 2);
    // It ran, and only its answer could not be kept.
    world.tools.first("write", Does::no_json());
    assert!(make(&proxy, "write", 2).failed);
    assert_eq!(word(&make(&proxy, "write", 2)), "DUPLICATE");
    assert_eq!(world.tools.effects("write"), 3);
}

#[test]
fn twenty_calls_at_once_through_two_processes_are_one() {
    let world = World::new();
    let proxies = [world.proxy(1), world.proxy(2)];
    let words: Vec<String> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let proxy = &proxies[number % 2];
                scope.spawn(move || word(&make(proxy, "write", 1)).to_owned())
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(world.tools.effects("write"), 1, "{words:?}");
    assert_eq!(words.iter().filter(|word| *word == "-").count(), 1, "{words:?}");
    let others = words.iter().filter(|word| *word != "-");
    let fits = |word: &&String| matches!(word.as_str(), "IN_PROGRESS" | "DUPLICATE");
    assert!(others.clone().all(|word| fits(&word)), "{words:?}");
    assert_eq!(world.count("run.created"), 1);
    assert!(world.told.faults.lock().unwrap().is_empty());
}
