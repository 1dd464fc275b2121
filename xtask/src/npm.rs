//! Packages of npm, in exactly the versions and digests of a checked-in lock, below the build folder. None of their scripts
//! runs, and what cannot be had is a reason and no failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{process, provision};

/// The lock, beside `package.json`.
const LOCK: &str = "package-lock.json";

/// What npm writes last.
const INSTALLED: &str = "node_modules/.package-lock.json";

/// Packages of one purpose.
pub(crate) struct Packages {
    /// The folder with `package.json` and the lock, below the root.
    pub(crate) sources: &'static str,
    /// What is copied beside the packages, since a module finds packages beside itself.
    pub(crate) files: &'static [&'static str],
    /// Where they are installed, below the root.
    pub(crate) place: &'static str,
    /// The oldest Node that will do, by its major version.
    pub(crate) node: u32,
    /// How npm is asked.
    pub(crate) words: &'static [&'static str],
    /// What they are, for the reason.
    pub(crate) what: &'static str,
}

impl Packages {
    /// The folder with the packages, or why they cannot be had.
    pub(crate) fn install(&self, root: &Path) -> Result<Result<PathBuf, String>> {
        if !provision::node(self.node)? {
            let least = self.node;
            return Ok(Err(format!(
                "node {least} or newer, with npm, cannot be had on this machine"
            )));
        }
        let place = root.join(self.place);
        fs::create_dir_all(&place)?;
        let fresh = self.same(root, &place);
        for file in self.files {
            let from = root.join(self.sources).join(file);
            fs::copy(&from, place.join(file))
                .with_context(|| format!("{}/{file} cannot be copied", self.sources))?;
        }
        if fresh && place.join(INSTALLED).is_file() {
            return Ok(Ok(place));
        }
        // A half is no whole: what is cut off is begun anew the next time.
        let _absent = fs::remove_file(place.join(INSTALLED));
        let mut npm = Command::new("npm");
        npm.args(self.words).args(["--ignore-scripts", "--no-audit", "--no-fund"]);
        // One that is out of reach is not waited for.
        npm.args(["--fetch-retries=1", "--fetch-timeout=120000"]).current_dir(&place);
        if !process::show(&mut npm)? {
            return Ok(Err(format!("npm cannot install {} for this machine", self.what)));
        }
        if !self.same(root, &place) {
            bail!("npm took other versions than {}/{LOCK} names", self.sources);
        }
        Ok(Ok(place))
    }

    /// Whether the lock there is the checked-in one.
    fn same(&self, root: &Path, place: &Path) -> bool {
        let ours = fs::read(root.join(self.sources).join(LOCK));
        matches!((ours, fs::read(place.join(LOCK))), (Ok(ours), Ok(there)) if ours == there)
    }
}

/// What holds for each set of packages: all files are there, all packages are pinned with a digest and without an address.
#[cfg(test)]
pub(crate) fn assert_pinned(packages: &Packages, at_least: usize) {
    let root = crate::workspace::root().expect("root");
    let read = |file: &str| {
        fs::read_to_string(root.join(packages.sources).join(file)).expect("a file to copy")
    };
    for file in packages.files {
        assert!(!read(file).is_empty(), "{file}");
    }
    let lock = read(LOCK);
    let count = lock.matches("\"node_modules/").count();
    assert!(count > at_least, "{count}");
    assert_eq!(lock.matches("\"integrity\": \"sha512-").count(), count);
    assert!(!lock.contains("\"resolved\""));
    let wanted = read("package.json");
    assert!(!wanted.contains('^') && !wanted.contains('~'), "ranges are no pins");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const PACKAGES: Packages = Packages {
        sources: "sources",
        files: &["package.json", LOCK],
        place: "place",
        node: 0,
        words: &["no-such-word-of-npm"],
        what: "nothing",
    };

    #[test]
    fn what_is_installed_already_is_not_asked_for_again_and_what_cannot_be_had_is_a_reason() {
        let tree = Scratch::new("npm");
        tree.write("sources/package.json", "{}");
        tree.write("sources/package-lock.json", "{\"lockfileVersion\":3}");
        if !provision::node(0).expect("looked for") {
            return;
        }
        let missing = PACKAGES.install(tree.path()).expect("asked");
        assert_eq!(missing, Err("npm cannot install nothing for this machine".to_owned()));
        tree.write("place/node_modules/.package-lock.json", "{}");
        let there = PACKAGES.install(tree.path()).expect("there");
        assert_eq!(there, Ok(tree.path().join("place")));
        tree.write("sources/package-lock.json", "{\"lockfileVersion\":2}");
        let changed = PACKAGES.install(tree.path()).expect("asked");
        assert!(changed.is_err(), "another lock is asked for: {changed:?}");
    }
}
