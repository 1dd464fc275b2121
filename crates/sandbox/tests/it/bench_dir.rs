//! A root to test on, beside a folder that must stay out of reach.

use std::fs;
use std::path::PathBuf;

use portcullis_sandbox::confined::{Fault, FileError, RelPath, Root, TEMP_PREFIX};
use tempfile::TempDir;

pub(crate) struct Bench {
    _folder: TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) root: Root,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        let outside = folder.path().join("outside");
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "outside").unwrap();
        let root = Root::open(&inside).unwrap();
        Self { _folder: folder, inside, outside, root }
    }

    /// No unfinished change lies anywhere beneath the root.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let mut pending = vec![self.inside.clone()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name();
                assert!(!name.to_string_lossy().starts_with(TEMP_PREFIX), "left over: {name:?}");
                if entry.file_type().unwrap().is_dir() {
                    pending.push(entry.path());
                }
            }
        }
    }
}

pub(crate) fn p(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// The fault of a result that must be one.
#[track_caller]
pub(crate) fn fault<T: std::fmt::Debug>(result: Result<T, FileError>) -> Fault {
    result.unwrap_err().fault
}

/// Says why a part of a test could not run here; the line is counted by whoever reads the output.
pub(crate) fn skip(reason: &str) {
    println!("SKIP (1): {reason}");
}
