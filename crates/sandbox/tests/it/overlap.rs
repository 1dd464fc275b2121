//! Roots that contain, or lie in, a folder which they must not.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use portcullis_sandbox::confined::Root;

use crate::bench_dir::skip;

#[track_caller]
fn check(root: &Path, other: &Path, expected: bool) {
    let root = Root::open(root).unwrap();
    assert_eq!(root.contains_or_lies_in(other).unwrap(), expected, "{}", other.display());
}

#[test]
fn overlap_is_seen_both_ways_and_through_links() {
    let folder = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(folder.path()).unwrap();
    let (state, files) = (base.join("state"), base.join("files"));
    fs::create_dir_all(state.join("deep/er")).unwrap();
    fs::create_dir_all(files.join("sub")).unwrap();
    fs::write(state.join("key"), "").unwrap();
    symlink(&state, base.join("alias")).unwrap();

    check(&files, &state, false);
    check(&state, &state, true);
    check(&base, &state, true);
    check(&state.join("deep/er"), &state, true);
    check(&base, &state.join("key"), true);
    check(&state.join("deep"), &state.join("key"), false);
    check(&base.join("alias/deep"), &state, true);
    check(&state.join("deep"), &base.join("alias"), true);
    check(&files, &base.join("alias"), false);
    check(Path::new("/"), &state, true);
}

#[test]
fn what_does_not_exist_yet_is_judged_by_where_it_would_be() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    check(&files, &files.join("state/new"), true);
    check(&files, &folder.path().join("state/new"), false);
    let root = Root::open(&files).unwrap();
    symlink(folder.path().join("nowhere"), files.join("dangling")).unwrap();
    for doubtful in [files.join("dangling"), files.join("../x"), "relative".into()] {
        assert!(root.contains_or_lies_in(&doubtful).is_err(), "{}", doubtful.display());
    }
}

#[test]
fn a_bind_mount_is_seen_through() {
    let folder = tempfile::tempdir().unwrap();
    let (state, files) = (folder.path().join("state"), folder.path().join("files"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&files).unwrap();
    let mounted = Command::new("mount").arg("--bind").arg(&state).arg(&files).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("a bind mount needs root");
    }
    let root = Root::open(&files).unwrap();
    let overlaps = root.contains_or_lies_in(&state);
    assert!(Command::new("umount").arg("-l").arg(&files).status().unwrap().success());
    assert!(overlaps.unwrap());
}
