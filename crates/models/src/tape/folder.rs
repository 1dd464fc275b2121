//! A private folder of recordings: files that appear whole, 0600 under any umask, and are read with a bound.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use portcullis_canon::sanitize;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fchmod, fstat, fsync, open, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// Why a recording's folder or file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// The operating system refused.
    #[error("cannot {act} `{name}` of the recording: {source}")]
    Io {
        /// What was tried.
        act: &'static str,
        /// The file, or the folder.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Others can get at what is about to be written, or it belongs to another user.
    #[error("`{name}` of the recording must belong to this user alone; run `chmod go=` on it")]
    Open {
        /// The file, or the folder.
        name: String,
    },
    /// Others could have written what is about to be played, or it belongs to another user.
    #[error(
        "`{name}` of the recording could have been written by others; look at it, then run `chmod go-w` on it"
    )]
    Written {
        /// The file, or the folder.
        name: String,
    },
    /// Not a plain file, or larger than one can be.
    #[error("`{name}` is no file of a recording")]
    Odd {
        /// The file.
        name: String,
    },
    /// It is JSON of another shape, or no JSON.
    #[error("`{name}` of the recording does not fit: {reason}")]
    Shape {
        /// The file.
        name: String,
        /// What does not fit.
        reason: String,
    },
    /// The folder holds a recording of something else.
    #[error("the folder holds a recording of another {what}; choose an empty one")]
    Other {
        /// What differs.
        what: &'static str,
    },
}

/// What a folder is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Writing what was said: nobody else may read it.
    Recording,
    /// Playing what may have come with a program's source: nobody else may have written it.
    Playing,
}

/// A held folder that nobody else can write, and read where it is recorded into.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    purpose: For,
}

fn io_error(act: &'static str, name: &str, errno: Errno) -> TapeError {
    TapeError::Io { act, name: sanitize::line(name).into_owned(), source: errno.into() }
}

/// Whoever may write may put words into a model's mouth; whoever may read knows what was said to it.
fn check_owner(stat: &rustix::fs::Stat, name: &str, purpose: For) -> Result<(), TapeError> {
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    let name = || sanitize::line(name).into_owned();
    match purpose {
        For::Recording if own && stat.st_mode & 0o077 == 0 => Ok(()),
        For::Recording => Err(TapeError::Open { name: name() }),
        For::Playing if (own || stat.st_uid == 0) && stat.st_mode & 0o022 == 0 => Ok(()),
        For::Playing => Err(TapeError::Written { name: name() }),
    }
}

impl Folder {
    /// Opens the folder; one to record into is made where it is missing.
    pub(super) fn open(path: &Path, purpose: For) -> Result<Self, TapeError> {
        let shown = path.to_string_lossy();
        if purpose == For::Recording
            && let Err(source) = DirBuilder::new().recursive(true).mode(0o700).create(path)
            && source.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(TapeError::Io {
                act: "make",
                name: sanitize::line(&shown).into_owned(),
                source,
            });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(|e| io_error("open", &shown, e))?;
        let stat = fstat(&fd).map_err(|e| io_error("look at", &shown, e))?;
        check_owner(&stat, &shown, purpose)?;
        Ok(Self { fd, purpose })
    }

    /// A whole file of at most `most` bytes; `None` when there is none.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, TapeError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io_error("open", name, errno)),
        };
        let stat = fstat(&fd).map_err(|e| io_error("look at", name, e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(TapeError::Odd { name: name.to_owned() });
        }
        check_owner(&stat, name, self.purpose)?;
        let mut bytes = Vec::new();
        let mut bounded = File::from(fd).take(most.saturating_add(1));
        bounded.read_to_end(&mut bytes).map_err(|source| TapeError::Io {
            act: "read",
            name: name.to_owned(),
            source,
        })?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
            return Err(TapeError::Odd { name: name.to_owned() });
        }
        Ok(Some(bytes))
    }

    /// Writes a file that appears whole and synced, in the place of one that is there.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), TapeError> {
        let temp = format!(".{name}.{}.tmp", std::process::id());
        // Left by a process of the same id that died; in a folder of ours nobody else put it there.
        let _ = unlinkat(&self.fd, &temp, AtFlags::empty());
        let written = self.write_temp(&temp, name, bytes).and_then(|()| {
            renameat(&self.fd, &temp, &self.fd, name).map_err(|e| io_error("replace", name, e))
        });
        if written.is_err() {
            let _ = unlinkat(&self.fd, &temp, AtFlags::empty());
        }
        written?;
        fsync(&self.fd).map_err(|e| io_error("sync", name, e))
    }

    fn write_temp(&self, temp: &str, name: &str, bytes: &[u8]) -> Result<(), TapeError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = openat(&self.fd, temp, flags, mode).map_err(|e| io_error("create", name, e))?;
        fchmod(&fd, mode).map_err(|e| io_error("create", name, e))?;
        let mut file = File::from(fd);
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|source| TapeError::Io {
            act: "write",
            name: name.to_owned(),
            source,
        })
    }

    /// Takes a file away, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<bool, TapeError> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(io_error("remove", name, errno)),
        }
    }
}
