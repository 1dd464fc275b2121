//! Files that their owner alone can touch: checked when they are opened, whole when they appear.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_canon::sanitize;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, fchmod, flock, fstat,
    fsync, open, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use zeroize::Zeroizing;

/// Why a guarded file or its folder cannot be used. Paths are sanitised for a terminal.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot {act} `{path}`: {source}")]
    Io {
        /// What was tried.
        act: &'static str,
        /// Where.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing there.
    #[error("there is no `{path}`")]
    Missing {
        /// Where.
        path: String,
    },
    /// Something is there already, and it is never overwritten.
    #[error("`{path}` exists already and is not overwritten")]
    Exists {
        /// Where.
        path: String,
    },
    /// A link, a folder where a file belongs, a device, a pipe.
    #[error("`{path}` is not a plain {wanted}, or is a link")]
    Odd {
        /// Where.
        path: String,
        /// `file` or `folder`.
        wanted: &'static str,
    },
    /// It belongs to another user.
    #[error("`{path}` belongs to another user; only a file of one's own is used")]
    Owner {
        /// Where.
        path: String,
    },
    /// Others have more access to it than they may have.
    #[error("others can get at `{path}`; run `chmod {fix}` on it")]
    Mode {
        /// Where.
        path: String,
        /// What to give to `chmod`.
        fix: &'static str,
    },
    /// It is longer than such a file can be.
    #[error("`{path}` is larger than such a file can be")]
    TooLarge {
        /// Where.
        path: String,
    },
    /// The name cannot be that of a file in the folder.
    #[error("not a usable name: 1 to 64 letters, digits, `.`, `-` or `_`, not starting with `.`")]
    Name,
}

/// What others may do with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing.
    Private,
    /// Read.
    Readable,
}

impl Guard {
    const fn forbidden(self) -> u32 {
        match self {
            Self::Private => 0o077,
            Self::Readable => 0o022,
        }
    }

    const fn fix(self) -> &'static str {
        match self {
            Self::Private => "go=",
            Self::Readable => "go-w",
        }
    }

    /// Owner and permissions of an open file, so that nothing can be swapped after the check.
    fn check(self, stat: &Stat, shown: impl Fn() -> String) -> Result<(), FileError> {
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(FileError::Owner { path: shown() });
        }
        if stat.st_mode & self.forbidden() != 0 {
            return Err(FileError::Mode { path: shown(), fix: self.fix() });
        }
        Ok(())
    }
}

/// A held folder whose owner is this user and that nobody else can write.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    pub(crate) fn open(path: &Path, guard: Guard) -> Result<Self, FileError> {
        // A relative file name has an empty parent, which is the current folder.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())
            .map_err(|errno| fault(errno, "open", &shown(path), "folder"))?;
        let stat = fstat(&fd).map_err(|errno| fault(errno, "look at", &shown(path), "folder"))?;
        guard.check(&stat, || shown(path))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens the folder for secrets, and makes it first when it is missing.
    pub(crate) fn make_private(path: &Path) -> Result<Self, FileError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        if let Err(source) = made
            && source.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(FileError::Io { act: "make", path: shown(path), source });
        }
        Self::open(path, Guard::Private)
    }

    /// Reads a whole file of at most `max` bytes. The buffer is wiped when it is dropped.
    pub(crate) fn read(
        &self,
        name: &str,
        guard: Guard,
        max: usize,
    ) -> Result<Zeroizing<Vec<u8>>, FileError> {
        // NONBLOCK: opening a pipe that somebody put there must not wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fault = |errno, act| fault(errno, act, &self.shown(name), "file");
        let fd =
            openat(&self.fd, name, flags, Mode::empty()).map_err(|errno| fault(errno, "open"))?;
        let stat = fstat(&fd).map_err(|errno| fault(errno, "look at"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::Odd { path: self.shown(name), wanted: "file" });
        }
        guard.check(&stat, || self.shown(name))?;
        // One allocation of the full size, so that no copy of a secret stays behind in a smaller one.
        let mut bytes = Zeroizing::new(vec![0; max.saturating_add(1)]);
        let mut file = File::from(fd);
        let mut length = 0;
        while let Some(room) = bytes.get_mut(length..)
            && !room.is_empty()
        {
            match file.read(room) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.io("read", name, source)),
            }
        }
        if length > max {
            return Err(FileError::TooLarge { path: self.shown(name) });
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Writes a new file that appears whole and synced, or not at all. 0600 under any umask.
    pub(crate) fn create(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let temp = Temp::write(self, name, bytes)?;
        match renameat_with(&self.fd, &temp.name, &self.fd, name, RenameFlags::NOREPLACE) {
            Ok(()) => temp.published(),
            Err(Errno::EXIST) => Err(FileError::Exists { path: self.shown(name) }),
            Err(errno) => Err(self.io("create", name, errno.into())),
        }
    }

    /// As [`Folder::create`], in the place of what is there.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        let temp = Temp::write(self, name, bytes)?;
        renameat(&self.fd, &temp.name, &self.fd, name)
            .map_err(|errno| self.io("replace", name, errno.into()))?;
        temp.published()
    }

    /// The names of at most `max` entries that end in `suffix`, sorted.
    pub(crate) fn names(&self, suffix: &str, max: usize) -> Result<Vec<String>, FileError> {
        let fault = |errno: Errno| self.io("list", "", errno.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name();
            if !name.to_bytes().ends_with(suffix.as_bytes()) {
                continue;
            }
            if names.len() == max {
                return Err(FileError::TooLarge { path: self.shown("") });
            }
            names.push(plain_name(name)?);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Waits until no other process of this program changes the folder. The lock ends with the value.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, FileError> {
        retry_on_intr(|| flock(&self.fd, FlockOperation::LockExclusive))
            .map_err(|errno| self.io("lock", "", errno.into()))?;
        Ok(Locked(self))
    }

    fn io(&self, act: &'static str, name: &str, source: io::Error) -> FileError {
        FileError::Io { act, path: self.shown(name), source }
    }

    pub(crate) fn shown(&self, name: &str) -> String {
        shown(&self.path.join(name))
    }
}

/// Exclusive use of a folder.
pub(crate) struct Locked<'f>(&'f Folder);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the folder ends the lock too.
        let _ = flock(&self.0.fd, FlockOperation::Unlock);
    }
}

/// How many files this process has begun to write.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// A file under a temporary name, removed when dropped unless it got its own.
struct Temp<'f> {
    folder: &'f Folder,
    name: String,
    target: &'f str,
    armed: bool,
}

impl<'f> Temp<'f> {
    fn write(folder: &'f Folder, target: &'f str, bytes: &[u8]) -> Result<Self, FileError> {
        check_name(target)?;
        // The folder is ours alone to write, so the name only has to differ from our own others.
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{target}.{}.{count}.tmp", std::process::id());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fail = |act, errno: Errno| folder.io(act, target, errno.into());
        let fd = match openat(&folder.fd, &name, flags, mode) {
            // Left by a process that died and whose id came back.
            Err(Errno::EXIST) => {
                unlinkat(&folder.fd, &name, AtFlags::empty()).map_err(|e| fail("create", e))?;
                openat(&folder.fd, &name, flags, mode)
            }
            opened => opened,
        }
        .map_err(|errno| fail("create", errno))?;
        let temp = Self { folder, name, target, armed: true };
        fchmod(&fd, mode).map_err(|errno| fail("create", errno))?;
        let mut file = File::from(fd);
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(|source| folder.io("write", target, source))?;
        Ok(temp)
    }

    /// The file has its name; makes that durable.
    fn published(mut self) -> Result<(), FileError> {
        self.armed = false;
        fsync(&self.folder.fd).map_err(|errno| self.folder.io("sync", self.target, errno.into()))
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.armed {
            // Best effort: what stays has a dot name and is taken away by the next attempt.
            let _ = unlinkat(&self.folder.fd, &self.name, AtFlags::empty());
        }
    }
}

/// Splits a path into its folder, which is opened and checked, and the file's name.
pub(crate) fn beside(path: &Path, guard: Guard) -> Result<(Folder, String), FileError> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(FileError::Name)?;
    check_name(name)?;
    let folder = Folder::open(path.parent().unwrap_or(Path::new("")), guard)?;
    Ok((folder, name.to_owned()))
}

fn plain_name(name: &CStr) -> Result<String, FileError> {
    let name = name.to_str().map_err(|_| FileError::Name)?;
    check_name(name)?;
    Ok(name.to_owned())
}

pub(crate) fn check_name(name: &str) -> Result<(), FileError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let fits = (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain);
    if fits { Ok(()) } else { Err(FileError::Name) }
}

pub(crate) fn shown(path: &Path) -> String {
    sanitize::line(&path.to_string_lossy()).into_owned()
}

fn fault(errno: Errno, act: &'static str, path: &str, wanted: &'static str) -> FileError {
    let path = path.to_owned();
    match errno {
        Errno::NOENT => FileError::Missing { path },
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO => FileError::Odd { path, wanted },
        errno => FileError::Io { act, path, source: errno.into() },
    }
}
