//! Somebody else moves things while we work. Each race is run against a naive stand-in first, which must lose it.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portcullis_sandbox::confined::{Fault, RelPath};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::bench_dir::{Bench, fault, p};

const CAP: u64 = 1 << 20;
const ROUNDS: usize = 2_000;
/// How long a stand-in gets to lose a race that it loses in milliseconds.
const CONTROL: Duration = Duration::from_secs(60);

/// Runs `body` while another thread swaps the directory `d` with a link to the folder outside, again and again.
fn while_swapping(b: &Bench, body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let (dir, link) = (b.inside.join("d"), b.inside.join("l"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let stopper = StopOnDrop(&stop);
        body();
        drop(stopper);
    });
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn swap_bench() -> Bench {
    let b = Bench::new();
    fs::create_dir(b.inside.join("d")).unwrap();
    fs::write(b.inside.join("d/secret"), "inside").unwrap();
    symlink(&b.outside, b.inside.join("l")).unwrap();
    b
}

/// Looks first and opens afterwards.
fn naive_dir_is_plain(dir: &Path) -> bool {
    let plain = fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir());
    std::thread::yield_now();
    plain
}

#[test]
fn control_a_check_before_use_is_fooled() {
    let b = swap_bench();
    let dir = b.inside.join("d");
    let (mut read_outside, mut wrote_outside) = (false, false);
    while_swapping(&b, || {
        let end = Instant::now() + CONTROL;
        while !(read_outside && wrote_outside) && Instant::now() < end {
            if naive_dir_is_plain(&dir) {
                read_outside |= fs::read(dir.join("secret")).is_ok_and(|bytes| bytes == b"outside");
            }
            if naive_dir_is_plain(&dir) {
                let _ = fs::File::create_new(dir.join("planted"));
                wrote_outside = b.outside.join("planted").exists();
                let _ = fs::remove_file(dir.join("planted"));
            }
        }
    });
    assert!(read_outside, "the stand-in never read the outside file: the race does not race");
    assert!(wrote_outside, "the stand-in never wrote outside: the race does not race");
}

#[test]
fn a_swapped_directory_never_leads_outside() {
    let b = swap_bench();
    let (done, refused) = (Cell::new(0), Cell::new(0));
    let count = |result: Result<(), Fault>| match result {
        Ok(()) => done.set(done.get() + 1),
        Err(
            Fault::Link | Fault::NotFound | Fault::Changed | Fault::NotDirectory | Fault::Exists,
        ) => refused.set(refused.get() + 1),
        Err(other) => panic!("unexpected: {other}"),
    };
    while_swapping(&b, || {
        let end = Instant::now() + CONTROL;
        // A refusal is quick: on a busy machine all rounds may fit between two swaps, so both sides must be met.
        let met = || done.get() > 0 && refused.get() > 0;
        for round in (0..).take_while(|round| *round < ROUNDS || (!met() && Instant::now() < end)) {
            let read = b.root.read(&p("d/secret"), CAP);
            count(
                read.map(|bytes| assert!(bytes.starts_with(b"inside"), "read outside"))
                    .map_err(|e| e.fault),
            );
            let name = p(&format!("d/new-{round}"));
            count(b.root.create(&name, b"made").map_err(|e| e.fault));
            count(
                b.root.replace(&p("d/secret"), CAP, |_| true, b"inside again").map_err(|e| e.fault),
            );
            let moved = p(&format!("d/moved-{round}"));
            count(b.root.rename(&name, &moved).map_err(|e| e.fault));
            count(b.root.remove_file(&moved).map_err(|e| e.fault));
            count(b.root.list(&p("d"), 10).map(|_| ()).map_err(|e| e.fault));
        }
    });
    assert!(
        done.get() > 0 && refused.get() > 0,
        "both sides of the swap must be met: {done:?} done, {refused:?} refused"
    );
    assert_eq!(fs::read(b.outside.join("secret")).unwrap(), b"outside");
    assert_eq!(fs::read_dir(&b.outside).unwrap().count(), 1, "something was made outside");
    b.assert_clean();
}

#[test]
fn replace_gives_way_to_a_writer_that_came_first() {
    let b = Bench::new();
    let path = b.inside.join("f");
    fs::write(&path, "old").unwrap();
    // The check is the last moment that a test can hook into: the file changes while it is being judged.
    let same_file = b.root.replace(
        &p("f"),
        CAP,
        |now| {
            fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap()
                .write_all(b" and more")
                .unwrap();
            now == b"old"
        },
        b"new",
    );
    assert_eq!(fault(same_file), Fault::Changed);
    assert_eq!(fs::read(&path).unwrap(), b"old and more");

    let other_file = b.root.replace(
        &p("f"),
        CAP,
        |_| {
            fs::write(b.inside.join("g"), "theirs").unwrap();
            fs::rename(b.inside.join("g"), &path).unwrap();
            true
        },
        b"new",
    );
    assert_eq!(fault(other_file), Fault::Changed);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");

    let linked = b.root.replace(
        &p("f"),
        CAP,
        |_| {
            fs::hard_link(&path, b.outside.join("second")).unwrap();
            true
        },
        b"new",
    );
    assert_eq!(fault(linked), Fault::HardLinked);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    b.assert_clean();
}

#[test]
fn remove_gives_way_to_a_file_that_came_first() {
    let b = Bench::new();
    let path = b.inside.join("f");
    fs::write(&path, "old").unwrap();
    let other_file = b.root.remove_file_if(&p("f"), CAP, |_| {
        fs::write(b.inside.join("g"), "theirs").unwrap();
        fs::rename(b.inside.join("g"), &path).unwrap();
        true
    });
    assert_eq!(fault(other_file), Fault::Changed);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    b.assert_clean();
}

/// Counts acknowledged increments of a number in a file by several writers, through `step`.
fn increments(b: &Bench, step: impl Fn() -> bool + Sync) -> (u64, u64) {
    fs::write(b.inside.join("n"), "0").unwrap();
    let acknowledged = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..150).filter(|_| step()).count() as u64)).collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    let value = fs::read_to_string(b.inside.join("n")).unwrap().parse().unwrap();
    (acknowledged, value)
}

fn next(bytes: &[u8]) -> Option<String> {
    Some((std::str::from_utf8(bytes).ok()?.parse::<u64>().ok()? + 1).to_string())
}

#[test]
fn no_acknowledged_replacement_is_lost() {
    let b = Bench::new();
    let (acknowledged, value) = increments(&b, || {
        let Ok(now) = b.root.read(&p("n"), CAP) else { return false };
        let Some(new) = next(&now) else { return false };
        b.root.replace(&p("n"), CAP, |seen| seen == now, new.as_bytes()).is_ok()
    });
    assert!(acknowledged >= 150, "{acknowledged}");
    assert_eq!(value, acknowledged);
    assert_eq!(b.root.list(&RelPath::root(), 10).unwrap().leftovers, 0);

    // Control: rename over it, as most programs do, loses some.
    let control = Bench::new();
    let (acknowledged, value) = increments(&control, || {
        let path = control.inside.join("n");
        let Some(new) = fs::read(&path).ok().and_then(|now| next(&now)) else { return false };
        let temp = control.inside.join(format!("{:?}", std::thread::current().id()));
        std::thread::yield_now();
        fs::write(&temp, new).and_then(|()| fs::rename(&temp, &path)).is_ok()
    });
    assert!(value < acknowledged, "the stand-in lost nothing: the race does not race");
}

/// An outside writer swaps contents of its own into the file, and keeps what it took out. Meanwhile `step` replaces
/// the content and says which one it replaced. Gives the contents of the outside writer that are nowhere any more.
fn lost_to_replacement(b: &Bench, step: impl Fn() -> Option<Vec<u8>>) -> usize {
    let path = b.inside.join("f");
    fs::write(&path, "first").unwrap();
    let stop = AtomicBool::new(false);
    let mut put = 0_usize;
    let mut kept: HashSet<Vec<u8>> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut taken = HashSet::new();
            while !stop.load(Ordering::Relaxed) {
                let mine = b.outside.join("mine");
                fs::write(&mine, format!("outside {put}")).unwrap();
                // Where the name is missing for a moment, the next round does it.
                if renameat_with(CWD, &mine, CWD, &path, RenameFlags::EXCHANGE).is_ok() {
                    taken.insert(fs::read(&mine).unwrap());
                    put += 1;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            taken
        });
        let stopper = StopOnDrop(&stop);
        let replaced: Vec<_> = (0..ROUNDS).filter_map(|_| step()).collect();
        drop(stopper);
        writer.join().unwrap().into_iter().chain(replaced).collect()
    });
    // What is there at the end, and what a doubtful change left lying.
    for entry in fs::read_dir(&b.inside).unwrap() {
        kept.insert(fs::read(entry.unwrap().path()).unwrap());
    }
    (0..put).filter(|n| !kept.contains(format!("outside {n}").as_bytes())).count()
}

#[test]
fn what_an_outside_writer_put_there_is_never_lost() {
    let b = Bench::new();
    let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let lost = lost_to_replacement(&b, || {
        let mut accepted = Vec::new();
        let result = b.root.replace(
            &p("f"),
            CAP,
            |now| {
                accepted = now.to_vec();
                true
            },
            b"ours",
        );
        let counter = if result.is_ok() { &done } else { &refused };
        counter.fetch_add(1, Ordering::Relaxed);
        result.is_ok().then_some(accepted)
    });
    assert_eq!(lost, 0);
    assert!(done.into_inner() > 0 && refused.into_inner() > 0, "the race does not race");

    // Control: looking, then renaming over it.
    let control = Bench::new();
    let path = control.inside.join("f");
    let lost = lost_to_replacement(&control, || {
        let now = fs::read(&path).ok()?;
        let new = control.outside.join("new");
        fs::write(&new, "ours").ok()?;
        (fs::read(&path).ok()? == now).then_some(())?;
        // Any other program may be kept waiting here by its scheduler; this one always is.
        std::thread::sleep(Duration::from_micros(200));
        fs::rename(new, &path).is_ok().then_some(now)
    });
    assert!(lost > 0, "the stand-in lost nothing: the race does not race");
}
