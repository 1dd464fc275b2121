//! Whether the file that is written is still the one at its path.

use std::path::{Path, PathBuf};

use portcullis_domain::ports::StoreError;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

/// A file's device, in two parts, and its number there.
type FileId = (u32, u32, u64);

/// The database and its log as they were opened. SQLite goes on writing into files that nobody can find any more,
/// when their folder was removed or an old copy was put in their place; such a record would be lost with the process.
#[derive(Debug)]
pub(super) struct Place {
    database: PathBuf,
    log: PathBuf,
    opened: (Option<FileId>, Option<FileId>),
}

impl Place {
    /// The place of a database that is open at `database`.
    pub(super) fn of(database: &Path) -> Self {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        let opened = (id(database).unwrap_or(None), id(&log).unwrap_or(None));
        Self { database: database.to_owned(), log, opened }
    }

    /// Refuses when another file, or none, lies at the path by now.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        let moved = |_: Errno| StoreError::Moved;
        let database = id(&self.database).map_err(moved)?;
        let log = id(&self.log).map_err(moved)?;
        // The log may be made by the first transaction after this was looked at.
        if self.opened.1.is_none() {
            self.opened.1 = log;
        }
        if database.is_some() && (database, log) == self.opened {
            Ok(())
        } else {
            Err(StoreError::Moved)
        }
    }
}

/// Asks for nothing but the number. Linux writes a file's times anew after each look at them, and with them, on some
/// file systems, one more block at each sync.
fn id(path: &Path) -> Result<Option<FileId>, Errno> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO) {
        Ok(stat) => Ok(Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
