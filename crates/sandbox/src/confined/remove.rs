//! Removing a file or an empty directory.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Stat as RawStat, unlinkat};
use rustix::io::Errno;

use super::entry::{Identity, Kind, Stat, Version};
use super::open::{probe, regular, require_regular};
use super::read::{content, stable_content};
use super::temp::{lock, rename_new, sync_dir, unguessable_name};
use super::{Fault, FileError, RelPath, Root};

impl Root {
    /// Removes a regular file with one name. It is set aside first and compared, so that a file which was put in
    /// its place meanwhile is put back and not lost.
    ///
    /// # Errors
    /// As [`Root::read`] without a cap; [`Fault::Changed`] when the file was exchanged meanwhile.
    pub fn remove_file(&self, path: &RelPath) -> Result<(), FileError> {
        self.remove_file_inner(path).map_err(|fault| FileError::new(path, fault))
    }

    fn remove_file_inner(&self, path: &RelPath) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        lock(&dir)?;
        let (_handle, seen) = probe(&dir, name)?;
        require_regular(&seen)?;
        take_away(&dir, name, |aside| Identity::of(aside) == Identity::of(&seen))
    }

    /// Removes a regular file whose content, of at most `max` bytes, `expected` accepts.
    ///
    /// # Errors
    /// As [`Root::read`]; [`Fault::Changed`] when `expected` says no, or the file was changed or exchanged meanwhile.
    pub fn remove_file_if(
        &self,
        path: &RelPath,
        max: u64,
        expected: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(), FileError> {
        self.remove_if_inner(path, max, expected).map_err(|fault| FileError::new(path, fault))
    }

    fn remove_if_inner(
        &self,
        path: &RelPath,
        max: u64,
        expected: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        lock(&dir)?;
        let (file, raw) = regular(&dir, name, rustix::fs::OFlags::RDONLY)?;
        let (bytes, raw) = stable_content(&file, raw, max)?;
        if !expected(&bytes) {
            return Err(Fault::Changed);
        }
        take_away(&dir, name, |aside| {
            Version::of(aside) == Version::of(&raw)
                && content(&file, aside, max).is_ok_and(|now| now == bytes)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Not a directory, not empty, or in use.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), FileError> {
        self.remove_dir_inner(path).map_err(|fault| FileError::new(path, fault))
    }

    fn remove_dir_inner(&self, path: &RelPath) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        let (_handle, seen) = probe(&dir, name)?;
        match Stat::of(&seen).kind {
            Kind::Directory => {}
            Kind::Link => return Err(Fault::Link),
            _ => return Err(Fault::NotDirectory),
        }
        match unlinkat(&dir, name, AtFlags::REMOVEDIR) {
            // Some file systems say "exists" of a directory with entries.
            Err(Errno::EXIST) => Err(Fault::NotEmpty),
            Err(errno) => Err(errno.into()),
            Ok(()) => sync_dir(&dir),
        }
    }
}

/// Renames the file to a hidden name, and removes it only when `is_it` recognises what was renamed.
pub(super) fn take_away(
    dir: &OwnedFd,
    name: &str,
    is_it: impl FnOnce(&RawStat) -> bool,
) -> Result<(), Fault> {
    let hidden = unguessable_name()?;
    rename_new(dir, name, dir, &hidden)?;
    let doubt = |_| Fault::in_doubt(Errno::STALE);
    let (_handle, aside) = probe(dir, &hidden).map_err(doubt)?;
    if !is_it(&aside) || require_regular(&aside).is_err() {
        rename_new(dir, &hidden, dir, name).map_err(doubt)?;
        return Err(Fault::Changed);
    }
    unlinkat(dir, hidden.as_str(), AtFlags::empty()).map_err(Fault::in_doubt)?;
    sync_dir(dir)
}
