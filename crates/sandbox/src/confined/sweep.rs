//! Sweeping: files that a process of ours was writing when it was killed, and that never had a name of their own.
//!
//! Such a file is under a claimed name, which says which inode it is, and was locked before it got that name. What
//! was set aside (a file that is being replaced or removed) is somebody's and has no claimed name: it stays.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType, FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use super::entry::Identity;
use super::open::regular;
use super::remove::take_away;
use super::temp::claimed_inode;
use super::{Fault, RelPath, Root};

/// The most that one sweep looks at.
#[derive(Clone, Copy)]
struct Bounds {
    /// Folders that it enters.
    folders: usize,
    /// Names in all of them.
    names: usize,
}

const BOUNDS: Bounds = Bounds { folders: 5_000, names: 100_000 };

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files that were removed.
    pub removed: usize,
    /// True when the tree is larger than one sweep looks at.
    pub cut: bool,
}

impl Root {
    /// Removes what killed processes of this user left half written beneath the root. A file goes only when it is the
    /// inode that its name says, a regular file with one name, this user's own, and locked by nobody; when any of it is
    /// not certain it stays, and stays hidden. So does everything that was set aside by a change.
    pub fn sweep(&self) -> Swept {
        self.sweep_within(BOUNDS)
    }

    fn sweep_within(&self, most: Bounds) -> Swept {
        let mut swept = Swept::default();
        let mut pending = vec![RelPath::root()];
        let (mut folders, mut names) = (0_usize, 0_usize);
        while let Some(path) = pending.pop() {
            if folders >= most.folders || names >= most.names {
                swept.cut = true;
                break;
            }
            folders += 1;
            let Ok(dir) = self.directory(path.lookup()) else { continue };
            let Ok(found) = Found::of(&dir, most.names - names) else { continue };
            names += found.names;
            swept.cut |= found.cut;
            for (name, inode) in &found.claimed {
                swept.removed += usize::from(remove(&dir, name, *inode).is_ok());
            }
            // What has no path cannot be named by a change either.
            pending.extend(found.folders.iter().filter_map(|name| path.join(name).ok()));
        }
        swept
    }
}

/// What one folder holds.
#[derive(Default)]
struct Found {
    claimed: Vec<(String, u64)>,
    folders: Vec<String>,
    names: usize,
    /// There are more names in it.
    cut: bool,
}

impl Found {
    fn of(dir: &OwnedFd, most: usize) -> Result<Self, Fault> {
        let mut found = Self::default();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." {
                continue;
            }
            if found.names >= most {
                found.cut = true;
                break;
            }
            found.names += 1;
            match (entry.file_type(), claimed_inode(name)) {
                (_, Some(inode)) => found.claimed.push((name.to_owned(), inode)),
                (FileType::Directory | FileType::Unknown, None) => {
                    found.folders.push(name.to_owned())
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

fn remove(dir: &OwnedFd, name: &str, inode: u64) -> Result<(), Fault> {
    let (file, raw) = regular(dir, name, OFlags::RDONLY)?;
    if raw.st_ino != inode || raw.st_uid != geteuid().as_raw() {
        return Err(Fault::Changed);
    }
    // Whoever writes it holds the lock from before it had this name until it has another, or the process ends.
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    take_away(dir, name, |aside| Identity::of(aside) == Identity::of(&raw))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
    use super::*;

    /// What a sweep within these bounds says of a flat folder with three files, and of two folders with one each.
    fn cut(most: Bounds) -> (bool, bool) {
        let (flat, deep) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["one", "two", "three"] {
            std::fs::write(flat.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(deep.path().join("a")).unwrap();
        std::fs::write(deep.path().join("a/file"), "").unwrap();
        let sweep = |folder: &std::path::Path| Root::open(folder).unwrap().sweep_within(most).cut;
        (sweep(flat.path()), sweep(deep.path()))
    }

    #[test]
    fn a_sweep_that_saw_everything_was_not_cut_and_one_that_did_not_was() {
        let (folders, names) = (2, 3);
        assert_eq!(cut(BOUNDS), (false, false), "the control");
        assert_eq!(cut(Bounds { folders, names }), (false, false), "exactly as much as there is");
        assert_eq!(
            cut(Bounds { folders, names: 2 }),
            (true, false),
            "a name too many in one folder"
        );
        assert_eq!(cut(Bounds { folders, names: 1 }), (true, true), "and in the folders beneath");
        assert_eq!(cut(Bounds { folders: 1, names }), (false, true), "a folder too many");
    }
}
