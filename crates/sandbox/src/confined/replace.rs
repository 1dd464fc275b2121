//! Replacing a file's content: checked through a handle, swapped in one step, checked again.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Stat as RawStat, Uid, fchmod, fchown, fstat, unlinkat,
};
use rustix::io::Errno;

use super::entry::{Identity, Version};
use super::open::{probe, regular, require_regular};
use super::read::{content, stable_content};
use super::temp::{Temp, exchange, lock, sync_dir};
use super::{Fault, FileError, RelPath, Root};

/// The file that is to be replaced, as it was when its content was accepted.
struct Old {
    file: OwnedFd,
    raw: RawStat,
    bytes: Vec<u8>,
    max: u64,
}

impl Root {
    /// Replaces a file's content with `bytes`, if `expected` accepts its present content.
    ///
    /// The file keeps its permission bits and owner; extended attributes and ACLs are not carried over, nor are
    /// set-user-id and set-group-id. A file that the process may not write is not replaced either, although its
    /// directory would allow it. When the file is changed or exchanged by somebody else at any moment before the
    /// swap, theirs stays.
    ///
    /// # Errors
    /// As [`Root::read`] with a cap of `max` bytes for the present content; [`Fault::Changed`] when `expected`
    /// says no or somebody else was faster.
    pub fn replace(
        &self,
        path: &RelPath,
        max: u64,
        expected: impl FnOnce(&[u8]) -> bool,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        self.replace_inner(path, max, expected, bytes).map_err(|fault| FileError::new(path, fault))
    }

    fn replace_inner(
        &self,
        path: &RelPath,
        max: u64,
        expected: impl FnOnce(&[u8]) -> bool,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        lock(&dir)?;
        // Opened for writing, so that a read-only file is refused as it would be by any editor.
        let (file, raw) = regular(&dir, name, OFlags::RDWR)?;
        let (present, raw) = stable_content(&file, raw, max)?;
        if !expected(&present) {
            return Err(Fault::Changed);
        }
        let old = Old { file, raw, bytes: present, max };
        let temp = Temp::write(&dir, bytes, Mode::from_raw_mode(0o600))?;
        keep_ownership(&old.raw, temp.file())?;
        temp.sync()?;
        old.require_untouched()?;
        swap(&dir, name, temp, &old, bytes)
    }
}

impl Old {
    fn require_untouched(&self) -> Result<(), Fault> {
        let now = fstat(&self.file)?;
        require_regular(&now)?;
        if Version::of(&self.raw) == Version::of(&now) { Ok(()) } else { Err(Fault::Changed) }
    }

    /// True when `there` is this very file and still has the accepted content.
    fn is_still(&self, there: &RawStat) -> bool {
        Version::of(&self.raw) == Version::of(there)
            && require_regular(there).is_ok()
            && content(&self.file, there, self.max).is_ok_and(|bytes| bytes == self.bytes)
    }
}

/// Permission bits and owner of the old file. The owner first: changing it may clear bits.
fn keep_ownership(old: &RawStat, new: &OwnedFd) -> Result<(), Fault> {
    let made = fstat(new)?;
    if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid) {
        fchown(new, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    }
    fchmod(new, Mode::from_raw_mode(old.st_mode & 0o777))?;
    Ok(())
}

fn swap(
    dir: &OwnedFd,
    name: &str,
    mut temp: Temp<'_>,
    old: &Old,
    bytes: &[u8],
) -> Result<(), Fault> {
    temp.unclaim()?;
    exchange(dir, temp.name(), name)?;
    // From here the temporary name holds what was there before, which is not ours to remove unchecked.
    temp.disarm();
    let came_out = probe(dir, temp.name()).map(|(_, raw)| raw);
    match came_out {
        Ok(raw) if old.is_still(&raw) => {
            unlinkat(dir, temp.name(), AtFlags::empty()).map_err(Fault::in_doubt)?;
            sync_dir(dir)
        }
        Ok(_) => put_back(dir, name, &temp, bytes),
        Err(_) => Err(Fault::in_doubt(Errno::STALE)),
    }
}

/// Somebody else's file came out: it goes back to its name.
fn put_back(dir: &OwnedFd, name: &str, temp: &Temp<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let doubt = || Fault::in_doubt(Errno::STALE);
    let ours = Identity::of(&fstat(temp.file()).map_err(Fault::in_doubt)?);
    exchange(dir, temp.name(), name).map_err(|_| doubt())?;
    let (_handle, raw) = probe(dir, temp.name()).map_err(|_| doubt())?;
    if Identity::of(&raw) != ours {
        // A third file was put over ours meanwhile. It is the newest, so it keeps the name.
        exchange(dir, temp.name(), name).map_err(|_| doubt())?;
        return Err(doubt());
    }
    if !content(temp.file(), &raw, bytes.len() as u64).is_ok_and(|now| now == bytes) {
        // Somebody wrote into our file while it had the name. What they wrote is kept under the hidden name.
        return Err(doubt());
    }
    unlinkat(dir, temp.name(), AtFlags::empty()).map_err(Fault::in_doubt)?;
    sync_dir(dir)?;
    Err(Fault::Changed)
}
