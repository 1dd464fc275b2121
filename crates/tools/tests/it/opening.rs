//! Which folders are handed out: never one that meets the state, key or policy folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_domain::ports::Disposition;
use portcullis_testkit::skip::skip;
use portcullis_tools::{Files, FilesError};
use tempfile::TempDir;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for dir in ["governed/deep", "state/deep", "other"] {
            fs::create_dir_all(folder.path().join(dir)).unwrap();
        }
        Self { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn open(&self, root: &str, forbidden: &str) -> Result<Files, FilesError> {
        Files::open(&self.at(root), &[self.at("other"), self.at(forbidden)])
    }

    #[track_caller]
    fn refused(&self, root: &str, forbidden: &str) {
        let error = self.open(root, forbidden).unwrap_err();
        assert!(matches!(error, FilesError::Overlap { .. }), "{root} {forbidden}: {error}");
        assert_eq!(error.disposition(), Disposition::Operator);
    }
}

#[test]
fn a_folder_apart_is_opened() {
    let place = Place::new();
    place.open("governed", "state").unwrap();
    place.open("governed/deep", "state/deep").unwrap();
    // A folder that will be made beside it later.
    place.open("governed", "state/later/still").unwrap();
    place.open("governed", "governed-keys").unwrap();
}

#[test]
fn a_folder_that_contains_is_or_lies_in_a_forbidden_one_is_refused() {
    let place = Place::new();
    place.refused("state", "state");
    place.refused("state/deep", "state");
    place.refused("state", "state/deep");
    place.refused(".", "state");
    // It does not exist yet, and would be made inside.
    place.refused("governed", "governed/state");
}

#[test]
fn links_are_seen_through_on_both_sides() {
    let place = Place::new();
    symlink(place.at("state/deep"), place.at("innocent")).unwrap();
    place.refused("innocent", "state");
    symlink(place.at("governed/deep"), place.at("keys")).unwrap();
    place.refused("governed", "keys");
    place.refused("governed", "keys/later");
    symlink(place.at("nowhere"), place.at("dangling")).unwrap();
    let error = place.open("governed", "dangling").unwrap_err();
    assert!(matches!(error, FilesError::Unclear { .. }), "{error}");
}

#[test]
fn a_forbidden_path_that_is_not_absolute_is_refused() {
    let place = Place::new();
    let error = Files::open(&place.at("governed"), &[PathBuf::from("state")]).unwrap_err();
    assert!(matches!(error, FilesError::Unclear { .. }), "{error}");
}

#[test]
fn a_bind_mount_of_the_same_folder_is_the_same_folder() {
    let place = Place::new();
    let mounted = Mounted::bind(&place.at("state"), &place.at("governed/deep"));
    let Some(_mounted) = mounted else { return skip("a bind mount needs root and mount(8)") };
    place.refused("governed/deep", "state");
    // Mounted beneath a folder that is handed out, it is behind a border that no call crosses.
    let files = place.open("governed", "state").unwrap();
    fs::write(place.at("state/key"), "secret").unwrap();
    assert_eq!(fs::read(place.at("governed/deep/key")).unwrap(), b"secret");
    let arguments = [("path", "deep/key")].into_iter().collect();
    let permit = portcullis_testkit::permit::permit_for("files.read", arguments);
    use portcullis_domain::ports::ToolSource as _;
    let said = portcullis_testkit::block_on(files.call(permit)).unwrap_err().to_string();
    assert_eq!(said, "`deep/key` leads into another file system");
}

#[test]
fn what_is_no_folder_is_refused_in_one_harmless_line() {
    let place = Place::new();
    fs::write(place.at("file"), "").unwrap();
    for (root, fault) in [("file", "is not a directory"), ("a\n\u{1b}[2J", "does not exist")] {
        let error = place.open(root, "state").unwrap_err();
        assert!(matches!(error, FilesError::Open { .. }), "{error}");
        let said = error.to_string();
        assert!(said.ends_with(fault) && !said.chars().any(char::is_control), "{said}");
    }
}

#[test]
fn what_is_held_stays_what_was_opened() {
    let place = Place::new();
    let files = place.open("governed", "state").unwrap();
    fs::write(place.at("state/key"), "secret").unwrap();
    fs::rename(place.at("governed"), place.at("moved")).unwrap();
    symlink(place.at("state"), place.at("governed")).unwrap();
    let listed = list(&files);
    assert!(listed.contains(r#""name":"deep""#) && !listed.contains("key"), "{listed}");
}

fn list(files: &Files) -> String {
    use portcullis_domain::ports::ToolSource as _;
    let permit = portcullis_testkit::permit::permit_for("files.list", Default::default());
    String::from_utf8(portcullis_testkit::block_on(files.call(permit)).unwrap().content).unwrap()
}

struct Mounted(PathBuf);

impl Mounted {
    fn bind(from: &Path, to: &Path) -> Option<Self> {
        let done = Command::new("mount").arg("--bind").args([from, to]).output().ok()?;
        done.status.success().then(|| Self(to.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg(&self.0).output();
    }
}
