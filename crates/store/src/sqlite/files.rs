//! The checks on the database's folder and files, made on handles before and after SQLite opens them.
//!
//! The handles are `O_PATH`: closing an ordinary descriptor of a database drops every lock that this
//! process holds on it, whoever took them; closing an `O_PATH` one drops none, and opening one never
//! blocks on a FIFO.
//!
//! The folder is what keeps a checked path meaning the same file. It must belong to this user or to root
//! and be writable by nobody else, except with the sticky bit (as `/tmp`): there others can add names but
//! not replace ours, and an added side file is not ours and is refused. Folders further up are not looked
//! at: a folder swapped in from there has to pass the same checks. The kind of file system is not looked
//! at either.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::OpenError;

/// What SQLite appends to the name of a database.
const SIDE_FILES: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Bits that let group or others write.
const OTHERS_WRITE: u32 = 0o022;

/// Held while a database file is looked for and created. Creating needs an ordinary descriptor, and
/// closing it must come before any other thread of this process can lock the file.
static CREATING: Mutex<()> = Mutex::new(());

/// What the file is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A writer that may create the file.
    Create,
    /// A writer that needs the file to be there.
    Write,
    /// A reader, which changes nothing.
    Read,
}

/// A database's place: its folder, held open, and its name there.
pub(super) struct Place {
    folder: OwnedFd,
    folder_path: PathBuf,
    name: OsString,
    purpose: Purpose,
}

/// Which file was checked, so that a later check can tell whether it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Place {
    /// Resolves and checks the folder of `path`, links in it included.
    pub(super) fn resolve(path: &Path, purpose: Purpose) -> Result<Self, OpenError> {
        let bad = || OpenError::BadPath { path: path.to_path_buf() };
        let name = path.file_name().ok_or_else(bad)?.to_os_string();
        if name.as_encoded_bytes().contains(&0) || ends_in_slash(path) {
            return Err(bad());
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder_path =
            std::fs::canonicalize(parent).map_err(|error| folder_error(parent, &error))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder =
            rustix::fs::open(&folder_path, flags, Mode::empty()).map_err(|errno| match errno {
                Errno::NOENT => OpenError::FolderNotFound { path: folder_path.clone() },
                errno => OpenError::from_errno(&folder_path, errno),
            })?;
        let place = Self { folder, folder_path, name, purpose };
        place.check_folder()?;
        Ok(place)
    }

    /// The absolute path of the database, free of links. It never starts with `file:` and is never
    /// `:memory:`, which SQLite would read as something other than a path.
    pub(super) fn path(&self) -> PathBuf {
        self.folder_path.join(&self.name)
    }

    /// Checks every file that belongs to the database and creates the database when that is asked for.
    /// Says which file it is and whether it is new.
    pub(super) fn prepare(&self) -> Result<(Identity, bool), OpenError> {
        let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
        // Side files first: a database is there before its side files are, so one that is seen while the
        // database is missing was left behind.
        let orphan = self.check_side_files()?;
        if let Some(identity) = self.check_file(&self.name)? {
            return Ok((identity, false));
        }
        if self.purpose != Purpose::Create {
            return Err(OpenError::NotFound { path: self.path() });
        }
        if let Some(path) = orphan {
            return Err(OpenError::Orphan { path });
        }
        let created = self.create()?;
        let identity =
            self.check_file(&self.name)?.ok_or_else(|| OpenError::Swapped { path: self.path() })?;
        Ok((identity, created))
    }

    /// Checks everything again once SQLite has the files open, and that the database is still the one that
    /// was checked before.
    pub(super) fn recheck(&self, expected: Identity) -> Result<(), OpenError> {
        self.check_side_files()?;
        match self.check_file(&self.name)? {
            Some(found) if found == expected => Ok(()),
            _ => Err(OpenError::Swapped { path: self.path() }),
        }
    }

    /// Whether this user may add files to the folder.
    pub(super) fn folder_is_writable(&self) -> bool {
        rustix::fs::accessat(&self.folder, ".", Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }

    /// Whether the write-ahead log or the rollback journal holds anything.
    pub(super) fn has_pending_log(&self) -> Result<bool, OpenError> {
        for suffix in ["-wal", "-journal"] {
            let name = self.side_name(suffix);
            match rustix::fs::statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if stat.st_size > 0 => return Ok(true),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(OpenError::from_errno(&self.folder_path.join(name), errno));
                }
            }
        }
        Ok(false)
    }

    /// Bytes in the database file itself.
    pub(super) fn length(&self) -> Result<i64, OpenError> {
        rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| stat.st_size)
            .map_err(|errno| OpenError::from_errno(&self.path(), errno))
    }

    fn check_folder(&self) -> Result<(), OpenError> {
        let path = || self.folder_path.clone();
        let stat = rustix::fs::fstat(&self.folder)
            .map_err(|errno| OpenError::from_errno(&path(), errno))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() && stat.st_uid != 0 {
            return Err(OpenError::FolderForeignOwner { path: path(), owner: stat.st_uid });
        }
        let mode = stat.st_mode & 0o7777;
        if mode & OTHERS_WRITE != 0 && mode & Mode::SVTX.bits() == 0 {
            return Err(OpenError::FolderWritableByOthers { path: path(), mode });
        }
        Ok(())
    }

    /// Checks the side files that are there and names one of them.
    fn check_side_files(&self) -> Result<Option<PathBuf>, OpenError> {
        let mut found = None;
        for suffix in SIDE_FILES {
            let name = self.side_name(suffix);
            if self.check_file(&name)?.is_some() {
                found.get_or_insert_with(|| self.folder_path.join(name));
            }
        }
        Ok(found)
    }

    fn side_name(&self, suffix: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(suffix);
        name
    }

    /// Checks one file on a handle; `None` when there is none.
    fn check_file(&self, name: &OsStr) -> Result<Option<Identity>, OpenError> {
        let path = self.folder_path.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::openat(&self.folder, name, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(OpenError::from_errno(&path, errno)),
        };
        let stat =
            rustix::fs::fstat(&handle).map_err(|errno| OpenError::from_errno(&path, errno))?;
        self.check_stat(&path, &stat)?;
        if self.purpose != Purpose::Read && stat.st_mode & 0o7777 & !0o600 != 0 {
            tighten(&handle).map_err(|errno| OpenError::from_errno(&path, errno))?;
        }
        Ok(Some(Identity { device: stat.st_dev, inode: stat.st_ino }))
    }

    fn check_stat(&self, path: &Path, stat: &Stat) -> Result<(), OpenError> {
        let path = || path.to_path_buf();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => return Err(OpenError::Symlink { path: path() }),
            _ => return Err(OpenError::NotRegular { path: path() }),
        }
        // A reader may also read root's files: root can hand it any content anyway.
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        let trusted = ours || (self.purpose == Purpose::Read && stat.st_uid == 0);
        if !trusted {
            return Err(OpenError::ForeignOwner { path: path(), owner: stat.st_uid });
        }
        let mode = stat.st_mode & 0o7777;
        if mode & OTHERS_WRITE != 0 {
            return Err(OpenError::WritableByOthers { path: path(), mode });
        }
        // A file that SQLite has just unlinked has no name left; that is no second name.
        #[allow(clippy::useless_conversion, reason = "narrower on some processors")]
        let links = u64::from(stat.st_nlink);
        if links > 1 {
            return Err(OpenError::HardLinked { path: path(), links });
        }
        Ok(())
    }

    /// Creates the empty database; false when another process was faster.
    fn create(&self) -> Result<bool, OpenError> {
        let error = |errno| match errno {
            Errno::ACCESS | Errno::PERM => OpenError::NotWritable { path: self.path() },
            errno => OpenError::from_errno(&self.path(), errno),
        };
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            match rustix::fs::openat(&self.folder, &self.name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                Err(Errno::EXIST) => return Ok(false),
                Err(errno) => return Err(error(errno)),
            };
        // A umask can only have taken bits away, also ours.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(error)?;
        // The name must outlive a power cut as surely as what is written under it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.folder, ".", flags, Mode::empty()).map_err(error)?;
        rustix::fs::fsync(&folder).map_err(error)?;
        Ok(true)
    }
}

/// Sets mode 0600 (or less, where the owner lacks a bit) on exactly the file behind the handle. Through
/// `/proc`, since `fchmod` refuses an `O_PATH` handle.
fn tighten(handle: &impl AsFd) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;
    let stat = rustix::fs::fstat(handle)?;
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    rustix::fs::chmod(link, Mode::from_raw_mode(stat.st_mode & 0o600))
}

/// `Path` ignores a trailing slash, but whoever writes one means a folder.
fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

fn folder_error(folder: &Path, error: &std::io::Error) -> OpenError {
    let path = folder.to_path_buf();
    match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            OpenError::FolderNotFound { path }
        }
        std::io::ErrorKind::InvalidInput => OpenError::BadPath { path },
        _ => match Errno::from_io_error(error) {
            Some(errno) => OpenError::from_errno(folder, errno),
            None => OpenError::BadPath { path },
        },
    }
}
