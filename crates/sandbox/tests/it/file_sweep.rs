//! Sweeping removes what a killed writer left, and nothing that could be anything else.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_sandbox::confined::{RelPath, Root, Swept, TEMP_PREFIX};
use rustix::fs::{FlockOperation, flock};

use crate::bench_dir::{Bench, p};

const RANDOM: &str = "0123456789abcdef0123456789abcdef";

/// The name under which a killed writer would have left the file.
fn claimed(file: &Path) -> String {
    format!("{TEMP_PREFIX}{RANDOM}-{}", fs::symlink_metadata(file).unwrap().ino())
}

/// A half-written file in this folder, as a killed writer leaves it.
fn leave(folder: &Path) -> PathBuf {
    let plain = folder.join("half");
    fs::write(&plain, "half of a fi").unwrap();
    let left = folder.join(claimed(&plain));
    fs::rename(&plain, &left).unwrap();
    left
}

fn leftovers(root: &Root, dir: &RelPath) -> usize {
    root.list(dir, 100).unwrap().leftovers
}

#[test]
fn what_a_killed_writer_left_is_removed_wherever_it_lies() {
    let bench = Bench::new();
    let deep = bench.inside.join("a/b");
    fs::create_dir_all(&deep).unwrap();
    fs::write(bench.inside.join("a/kept"), "kept").unwrap();
    leave(&bench.inside);
    leave(&deep);
    assert_eq!(leftovers(&bench.root, &p("a/b")), 1, "control");
    assert_eq!(bench.root.sweep(), Swept { removed: 2, cut: false });
    bench.assert_clean();
    assert_eq!(fs::read(bench.inside.join("a/kept")).unwrap(), b"kept");
    assert_eq!(bench.root.sweep(), Swept::default());
}

#[test]
fn a_file_that_somebody_still_writes_stays_until_they_are_gone() {
    let bench = Bench::new();
    let writer = fs::File::open(leave(&bench.inside)).unwrap();
    flock(&writer, FlockOperation::LockExclusive).unwrap();
    assert_eq!(bench.root.sweep().removed, 0);
    drop(writer);
    assert_eq!(bench.root.sweep().removed, 1);
}

/// Everything that a hostile program with rights in the folder could put under such a name in the hope that something
/// else goes with it.
#[test]
fn whatever_is_not_that_very_file_stays() {
    let bench = Bench::new();
    let at = |name: &str| bench.inside.join(name);
    let secret = bench.outside.join("secret");
    let of_secret = claimed(&secret);
    // A link to a file outside, and a second name for one, both under the name that fits its inode.
    symlink(&secret, at(&of_secret)).unwrap();
    fs::hard_link(&secret, at(&of_secret.replace("0123", "4567"))).unwrap();
    // Another file than the name says; names that are none.
    fs::write(at(&format!("{TEMP_PREFIX}{RANDOM}-1")), "x").unwrap();
    fs::write(at(&format!("{TEMP_PREFIX}{RANDOM}")), "set aside").unwrap();
    for spelling in ["-0", "--", "short-"] {
        let file = at("made");
        fs::write(&file, "x").unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let (random, number) = match spelling {
            "-0" => (RANDOM.to_owned(), format!("0{inode}")),
            "--" => (RANDOM.to_owned(), format!("+{inode}")),
            _ => ("short".to_owned(), inode.to_string()),
        };
        fs::rename(&file, at(&format!("{TEMP_PREFIX}{random}-{number}"))).unwrap();
    }
    // A folder with something in it, and a folder behind a link.
    let folder = at("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("in"), "x").unwrap();
    fs::rename(&folder, at(&claimed(&folder).replace("0123", "89ab"))).unwrap();
    let beyond = leave(&bench.outside);
    symlink(&bench.outside, at("beyond")).unwrap();

    let before = leftovers(&bench.root, &RelPath::root());
    assert_eq!(before, 8);
    assert_eq!(bench.root.sweep(), Swept::default());
    assert_eq!(leftovers(&bench.root, &RelPath::root()), before);
    assert_eq!(fs::read(&secret).unwrap(), b"outside");
    assert!(beyond.exists());
}

#[test]
fn a_file_of_another_user_stays() {
    let bench = Bench::new();
    let left = leave(&bench.inside);
    if std::os::unix::fs::chown(&left, Some(65_534), None).is_err() {
        return crate::bench_dir::skip("only root can give a file away");
    }
    assert_eq!(bench.root.sweep().removed, 0);
    std::os::unix::fs::chown(&left, Some(0), None).unwrap();
    assert_eq!(bench.root.sweep().removed, 1, "control");
}

#[test]
fn no_caller_can_name_what_a_sweep_would_take() {
    let bench = Bench::new();
    fs::write(bench.inside.join("a"), "mine").unwrap();
    let name = claimed(&bench.inside.join("a"));
    assert!(RelPath::parse(&name).is_err());
    assert!(RelPath::root().join(&name).is_err());
}

/// Says that the writer is done, also when it has failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn sweeping_disturbs_no_writer() {
    let bench = Bench::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = Root::open(&bench.inside).unwrap();
            while !done.load(Ordering::Relaxed) {
                other.sweep();
            }
        });
        let _done = Done(&done);
        for n in 0..300 {
            let path = p(&format!("f{n}"));
            bench.root.create(&path, b"first").unwrap();
            bench.root.replace(&path, 100, |now| now == b"first", b"second").unwrap();
            assert_eq!(bench.root.read(&path, 100).unwrap(), b"second");
        }
    });
    bench.assert_clean();
}
