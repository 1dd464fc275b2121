//! The disk fails a sync, the process goes on, and then the power goes: what was answered as synced is there.
//!
//! After a sync that failed Linux takes what was written for clean, and no later sync writes it. So a log that goes on behind
//! it has a hole that shows only after a loss of power.

use portcullis_testkit::preload::{Call, Fault, Plan, Preload};
use portcullis_testkit::store_contract::fold;

use crate::sqlite::{fresh, open_at};
use crate::worker;

/// What a child answered, what it counted, and the events that a loss of power would leave.
struct Left {
    answered: u64,
    calls: usize,
    fired: usize,
    doubts: usize,
    events: u64,
}

/// What the first child does when an append is in doubt.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// It stores it again and goes on.
    GoesOn,
    /// It ends at once, and another one comes.
    Ends,
}

fn after(preload: &Preload, nth: usize, fault: Fault, then: Then) -> Left {
    let (backend, disk) = (fresh(), tempfile::tempdir().unwrap());
    let log = disk.path().join("log");
    let child = |task: &str, seed: u64, nth: usize, log: &std::path::Path| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let plan = Plan { call: Call::Sync, files: "portcullis.db", nth, fault };
        preload.plan(&mut command, plan, log);
        preload.keep_disk(&mut command, disk.path());
        let mut child = worker::command(command, task, seed, &backend.path()).spawn().unwrap();
        worker::release(&mut child);
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let mut out = match then {
        Then::GoesOn => child("doubtful", 5, nth, &log),
        Then::Ends => child("doubtful-once", 5, nth, &log),
    };
    let counted = Preload::counted(&log, Call::Sync);
    if then == Then::Ends {
        let second = child("doubtful", 50, 0, &disk.path().join("second"));
        assert!(second.contains("seq "), "the second process stored nothing");
        out.push_str(&second);
    }
    let answered = worker::numbers(&out, "seq ").last().copied().unwrap_or(0);
    let path = disk.path().join("portcullis.db");
    let doubts = worker::numbers(&out, "doubt ").len();
    let events = if answered == 0 && !path.exists() {
        0
    } else {
        let store = open_at(&path, Vec::new()).unwrap();
        fold::check(&store);
        portcullis_domain::ports::Ledgers::begin(&store).unwrap().count("events").unwrap()
    };
    Left { answered, calls: counted.calls, fired: counted.fired, doubts, events }
}

#[test]
fn what_was_answered_as_synced_survives_a_sync_that_failed_and_then_a_loss_of_power() {
    let Some(preload) = Preload::compile() else { return };
    let whole = after(&preload, 0, Fault::Short, Then::GoesOn);
    assert!(whole.answered > 30 && whole.events >= whole.answered, "{}", whole.answered);
    assert_eq!((whole.fired, whole.doubts), (0, 0));
    // A disk that comes back, and one that does so only for the next process.
    for (then, fault) in [(Then::GoesOn, Fault::Fail(5)), (Then::Ends, Fault::Stay(5))] {
        let mut doubts = 0;
        for nth in 1..=whole.calls {
            let left = after(&preload, nth, fault, then);
            assert!(left.fired >= 1, "sync {nth} was never made");
            assert!(
                left.events >= left.answered,
                "sync {nth} failed: {} answered, {} on the disk",
                left.answered,
                left.events
            );
            doubts += left.doubts;
        }
        // The control: appends met the failing sync, and others were answered after it.
        assert!(doubts > 10, "{doubts}");
    }
}
