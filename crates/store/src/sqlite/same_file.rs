//! Whether the files that are written are still those at their paths.

use std::path::{Path, PathBuf};

use portcullis_domain::ports::StoreError;
use rusqlite::ffi::SQLITE_IOERR_FSTAT;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;

use super::files::Identity;

/// What lies beside a database: its log, and the index of the log, in which SQLite's locks lie.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// The database and what lies beside it, as they were opened.
///
/// SQLite goes on writing into files that nobody can find any more, when their folder was removed or an old copy was put
/// in their place; such a record would be lost with the process. Without the index of the log, another process makes a
/// new one, and the two no longer keep each other out.
#[derive(Debug)]
pub(super) struct SameFile {
    database: (PathBuf, Identity),
    /// Each is known once the first transaction has made it.
    beside: [(PathBuf, Option<Identity>); BESIDE.len()],
}

impl SameFile {
    /// What is watched from now on: `opened` is the file that was checked when it was opened at `path`.
    pub(super) fn watch(path: &Path, opened: Identity) -> Self {
        let beside = BESIDE.map(|suffix| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            let path = PathBuf::from(name);
            let known = identity(&path).unwrap_or(None);
            (path, known)
        });
        Self { database: (path.to_owned(), opened), beside }
    }

    /// Whether this is the database that is watched.
    pub(super) fn is(&self, other: Identity) -> bool {
        self.database.1 == other
    }

    /// Refuses when another file, or none, lies at one of the paths by now.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        let look = |path: &Path| {
            identity(path).map_err(|_| StoreError::Medium { code: SQLITE_IOERR_FSTAT })
        };
        let mut same = look(&self.database.0)? == Some(self.database.1);
        for (path, known) in &mut self.beside {
            let found = look(path)?;
            if known.is_none() {
                *known = found;
            }
            same &= found == *known;
        }
        if same { Ok(()) } else { Err(StoreError::FileMoved) }
    }
}

/// Asks for nothing but the number. Linux writes a file's times anew after each look at them, and with them, on some
/// file systems, one more block at each sync.
fn identity(path: &Path) -> Result<Option<Identity>, Errno> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO) {
        Ok(stat) => {
            let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
            Ok(Some(Identity { device, inode: stat.stx_ino }))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
