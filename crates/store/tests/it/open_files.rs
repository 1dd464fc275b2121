//! The files and folders that are refused, and the modes that files get.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_store::sqlite::error::OpenError;
use portcullis_store::sqlite::open::{OpenMode, open};

use crate::child::{crash_elsewhere, open_elsewhere};
use crate::open::{MODES, SCHEMA, existing, open_new, place, refusal};

const SIDES: [&str; 3] = ["-wal", "-shm", "-journal"];

fn side(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn new_files_are_the_owners_alone_under_any_umask() {
    for umask in [0, 0o022, 0o077, 0o277, 0o777] {
        let (_dir, path) = place();
        assert_eq!(open_elsewhere(&path, OpenMode::CreateOrOpen, umask, None), "ok", "{umask:o}");
        assert_eq!(mode_of(&path), 0o600, "{umask:o}");
    }
    // Side files live only while the database is open.
    let (_dir, path) = place();
    let opened = open_new(&path);
    opened.conn.execute("INSERT INTO thing (name) VALUES ('x')", []).unwrap();
    for suffix in ["-wal", "-shm"] {
        assert_eq!(mode_of(&side(&path, suffix)), 0o600, "{suffix}");
    }
}

#[test]
fn side_files_inherit_the_mode_under_any_umask() {
    for umask in [0, 0o077] {
        let (_dir, path) = place();
        assert_eq!(open_elsewhere(&path, OpenMode::CreateOrOpen, umask, None), "ok");
        assert_eq!(crash_elsewhere(&path, umask, None), "ok");
        for suffix in ["-wal", "-shm"] {
            assert_eq!(mode_of(&side(&path, suffix)), 0o600, "{suffix} {umask:o}");
        }
    }
}

#[test]
fn a_database_that_others_may_write_is_refused() {
    for mode in [0o660, 0o620, 0o602, 0o666, 0o622] {
        let (_dir, path) = existing();
        set_mode(&path, mode);
        for how in MODES {
            match refusal(&path, how) {
                OpenError::WritableByOthers { mode: found, .. } => assert_eq!(found, mode),
                other => panic!("{other}"),
            }
        }
        assert_eq!(mode_of(&path), mode, "a refused file keeps its mode");
    }
}

#[test]
fn a_database_that_others_may_read_is_tightened_by_a_writer_only() {
    for mode in [0o644, 0o640, 0o604, 0o755] {
        let (_dir, path) = existing();
        set_mode(&path, mode);
        open(&path, OpenMode::ReadOnly, SCHEMA).unwrap();
        assert_eq!(mode_of(&path), mode);
        open(&path, OpenMode::Existing, SCHEMA).unwrap();
        assert_eq!(mode_of(&path), 0o600);
    }
}

#[test]
fn side_files_that_others_may_write_are_refused_and_readable_ones_tightened() {
    for suffix in ["-wal", "-shm"] {
        let (_dir, path) = place();
        let _holder = open_new(&path);
        let file = side(&path, suffix);
        set_mode(&file, 0o660);
        for how in MODES {
            assert_eq!(refusal(&path, how).kind(), "writable_by_others", "{suffix}");
        }
        set_mode(&file, 0o644);
        open(&path, OpenMode::Existing, SCHEMA).unwrap();
        assert_eq!(mode_of(&file), 0o600);
    }
}

#[test]
fn links_are_refused_in_every_place_of_a_file() {
    for how in MODES {
        let (dir, path) = existing();
        let link = dir.path().join("link.db");
        symlink(&path, &link).unwrap();
        assert_eq!(refusal(&link, how).kind(), "symlink");
        let dangling = dir.path().join("dangling.db");
        symlink(dir.path().join("nowhere"), &dangling).unwrap();
        assert_eq!(refusal(&dangling, how).kind(), "symlink");
        assert!(!dir.path().join("nowhere").exists());
        for suffix in SIDES {
            let (dir, path) = existing();
            symlink(dir.path().join("target"), side(&path, suffix)).unwrap();
            assert_eq!(refusal(&path, how).kind(), "symlink", "{suffix}");
            assert!(!dir.path().join("target").exists());
        }
    }
}

#[test]
fn odd_files_are_refused_without_waiting_for_them() {
    for how in MODES {
        let (dir, path) = place();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(refusal(&path, how).kind(), "not_regular");
        let pipe = dir.path().join("pipe.db");
        fifo(&pipe);
        assert_eq!(refusal(&pipe, how).kind(), "not_regular");
        for suffix in SIDES {
            let (_dir, path) = existing();
            fifo(&side(&path, suffix));
            assert_eq!(refusal(&path, how).kind(), "not_regular", "{suffix}");
        }
    }
    // Whatever this machine allows with devices: also no regular file.
    assert_eq!(refusal(Path::new("/dev/null"), OpenMode::ReadOnly).kind(), "not_regular");
}

#[test]
fn a_second_name_of_the_database_is_refused() {
    let (dir, path) = existing();
    let other = dir.path().join("other.db");
    std::fs::hard_link(&path, &other).unwrap();
    for how in MODES {
        for name in [&path, &other] {
            assert_eq!(refusal(name, how).kind(), "hard_linked");
        }
    }
    std::fs::remove_file(&other).unwrap();
    open(&path, OpenMode::Existing, SCHEMA).unwrap();
}

#[test]
fn a_folder_that_others_may_write_is_refused_unless_sticky() {
    for mode in [0o777, 0o770, 0o775, 0o702] {
        let (dir, path) = existing();
        set_mode(dir.path(), mode);
        for how in MODES {
            assert_eq!(refusal(&path, how).kind(), "folder_writable_by_others", "{mode:o}");
        }
        set_mode(dir.path(), mode | 0o1000);
        for how in MODES {
            open(&path, how, SCHEMA).unwrap();
        }
    }
}

#[test]
fn a_link_to_the_folder_is_followed_to_the_real_one() {
    let (dir, path) = existing();
    let outside = tempfile::tempdir().unwrap();
    let link = outside.path().join("state");
    symlink(dir.path(), &link).unwrap();
    let opened = open(&link.join("portcullis.db"), OpenMode::Existing, SCHEMA).unwrap();
    assert_eq!(opened.path, path.canonicalize().unwrap());
}

#[test]
fn a_full_disk_is_said_to_be_full() {
    let (dir, path) = place();
    // A file system of 16 KiB, in a mount namespace of its own.
    let script = r#"mount -t tmpfs -o size=16k,mode=700 none "$1" && exec "$0" --exact child::child --nocapture"#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path())
        .env("PORTCULLIS_STORE_TEST_TASK", format!("CreateOrOpen 22 {}", path.display()))
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    if !text.contains("result<") {
        portcullis_testkit::skip::skip("cannot mount a small file system here");
        return;
    }
    assert!(text.contains("result<disk_full>"), "{text}");
}
