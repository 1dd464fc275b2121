//! The held directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::open::{beneath, probe};
use super::{Fault, FileError, RelPath, Stat};

/// A directory that an operator chose, held by a handle for as long as this value lives.
///
/// Renaming or replacing the directory afterwards does not change what is held.
#[derive(Debug)]
pub struct Root {
    handle: OwnedFd,
}

impl Root {
    /// Opens the operator's directory. The one ambient function: the path is resolved as any program would,
    /// links included, because the operator wrote it.
    ///
    /// # Errors
    /// The path is no directory that can be opened, or the kernel lacks `openat2` (Linux 5.6).
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())?;
        // Refuse here rather than at the first file.
        beneath(&handle, ".", OFlags::PATH)?;
        Ok(Self { handle })
    }

    /// Device and inode of what is held: two paths to one directory have one identity.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn identity(&self) -> Result<(u64, u64), Fault> {
        let raw = rustix::fs::fstat(&self.handle)?;
        Ok((raw.st_dev, raw.st_ino))
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Looks at an entry without opening it. A link is reported as a link.
    ///
    /// # Errors
    /// There is nothing of that name, or the way to it is refused.
    pub fn stat(&self, path: &RelPath) -> Result<Stat, FileError> {
        let (_handle, raw) =
            probe(self.handle(), path.lookup()).map_err(|fault| FileError::new(path, fault))?;
        Ok(Stat::of(&raw))
    }
}
