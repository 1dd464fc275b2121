//! Tests that could not exercise their subject on this machine: collected from a file that they append to.
//!
//! A passing test's output is hidden by every runner, so a printed line alone would be lost. `PORTCULLIS_SKIPS` names
//! a file; `portcullis_testkit::skip` appends one line to it: the binary, the test and the reason, between tabs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "PORTCULLIS_SKIPS";

/// Starts an empty file and gives its path.
pub(crate) fn start(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target");
    fs::create_dir_all(&folder)?;
    let path = folder.join("portcullis-skips.txt");
    fs::write(&path, "").context("the file of skipped tests cannot be written")?;
    // Tests run as another user too (permission tests), and they skip like the others.
    allow_everyone(&path)?;
    Ok(path)
}

fn allow_everyone(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(())
}

/// What the tests wrote: each distinct line once, and how many tests that is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skips {
    /// `test: reason`, sorted.
    pub(crate) lines: Vec<String>,
    /// The number of tests that skipped something.
    pub(crate) tests: usize,
}

/// Reads the file.
pub(crate) fn read(path: &Path) -> Result<Skips> {
    let text = fs::read(path).context("the file of skipped tests cannot be read")?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

fn parse(text: &str) -> Skips {
    let mut lines = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut parts = line.splitn(3, '\t');
        let (binary, test, reason) = (parts.next(), parts.next(), parts.next());
        match (binary, test, reason) {
            (Some(binary), Some(test), Some(reason)) => {
                lines.insert(format!("{binary} {test}: {reason}"));
                tests.insert((binary, test));
            }
            // A line that another language wrote: the whole line is the reason, and one test.
            _ => {
                lines.insert(line.to_owned());
                tests.insert((line, ""));
            }
        }
    }
    Skips { lines: lines.into_iter().collect(), tests: tests.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_test_counts_once_and_each_reason_is_kept() {
        let skips = parse(
            "it\ta::b\tno nobody user\nit\ta::b\tno loop device\nit\ta::b\tno nobody user\n\nplain\n",
        );
        assert_eq!(skips.tests, 2);
        assert_eq!(skips.lines, ["it a::b: no loop device", "it a::b: no nobody user", "plain"]);
    }

    #[test]
    fn a_run_starts_with_none() {
        let tree = Scratch::new("skips");
        tree.write("target/portcullis-skips.txt", "it\told\tline\n");
        let path = start(tree.path()).expect("starts");
        assert_eq!(read(&path).expect("reads"), Skips { lines: Vec::new(), tests: 0 });
    }
}
