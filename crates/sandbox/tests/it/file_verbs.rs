//! What each verb does to ordinary files.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;

use portcullis_sandbox::confined::{Fault, Kind, RelPath, Root, WalkLimits};

use crate::bench_dir::{Bench, fault, p};

const CAP: u64 = 1 << 20;

#[test]
fn list_is_sorted_bounded_and_says_when_it_was_cut() {
    let b = Bench::new();
    for name in ["c", "a", "b"] {
        fs::write(b.inside.join(name), name.repeat(3)).unwrap();
    }
    fs::create_dir(b.inside.join("d")).unwrap();
    fs::write(b.inside.join("d/inner"), "").unwrap();
    fs::write(b.inside.join(".portcullis-tmp-0"), "").unwrap();

    let all = b.root.list(&RelPath::root(), 10).unwrap();
    let seen: Vec<_> =
        all.entries.iter().map(|e| (e.name.to_str().unwrap(), e.stat.kind, e.stat.size)).collect();
    assert_eq!(
        seen,
        [
            ("a", Kind::File, 3),
            ("b", Kind::File, 3),
            ("c", Kind::File, 3),
            ("d", Kind::Directory, 0)
        ]
    );
    assert_eq!((all.cut, all.leftovers), (false, 1));

    let two = b.root.list(&RelPath::root(), 2).unwrap();
    assert_eq!(
        two.entries.iter().map(|e| e.name.to_str().unwrap()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert!(two.cut);
    assert_eq!(b.root.list(&p("d"), 10).unwrap().entries.len(), 1);
    assert_eq!(fault(b.root.list(&p("a"), 10)), Fault::NotDirectory);
    assert_eq!(fault(b.root.list(&p("none"), 10)), Fault::NotFound);
}

#[test]
fn read_gives_the_bytes_up_to_the_cap() {
    let b = Bench::new();
    fs::write(b.inside.join("f"), [0, 159, 146, 150, 10]).unwrap();
    fs::write(b.inside.join("empty"), "").unwrap();
    assert_eq!(b.root.read(&p("f"), 5).unwrap(), [0, 159, 146, 150, 10]);
    assert!(b.root.read(&p("empty"), 0).unwrap().is_empty());
    assert_eq!(fault(b.root.read(&p("f"), 4)), Fault::TooLarge { size: 5, cap: 4 });
    assert_eq!(fault(b.root.read(&p("none"), 4)), Fault::NotFound);
    assert_eq!(fault(b.root.read(&p("f/x"), 4)), Fault::NotDirectory);
    assert_eq!(fault(b.root.read(&RelPath::root(), 4)), Fault::NotRegular(Kind::Directory));
}

#[test]
fn a_huge_sparse_file_is_refused_before_it_is_read() {
    let b = Bench::new();
    let file = fs::File::create(b.inside.join("huge")).unwrap();
    file.set_len(1 << 40).unwrap();
    assert_eq!(fault(b.root.read(&p("huge"), CAP)), Fault::TooLarge { size: 1 << 40, cap: CAP });
    assert_eq!(
        fault(b.root.replace(&p("huge"), CAP, |_| true, b"x")),
        Fault::TooLarge { size: 1 << 40, cap: CAP }
    );
}

#[test]
fn a_file_whose_size_is_a_lie_is_bounded_while_it_is_read() {
    // Files in /proc claim size 0.
    let root = Root::open("/proc/self".as_ref()).unwrap();
    assert!(root.read(&p("status"), CAP).unwrap().starts_with(b"Name:"));
    assert!(matches!(fault(root.read(&p("status"), 10)), Fault::TooLarge { cap: 10, .. }));
}

#[test]
fn create_makes_a_new_file_and_never_overwrites() {
    let b = Bench::new();
    fs::create_dir(b.inside.join("d")).unwrap();
    b.root.create(&p("d/new"), b"one").unwrap();
    assert_eq!(fs::read(b.inside.join("d/new")).unwrap(), b"one");
    assert_eq!(fault(b.root.create(&p("d/new"), b"two")), Fault::Exists);
    assert_eq!(fs::read(b.inside.join("d/new")).unwrap(), b"one");
    assert_eq!(fault(b.root.create(&p("d"), b"")), Fault::Exists);
    assert_eq!(fault(b.root.create(&p("missing/new"), b"")), Fault::NotFound);
    assert_eq!(fault(b.root.create(&RelPath::root(), b"")), Fault::BadName);
    b.assert_clean();
}

#[test]
fn many_creators_of_one_name_make_it_once() {
    let b = Bench::new();
    let made = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|n| {
                scope.spawn({
                    let root = &b.root;
                    move || root.create(&p("one"), format!("{n}").as_bytes()).is_ok()
                })
            })
            .collect();
        workers.into_iter().map(|w| usize::from(w.join().unwrap())).sum::<usize>()
    });
    assert_eq!(made, 1);
    b.assert_clean();
}

#[test]
fn replace_swaps_content_and_keeps_permissions() {
    let b = Bench::new();
    let path = b.inside.join("f");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    b.root.replace(&p("f"), CAP, |now| now == b"old", b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(fault(b.root.replace(&p("f"), CAP, |now| now == b"old", b"x")), Fault::Changed);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fault(b.root.replace(&p("none"), CAP, |_| true, b"x")), Fault::NotFound);
    b.assert_clean();
}

#[test]
fn rename_moves_files_and_directories_and_never_onto_a_name() {
    let b = Bench::new();
    fs::write(b.inside.join("a"), "a").unwrap();
    fs::write(b.inside.join("b"), "b").unwrap();
    fs::create_dir(b.inside.join("d")).unwrap();
    assert_eq!(fault(b.root.rename(&p("a"), &p("b"))), Fault::Exists);
    assert_eq!(fs::read(b.inside.join("b")).unwrap(), b"b");
    assert_eq!(fault(b.root.rename(&p("a"), &p("a"))), Fault::Exists);
    b.root.rename(&p("a"), &p("d/a")).unwrap();
    assert_eq!(fs::read(b.inside.join("d/a")).unwrap(), b"a");
    assert!(!b.inside.join("a").exists());
    b.root.rename(&p("d"), &p("e")).unwrap();
    assert_eq!(fs::read(b.inside.join("e/a")).unwrap(), b"a");
    assert_eq!(fault(b.root.rename(&p("e"), &p("e/f"))), Fault::IntoItself);
    assert_eq!(fault(b.root.rename(&p("none"), &p("x"))), Fault::NotFound);
    let error = b.root.rename(&p("b"), &p("gone/x")).unwrap_err();
    assert_eq!((error.path.as_str(), error.fault), ("gone/x", Fault::NotFound));
}

#[test]
fn removing_takes_what_was_named_and_nothing_else() {
    let b = Bench::new();
    fs::write(b.inside.join("a"), "a").unwrap();
    fs::create_dir_all(b.inside.join("d/e")).unwrap();
    assert_eq!(fault(b.root.remove_file_if(&p("a"), CAP, |now| now == b"b")), Fault::Changed);
    assert!(b.inside.join("a").exists());
    b.root.remove_file_if(&p("a"), CAP, |now| now == b"a").unwrap();
    assert!(!b.inside.join("a").exists());
    fs::write(b.inside.join("a"), "a").unwrap();
    b.root.remove_file(&p("a")).unwrap();
    assert!(!b.inside.join("a").exists());
    assert_eq!(fault(b.root.remove_file(&p("a"))), Fault::NotFound);
    assert_eq!(fault(b.root.remove_file(&p("d"))), Fault::NotRegular(Kind::Directory));
    assert_eq!(fault(b.root.remove_dir(&p("d"))), Fault::NotEmpty);
    b.root.remove_dir(&p("d/e")).unwrap();
    b.root.remove_dir(&p("d")).unwrap();
    assert_eq!(fault(b.root.remove_dir(&p("d"))), Fault::NotFound);
    b.assert_clean();
}

#[test]
fn directories_are_made_once() {
    let b = Bench::new();
    b.root.create_dir(&p("d")).unwrap();
    b.root.create_dir(&p("d/e")).unwrap();
    assert!(b.inside.join("d/e").is_dir());
    assert_eq!(fault(b.root.create_dir(&p("d"))), Fault::Exists);
    assert_eq!(fault(b.root.create_dir(&p("x/y"))), Fault::NotFound);
}

#[test]
fn stat_looks_without_opening() {
    let b = Bench::new();
    fs::write(b.inside.join("f"), "1234").unwrap();
    std::os::unix::fs::symlink("f", b.inside.join("l")).unwrap();
    let stat = b.root.stat(&p("f")).unwrap();
    assert_eq!((stat.kind, stat.size, stat.links), (Kind::File, 4, 1));
    assert_eq!(b.root.stat(&p("l")).unwrap().kind, Kind::Link);
    assert_eq!(b.root.stat(&RelPath::root()).unwrap().kind, Kind::Directory);
}

#[test]
fn walk_yields_plain_files_within_its_bounds() {
    let b = Bench::new();
    fs::create_dir_all(b.inside.join("d/e")).unwrap();
    for (name, size) in [("z", 1), ("d/b", 2), ("d/e/deep", 3), ("big", 100)] {
        fs::write(b.inside.join(name), vec![b'x'; size]).unwrap();
    }
    std::os::unix::fs::symlink(&b.outside, b.inside.join("link")).unwrap();
    let limits = WalkLimits {
        max_files: 10,
        max_entries: 100,
        max_total_bytes: 1000,
        max_file_bytes: 50,
        max_depth: 8,
    };
    let walk = |limits| {
        let mut seen = Vec::new();
        let summary = b
            .root
            .walk(&RelPath::root(), limits, |path, _| {
                seen.push(path.as_str().to_owned());
                ControlFlow::Continue(())
            })
            .unwrap();
        (seen, summary)
    };
    let (seen, summary) = walk(limits);
    assert_eq!(seen, ["z", "d/b", "d/e/deep"]);
    assert_eq!(
        (summary.files, summary.too_large, summary.not_plain, summary.cut),
        (3, 1, 1, false)
    );

    assert!(walk(WalkLimits { max_files: 2, ..limits }).1.cut);
    assert!(walk(WalkLimits { max_total_bytes: 5, ..limits }).1.cut);
    assert!(walk(WalkLimits { max_entries: 3, ..limits }).1.cut);
    let (seen, summary) = walk(WalkLimits { max_depth: 1, ..limits });
    assert_eq!((seen, summary.cut), (vec!["z".to_owned(), "d/b".to_owned()], true));
}

#[test]
fn the_held_directory_stays_the_same_when_its_name_moves_on() {
    let b = Bench::new();
    fs::write(b.inside.join("f"), "held").unwrap();
    fs::rename(&b.inside, b.inside.with_file_name("moved")).unwrap();
    std::os::unix::fs::symlink(&b.outside, &b.inside).unwrap();
    assert_eq!(b.root.read(&p("f"), CAP).unwrap(), b"held");
    assert_eq!(fault(b.root.read(&p("secret"), CAP)), Fault::NotFound);
}
