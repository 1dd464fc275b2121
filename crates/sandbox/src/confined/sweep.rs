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

/// The most folders that one sweep enters.
const MAX_FOLDERS: usize = 5_000;
/// The most names that one sweep looks at.
const MAX_NAMES: usize = 100_000;

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
        let mut swept = Swept::default();
        let mut pending = vec![RelPath::root()];
        let (mut folders, mut names) = (0_usize, 0_usize);
        while let Some(path) = pending.pop() {
            if folders >= MAX_FOLDERS || names >= MAX_NAMES {
                swept.cut = true;
                break;
            }
            folders += 1;
            let Ok(dir) = self.directory(path.lookup()) else { continue };
            let Ok(found) = Found::of(&dir, MAX_NAMES - names) else { continue };
            names += found.names;
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
