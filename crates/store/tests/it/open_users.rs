//! Ownership, with a second user. Needs root; skips are printed and counted.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use portcullis_store::sqlite::error::OpenError;
use portcullis_store::sqlite::open::OpenMode;

use crate::child::{NOBODY, crash_elsewhere, open_elsewhere};
use crate::open::{MODES, existing, open_new, place, refusal};

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        portcullis_testkit::skip::skip("only root can give files to another user");
    }
    root
}

fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn another_users_database_is_refused() {
    if !is_root() {
        return;
    }
    let (_dir, path) = existing();
    give(&path);
    for mode in MODES {
        match refusal(&path, mode) {
            OpenError::ForeignOwner { owner, .. } => assert_eq!(owner, NOBODY),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn another_users_side_files_are_refused() {
    if !is_root() {
        return;
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        let (_dir, path) = existing();
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        std::fs::write(&file, b"").unwrap();
        set_mode(Path::new(&file), 0o600);
        give(Path::new(&file));
        for mode in MODES {
            assert_eq!(refusal(&path, mode).kind(), "foreign_owner", "{suffix}");
        }
    }
}

#[test]
fn another_users_folder_is_refused_and_roots_is_not() {
    if !is_root() {
        return;
    }
    let (dir, path) = existing();
    give(dir.path());
    for mode in MODES {
        assert_eq!(refusal(&path, mode).kind(), "folder_foreign_owner");
    }
    // Root's sticky folder, the shape of /tmp, with a file of nobody's own.
    let (dir, path) = place();
    set_mode(dir.path(), 0o1777);
    assert_eq!(open_elsewhere(&path, OpenMode::CreateOrOpen, 0, Some(NOBODY)), "ok");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(open_elsewhere(&path, OpenMode::Existing, 0o077, Some(NOBODY)), "ok");
    assert_eq!(refusal(&path, OpenMode::Existing).kind(), "foreign_owner");
}

#[test]
fn a_read_only_folder_can_be_read_but_not_written() {
    if !is_root() {
        return;
    }
    let (dir, path) = existing();
    set_mode(dir.path(), 0o555);
    // Root's file and folder, readable by all.
    set_mode(&path, 0o644);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "ok immutable");
    // The user's own file and folder.
    give(&path);
    give(dir.path());
    set_mode(&path, 0o600);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "ok immutable");
    set_mode(&path, 0o400);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "ok immutable");
    for mode in [OpenMode::CreateOrOpen, OpenMode::Existing] {
        assert_eq!(open_elsewhere(&path, mode, 0o022, Some(NOBODY)), "not_writable");
    }
    let missing = dir.path().join("missing.db");
    assert_eq!(
        open_elsewhere(&missing, OpenMode::CreateOrOpen, 0o022, Some(NOBODY)),
        "not_writable"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_odd_path_in_a_read_only_folder_is_that_file() {
    if !is_root() {
        return;
    }
    let (dir, plain) = existing();
    let path = dir.path().join("x?y#z%41 &vfs=none.db");
    std::fs::rename(plain, &path).unwrap();
    set_mode(&path, 0o644);
    set_mode(dir.path(), 0o555);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "ok immutable");
}

#[test]
fn a_read_only_folder_with_a_pending_log_is_refused() {
    if !is_root() {
        return;
    }
    let (dir, path) = existing();
    give(dir.path());
    give(&path);
    set_mode(dir.path(), 0o700);
    assert_eq!(crash_elsewhere(&path, 0o022, Some(NOBODY)), "ok");
    let shm = path.with_file_name("portcullis.db-shm");
    std::fs::remove_file(shm).unwrap();
    set_mode(dir.path(), 0o555);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "needs_recovery");
    set_mode(dir.path(), 0o700);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "ok");
}

#[test]
fn a_file_that_may_not_be_read_is_refused_as_such() {
    if !is_root() {
        return;
    }
    let (dir, path) = place();
    drop(open_new(&path));
    set_mode(dir.path(), 0o755);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "permission_denied");
    set_mode(dir.path(), 0o700);
    assert_eq!(open_elsewhere(&path, OpenMode::ReadOnly, 0o022, Some(NOBODY)), "permission_denied");
}
