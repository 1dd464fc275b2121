//! The same verbs as another user than root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use portcullis_sandbox::confined::{Fault, Root};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::bench_dir::{Bench, fault, p, skip};

const NOBODY: u32 = 65534;
const CAP: u64 = 1 << 20;

/// Runs `f` on a thread of its own which has become `nobody`; false when this process may not.
fn as_nobody(f: impl FnOnce() + Send) -> bool {
    if !geteuid().is_root() {
        return false;
    }
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                set_thread_groups(&[]).unwrap();
                let gid = Gid::from_raw(NOBODY);
                let uid = Uid::from_raw(NOBODY);
                set_thread_res_gid(gid, gid, gid).unwrap();
                set_thread_res_uid(uid, uid, uid).unwrap();
                f();
            })
            .join()
            .unwrap();
    });
    true
}

fn open_up(b: &Bench) {
    fs::set_permissions(b.inside.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_read_only_directory_takes_no_change() {
    let b = Bench::new();
    open_up(&b);
    fs::write(b.inside.join("f"), "kept").unwrap();
    fs::set_permissions(b.inside.join("f"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(&b.inside, fs::Permissions::from_mode(0o555)).unwrap();
    let ran = as_nobody(|| {
        let root = Root::open(&b.inside).unwrap();
        assert_eq!(root.read(&p("f"), CAP).unwrap(), b"kept");
        assert_eq!(fault(root.create(&p("new"), b"x")), Fault::Denied);
        assert_eq!(fault(root.create_dir(&p("new"))), Fault::Denied);
        assert_eq!(fault(root.replace(&p("f"), CAP, |_| true, b"x")), Fault::Denied);
        assert_eq!(fault(root.rename(&p("f"), &p("g"))), Fault::Denied);
        assert_eq!(fault(root.remove_file(&p("f"))), Fault::Denied);
    });
    if !ran {
        return skip("becoming another user needs root");
    }
    assert_eq!(fs::read(b.inside.join("f")).unwrap(), b"kept");
    b.assert_clean();
}

#[test]
fn every_verb_works_in_ones_own_directory() {
    let b = Bench::new();
    open_up(&b);
    chown(&b.inside, Some(NOBODY), Some(NOBODY)).ok();
    let ran = as_nobody(|| {
        let root = Root::open(&b.inside).unwrap();
        root.create(&p("f"), b"one").unwrap();
        root.replace(&p("f"), CAP, |now| now == b"one", b"two").unwrap();
        root.create_dir(&p("d")).unwrap();
        root.rename(&p("f"), &p("d/f")).unwrap();
        assert_eq!(root.read(&p("d/f"), CAP).unwrap(), b"two");
        root.remove_file(&p("d/f")).unwrap();
        root.remove_dir(&p("d")).unwrap();
    });
    if !ran {
        skip("becoming another user needs root");
    }
    b.assert_clean();
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced_through_its_directory() {
    let b = Bench::new();
    open_up(&b);
    chown(&b.inside, Some(NOBODY), Some(NOBODY)).ok();
    fs::write(b.inside.join("mine"), "x").unwrap();
    chown(b.inside.join("mine"), Some(NOBODY), Some(NOBODY)).ok();
    fs::set_permissions(b.inside.join("mine"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(b.inside.join("roots"), "x").unwrap();
    fs::set_permissions(b.inside.join("roots"), fs::Permissions::from_mode(0o666)).unwrap();
    let ran = as_nobody(|| {
        // Control: the directory would let it happen.
        fs::rename(b.inside.join("mine"), b.inside.join("control")).unwrap();
        fs::rename(b.inside.join("control"), b.inside.join("mine")).unwrap();
        let root = Root::open(&b.inside).unwrap();
        assert_eq!(fault(root.replace(&p("mine"), CAP, |_| true, b"y")), Fault::Denied);
        // Writable, but the owner could not be kept.
        assert_eq!(fault(root.replace(&p("roots"), CAP, |_| true, b"y")), Fault::Denied);
        fs::set_permissions(b.inside.join("mine"), fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(fault(root.read(&p("mine"), CAP)), Fault::Denied);
    });
    if !ran {
        skip("becoming another user needs root");
    }
    b.assert_clean();
}

#[test]
fn root_keeps_the_owner_of_what_it_replaces() {
    use std::os::unix::fs::MetadataExt;
    if !geteuid().is_root() {
        return skip("giving files away needs root");
    }
    let b = Bench::new();
    fs::write(b.inside.join("f"), "x").unwrap();
    chown(b.inside.join("f"), Some(NOBODY), Some(NOBODY)).unwrap();
    b.root.replace(&p("f"), CAP, |_| true, b"y").unwrap();
    let meta = fs::metadata(b.inside.join("f")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (NOBODY, NOBODY));
}
