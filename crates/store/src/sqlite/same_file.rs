//! Whether the file that is written is still the one at its path.

use std::path::{Path, PathBuf};

use portcullis_domain::ports::StoreError;
use rusqlite::ffi::SQLITE_IOERR_FSTAT;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::io::Errno;

use super::files::Identity;

/// The database and its log as they were opened. SQLite goes on writing into files that nobody can find any more,
/// when their folder was removed or an old copy was put in their place; such a record would be lost with the process.
#[derive(Debug)]
pub(super) struct SameFile {
    database: (PathBuf, Identity),
    /// Its identity is known once the first transaction has made it.
    log: (PathBuf, Option<Identity>),
}

impl SameFile {
    /// What is watched from now on: `opened` is the file that was checked when it was opened at `path`.
    pub(super) fn watch(path: &Path, opened: Identity) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        let known = identity(&log).unwrap_or(None);
        Self { database: (path.to_owned(), opened), log: (log, known) }
    }

    /// Whether this is the database that is watched.
    pub(super) fn is(&self, other: Identity) -> bool {
        self.database.1 == other
    }

    /// Refuses when another file, or none, lies at the path by now.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        let unknown = |_: Errno| StoreError::Medium { code: SQLITE_IOERR_FSTAT };
        let database = identity(&self.database.0).map_err(unknown)?;
        let log = identity(&self.log.0).map_err(unknown)?;
        if self.log.1.is_none() {
            self.log.1 = log;
        }
        if database == Some(self.database.1) && log == self.log.1 {
            Ok(())
        } else {
            Err(StoreError::FileMoved)
        }
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
