//! Several at once: exactly one wins, and the others are told that nothing happened.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use portcullis_canon::Object;
use portcullis_domain::ports::ToolFailure;

use crate::bench::{Bench, digest};

const THREADS: usize = 8;
const ROUNDS: usize = 50;

/// Calls of each thread at the same moment; how many succeeded. The others must be certain failures.
fn at_once(bench: &Bench, tool: &str, arguments: impl Fn(usize) -> Object + Sync) -> usize {
    let (barrier, won) = (Barrier::new(THREADS), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, won, arguments) = (&barrier, &won, &arguments);
            scope.spawn(move || {
                barrier.wait();
                match bench.unchecked(tool, arguments(thread)) {
                    Ok(_) => {
                        won.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(ToolFailure::NothingHappened { .. }) => {}
                    Err(other) => panic!("{tool}: {other:?}"),
                }
            });
        }
    });
    won.into_inner()
}

fn object<const N: usize>(members: [(&str, String); N]) -> Object {
    members.into_iter().collect()
}

#[test]
fn one_creator_wins_and_its_content_is_whole() {
    let bench = Bench::new();
    for round in 0..ROUNDS {
        let path = format!("f{round}");
        let content = |thread: usize| thread.to_string().repeat(20_000);
        let won = at_once(&bench, "files.create", |thread| {
            object([("path", path.clone()), ("content", content(thread))])
        });
        assert_eq!(won, 1);
        let there = String::from_utf8(bench.on_disk(&path)).unwrap();
        assert!((0..THREADS).any(|thread| there == content(thread)));
    }
    bench.assert_clean();
}

#[test]
fn one_replacement_of_the_same_content_wins() {
    let bench = Bench::new();
    for _ in 0..ROUNDS {
        bench.put("f", "before");
        let won = at_once(&bench, "files.replace", |thread| {
            let expect = ("expect", digest("before"));
            object([("path", "f".to_owned()), expect, ("content", format!("after {thread}"))])
        });
        assert_eq!(won, 1);
        assert!(bench.on_disk("f").starts_with(b"after "));
    }
    bench.assert_clean();
}

#[test]
fn one_mover_and_one_deleter_win() {
    let bench = Bench::new();
    for round in 0..ROUNDS {
        bench.put("f", "x");
        let won = at_once(&bench, "files.move", |thread| {
            object([("from", "f".to_owned()), ("to", format!("g{thread}"))])
        });
        assert_eq!(won, 1, "round {round}");
        let there: Vec<_> =
            (0..THREADS).filter(|t| bench.inside.join(format!("g{t}")).exists()).collect();
        assert_eq!(there.len(), 1);
        let path = format!("g{}", there[0]);
        let won = at_once(&bench, "files.delete", |_| object([("path", path.clone())]));
        assert_eq!(won, 1, "round {round}");
        assert!(!bench.inside.join(&path).exists());
    }
    bench.assert_clean();
}

/// Ends the other thread when the test ends, in whichever way.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_folder_that_becomes_a_link_leads_nowhere() {
    let bench = Bench::new();
    bench.put("d/secret", "inside");
    let (stop, fooled) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (d, aside, link) =
                (bench.inside.join("d"), bench.inside.join("aside"), bench.inside.join("link"));
            symlink(&bench.outside, &link).unwrap();
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&d, &aside).unwrap();
                fs::rename(&link, &d).unwrap();
                std::thread::yield_now();
                fs::rename(&d, &link).unwrap();
                fs::rename(&aside, &d).unwrap();
            }
        });
        let _stops = Stops(&stop);
        let mut round = 0;
        // Until the naive look was fooled too, so that the race is known to be there.
        while round < 2_000 || (fooled.load(Ordering::Relaxed) == 0 && round < 200_000) {
            round += 1;
            if fs::read(bench.inside.join("d/secret")).is_ok_and(|bytes| bytes == b"outside") {
                fooled.fetch_add(1, Ordering::Relaxed);
            }
            let path = || ("path", "d/secret".to_owned());
            if let Ok(output) = bench.unchecked("files.read", object([path()])) {
                assert!(!String::from_utf8(output.content).unwrap().contains("outside"));
            }
            let expect = ("expect", digest("outside"));
            let content = ("content", "overwritten".to_owned());
            let replaced = bench.unchecked("files.replace", object([path(), expect, content]));
            assert!(matches!(replaced, Err(ToolFailure::NothingHappened { .. })), "{replaced:?}");
        }
    });
    assert!(fooled.into_inner() > 0, "the control was never fooled: this machine does not race");
    assert_eq!(fs::read(bench.outside.join("secret")).unwrap(), b"outside");
}
