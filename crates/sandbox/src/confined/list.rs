//! Listing a directory.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{AtFlags, Dir, statat};
use rustix::io::Errno;

use super::{Fault, FileError, RelPath, Root, Stat, TEMP_PREFIX};

/// How many names of one directory are looked at, at most; a larger directory is reported as cut.
pub const MAX_SCAN: usize = 100_000;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, exactly as the file system has it: any bytes but zero and slash. Not fit for a terminal.
    pub name: OsString,
    /// What it is; a link is not followed.
    pub stat: Stat,
}

impl Entry {
    /// The name as text, and whether bytes that are no UTF-8 were replaced (such a name cannot be addressed).
    #[must_use]
    pub fn name_lossy(&self) -> (Cow<'_, str>, bool) {
        let text = self.name.to_string_lossy();
        let lossy = matches!(text, Cow::Owned(_));
        (text, lossy)
    }
}

/// A directory's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by the bytes of their names.
    pub entries: Vec<Entry>,
    /// True when entries were left out because of a bound. Those given are the first of those looked at.
    pub cut: bool,
    /// Unfinished changes of ours that lie here, hidden from `entries`.
    pub leftovers: usize,
}

impl Root {
    /// Lists a directory: at most `max` entries, the first by name.
    ///
    /// # Errors
    /// Not a directory, not there, or not readable.
    pub fn list(&self, dir: &RelPath, max: usize) -> Result<Listing, FileError> {
        self.list_inner(dir, max).map_err(|fault| FileError::new(dir, fault))
    }

    fn list_inner(&self, dir: &RelPath, max: usize) -> Result<Listing, Fault> {
        let handle = self.directory(dir.lookup())?;
        let names = scan(&handle, max)?;
        let mut entries = Vec::with_capacity(names.first.len());
        for name in names.first {
            match statat(
                &handle,
                name.as_slice(),
                AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
            ) {
                Ok(raw) => {
                    entries.push(Entry { name: OsString::from_vec(name), stat: Stat::of(&raw) })
                }
                // It went away since the directory was read.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Listing { entries, cut: names.cut, leftovers: names.leftovers })
    }
}

struct Names {
    first: BTreeSet<Vec<u8>>,
    cut: bool,
    leftovers: usize,
}

/// Reads names and keeps the `max` smallest, so that memory follows `max` and not the directory.
fn scan(handle: &OwnedFd, max: usize) -> Result<Names, Fault> {
    let mut names = Names { first: BTreeSet::new(), cut: false, leftovers: 0 };
    let mut seen = 0_usize;
    for entry in Dir::read_from(handle)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if seen >= MAX_SCAN {
            names.cut = true;
            break;
        }
        seen += 1;
        if name.starts_with(TEMP_PREFIX.as_bytes()) {
            names.leftovers += 1;
            continue;
        }
        names.first.insert(name.to_vec());
        if names.first.len() > max {
            names.first.pop_last();
            names.cut = true;
        }
    }
    Ok(names)
}
