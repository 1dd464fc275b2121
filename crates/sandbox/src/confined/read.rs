//! Reading a regular file.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, Stat as RawStat, fstat};
use rustix::io::{Errno, pread, retry_on_intr};

use super::entry::Version;
use super::open::{regular, require_regular};
use super::{Fault, FileError, RelPath, Root};

/// How often a file that changes while it is read is read again.
const ATTEMPTS: u32 = 3;
/// Bytes asked of the kernel at once.
const CHUNK: usize = 64 * 1024;

impl Root {
    /// Reads a whole regular file of at most `max` bytes.
    ///
    /// # Errors
    /// Anything but a regular file with one name (a second hard link may be a name outside the root); more bytes
    /// than `max`; a file that keeps changing while it is read.
    pub fn read(&self, path: &RelPath, max: u64) -> Result<Vec<u8>, FileError> {
        self.read_inner(path, max).map_err(|fault| FileError::new(path, fault))
    }

    fn read_inner(&self, path: &RelPath, max: u64) -> Result<Vec<u8>, Fault> {
        let (file, raw) = regular(self.handle(), path.lookup(), OFlags::RDONLY)?;
        stable_content(&file, raw, max).map(|(bytes, _)| bytes)
    }
}

/// The content at one instant, and the state of the file at that instant.
pub(super) fn stable_content(
    file: &OwnedFd,
    first: RawStat,
    max: u64,
) -> Result<(Vec<u8>, RawStat), Fault> {
    let mut before = first;
    for _ in 0..ATTEMPTS {
        let bytes = content(file, &before, max)?;
        let after = fstat(file)?;
        require_regular(&after)?;
        if Version::of(&before) == Version::of(&after) {
            return Ok((bytes, after));
        }
        before = after;
    }
    Err(Fault::Changed)
}

/// All bytes, bounded both by the size that the file claims and while reading.
pub(super) fn content(file: &OwnedFd, raw: &RawStat, max: u64) -> Result<Vec<u8>, Fault> {
    let size = u64::try_from(raw.st_size).unwrap_or(0);
    if size > max {
        return Err(Fault::TooLarge { size, cap: max });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let mut chunk = vec![0_u8; CHUNK];
    loop {
        let offset = bytes.len() as u64;
        let count = match retry_on_intr(|| pread(file, chunk.as_mut_slice(), offset)) {
            Ok(count) => count,
            Err(Errno::AGAIN) => return Err(Fault::Changed),
            Err(errno) => return Err(errno.into()),
        };
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend(chunk.iter().take(count));
        let size = bytes.len() as u64;
        if size > max {
            return Err(Fault::TooLarge { size, cap: max });
        }
    }
}
