//! A folder for one test of this crate, removed when the test ends.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// A fresh folder; its name carries the process id, so that test processes never share one.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes the folder for the test `name`, empty.
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("portcullis-xtask-{name}-{}", process::id()));
        let _absent = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a scratch folder");
        Self { path }
    }

    /// Where the folder is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file below the folder, with its parents.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("a parent folder");
        }
        fs::write(path, text).expect("a scratch file");
    }

    /// Reads a file below the folder.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).expect("a scratch file")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.path);
    }
}
