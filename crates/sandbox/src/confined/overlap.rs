//! Whether the root and another place lie in each other.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, fstat, openat};

use super::Root;
use super::entry::Identity;

/// More levels above a directory than any real tree has; a bound for the walk upwards.
const MAX_LEVELS: usize = 4096;

impl Root {
    /// True when `other` lies in this root, is it, or contains it. `other` is an absolute path of the operator's
    /// (state, keys, policy); it need not exist yet, in which case its nearest existing parent counts.
    ///
    /// Compared are device and inode of every directory above either, so that links, bind mounts and different
    /// spellings are seen through. A bind mount of a directory *inside* `other` is not.
    ///
    /// # Errors
    /// Whatever prevents an answer; treat it as an overlap.
    pub fn contains_or_lies_in(&self, other: &Path) -> io::Result<bool> {
        let (existing, whole) = nearest_existing(other)?;
        let root = Identity::of(&fstat(self.handle())?);
        let mut above_other =
            existing.ancestors().map(|dir| std::fs::metadata(dir).map(|m| identity(&m)));
        let found =
            above_other.try_fold(false, |found, dir| dir.map(|dir| found || dir == root))?;
        if found {
            return Ok(true);
        }
        if !whole {
            // What does not exist contains nothing.
            return Ok(false);
        }
        let other = identity(&std::fs::metadata(&existing)?);
        self.is_beneath(other)
    }

    fn is_beneath(&self, other: Identity) -> io::Result<bool> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir: OwnedFd = openat(self.handle(), ".", flags, Mode::empty())?;
        for _ in 0..MAX_LEVELS {
            let here = Identity::of(&fstat(&dir)?);
            if here == other {
                return Ok(true);
            }
            let parent = openat(&dir, "..", flags, Mode::empty())?;
            if Identity::of(&fstat(&parent)?) == here {
                return Ok(false);
            }
            dir = parent;
        }
        Err(io::Error::from(io::ErrorKind::InvalidInput))
    }
}

fn identity(metadata: &std::fs::Metadata) -> Identity {
    Identity(metadata.dev(), metadata.ino())
}

/// The canonical path of `path` or of its nearest parent that exists, and whether that is the whole of it.
fn nearest_existing(path: &Path) -> io::Result<(std::path::PathBuf, bool)> {
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (index, ancestor) in path.ancestors().enumerate() {
        match std::fs::canonicalize(ancestor) {
            Ok(found) => return Ok((found, index == 0)),
            // A link that leads nowhere could lead anywhere tomorrow.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if std::fs::symlink_metadata(ancestor).is_ok() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}
