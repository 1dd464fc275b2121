//! Files of the operator's: their owner alone can change them, and what is read is what was checked.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use portcullis_canon::sanitize;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, fsync, open,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// A file that is not used, and why. The path is safe for a terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` {why}")]
pub struct FileFault {
    /// Where.
    pub path: String,
    /// What is wrong, and what to do.
    pub why: &'static str,
}

/// What others may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing.
    Private,
    /// Read.
    Readable,
}

/// A name in a folder that nobody else can write.
struct Entry {
    folder: OwnedFd,
    name: String,
    shown: String,
}

impl Entry {
    fn at(path: &Path) -> Result<Self, FileFault> {
        let shown = sanitize::line(&path.to_string_lossy()).into_owned();
        let fault = |why| FileFault { path: shown.clone(), why };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| fault("is not the path of a file"))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(|errno| fault(reason(errno)))?;
        let stat = fstat(&folder).map_err(|errno| fault(reason(errno)))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() && stat.st_uid != 0 {
            return Err(fault("lies in a folder of another user"));
        }
        // In a folder with the sticky bit others can add, but not take away or rename.
        if stat.st_mode & 0o022 != 0 && stat.st_mode & 0o1000 == 0 {
            return Err(fault("lies in a folder that others can write; run `chmod go-w` on it"));
        }
        Ok(Self { folder, name, shown })
    }

    fn fault(&self, why: &'static str) -> FileFault {
        FileFault { path: self.shown.clone(), why }
    }

    fn system(&self, errno: Errno) -> FileFault {
        self.fault(reason(errno))
    }

    fn check_owner(&self, stat: &Stat) -> Result<(), FileFault> {
        match stat.st_uid == rustix::process::geteuid().as_raw() {
            true => Ok(()),
            false => Err(self.fault("belongs to another user; only a file of one's own is used")),
        }
    }

    fn check(&self, stat: &Stat, guard: Guard) -> Result<(), FileFault> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.fault("is not a plain file"));
        }
        self.check_owner(stat)?;
        match guard {
            Guard::Private if stat.st_mode & 0o077 != 0 => {
                Err(self.fault("can be read or written by others; run `chmod 600` on it"))
            }
            Guard::Readable if stat.st_mode & 0o022 != 0 => {
                Err(self.fault("can be written by others; run `chmod go-w` on it"))
            }
            _ => Ok(()),
        }
    }
}

/// Reads a whole file of at most `max` bytes. No link is followed at its end; the buffer is wiped when dropped.
pub(crate) fn read(path: &Path, guard: Guard, max: usize) -> Result<Zeroizing<Vec<u8>>, FileFault> {
    let entry = Entry::at(path)?;
    // NONBLOCK: opening a pipe that somebody put there must not wait.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = openat(&entry.folder, entry.name.as_str(), flags, Mode::empty())
        .map_err(|errno| entry.system(errno))?;
    // Looked at through the handle, so that nothing can be swapped after the check.
    entry.check(&fstat(&fd).map_err(|errno| entry.system(errno))?, guard)?;
    // One allocation of the full size, so that no copy of a secret stays behind in a smaller one.
    let mut bytes = Zeroizing::new(Vec::with_capacity(max.saturating_add(1)));
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    let read = File::from(fd).take(limit).read_to_end(&mut bytes);
    read.map_err(|_| entry.fault("could not be read"))?;
    if bytes.len() > max {
        return Err(entry.fault("is larger than such a file can be"));
    }
    Ok(bytes)
}

/// Whether what is there, if anything, is a file of one's own that another can take the place of.
pub(crate) fn can_be_replaced(path: &Path) -> Result<(), FileFault> {
    let entry = Entry::at(path)?;
    let stat = match statat(&entry.folder, entry.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(entry.system(errno)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => entry.check_owner(&stat),
        _ => Err(entry.fault("is not a plain file")),
    }
}

/// Exclusive use of a file among processes, by a file beside it. Ends with the value. Who writes the file has it.
pub(crate) struct Locked {
    entry: Entry,
    /// The lock ends when it is closed.
    _lock: OwnedFd,
}

impl Locked {
    /// Puts a file with these bytes in the place of what is there, whole and synced or not at all. 0600 under any umask.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), FileFault> {
        let entry = &self.entry;
        self.beside(bytes, |temp| {
            renameat(&entry.folder, temp, &entry.folder, entry.name.as_str())?;
            Ok(fsync(&entry.folder)?)
        })
    }

    /// Does the same without the end of it: a file is written, and is not put there.
    pub(crate) fn rehearse(&self) -> Result<(), FileFault> {
        self.beside(b"{}\n", |temp| Ok(unlinkat(&self.entry.folder, temp, AtFlags::empty())?))
    }

    /// Writes a file beside this one. It has one name, so that what a killed writer left is gone with the next one.
    fn beside(
        &self,
        bytes: &[u8],
        then: impl FnOnce(&str) -> io::Result<()>,
    ) -> Result<(), FileFault> {
        let entry = &self.entry;
        let temp = format!(".{}.tmp", entry.name);
        let (create, mode) =
            (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR);
        let flags = create | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _ = unlinkat(&entry.folder, &temp, AtFlags::empty());
        let fd = openat(&entry.folder, &temp, flags, mode).map_err(|errno| entry.system(errno))?;
        let written = fchmod(&fd, mode).map_err(io::Error::from).and_then(|()| {
            let mut file = File::from(fd);
            file.write_all(bytes)?;
            file.sync_all()?;
            then(&temp)
        });
        if written.is_err() {
            let _ = unlinkat(&entry.folder, &temp, AtFlags::empty());
        }
        written.map_err(|_| entry.fault("could not be written"))
    }
}

/// Takes the lock if nobody has it.
pub(crate) fn try_lock(path: &Path) -> Result<Option<Locked>, FileFault> {
    let entry = Entry::at(path)?;
    let name = format!(".{}.lock", entry.name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(&entry.folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| entry.system(errno))?;
    entry.check(&fstat(&fd).map_err(|errno| entry.system(errno))?, Guard::Private)?;
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Locked { entry, _lock: fd })),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
        Err(errno) => Err(entry.system(errno)),
    }
}

fn reason(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "does not exist",
        Errno::LOOP => "is a link, and links are not followed",
        Errno::NOTDIR => "lies in something that is no folder",
        Errno::ACCESS | Errno::PERM => "cannot be reached by this user",
        Errno::NOSPC | Errno::DQUOT => "has no space left to be written",
        _ => "cannot be used",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }

    fn why(path: &Path) -> Option<&'static str> {
        read(path, Guard::Private, 16).err().map(|fault| fault.why)
    }

    #[test]
    fn only_a_private_plain_file_of_ones_own_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        assert_eq!(why(&path), Some("does not exist"));
        fs::write(&path, "0123456789").expect("written");
        for mode in [0o640, 0o604, 0o620, 0o602, 0o644] {
            chmod(&path, mode);
            assert!(why(&path).is_some_and(|why| why.contains("chmod 600")), "{mode:o}");
        }
        chmod(&path, 0o600);
        assert_eq!(read(&path, Guard::Private, 16).expect("read").as_slice(), b"0123456789");
        assert!(read(&path, Guard::Private, 9).is_err_and(|fault| fault.why.contains("larger")));
        let link = folder.path().join("link");
        symlink(&path, &link).expect("linked");
        assert!(why(&link).is_some_and(|why| why.contains("link")));
        assert_eq!(why(folder.path()), Some("is not a plain file"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        assert_eq!(why(&pipe), Some("is not a plain file"));
        chmod(folder.path(), 0o777);
        assert!(why(&path).is_some_and(|why| why.contains("folder that others")));
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            portcullis_testkit::skip::skip("giving a file away needs root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        fs::write(&path, "0123456789").expect("written");
        chmod(&path, 0o600);
        assert_eq!(why(&path), None);
        std::os::unix::fs::chown(&path, Some(65534), None).expect("given away");
        assert!(why(&path).is_some_and(|why| why.contains("another user")));
    }

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        // What a writer left that was killed before it was done.
        fs::write(folder.path().join(".tokens.tmp"), "half").expect("written");
        let locked = try_lock(&path).expect("usable").expect("free");
        locked.replace(b"one").expect("written");
        locked.replace(b"two").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o600);
        assert_eq!(beside(folder.path()), [".tokens.lock", "tokens"]);
    }

    fn beside(folder: &Path) -> Vec<String> {
        let all =
            fs::read_dir(folder).expect("listed").map(|entry| entry.expect("one").file_name());
        let mut all: Vec<_> = all.map(|name| name.into_string().expect("text")).collect();
        all.sort();
        all
    }

    #[test]
    fn what_a_file_would_be_put_in_the_place_of_is_looked_at_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let why = |path: &Path| can_be_replaced(path).err().map(|fault| fault.why);
        assert_eq!(why(&path), None, "nothing is there");
        fs::write(&path, "old").expect("written");
        let locked = try_lock(&path).expect("usable").expect("free");
        locked.rehearse().expect("it can be written");
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(beside(folder.path()), [".tokens.lock", "tokens"]);
        assert_eq!(why(&path), None);
        assert_eq!(why(folder.path()), Some("is not a plain file"));
        let link = folder.path().join("link");
        symlink(&path, &link).expect("linked");
        assert_eq!(why(&link), Some("is not a plain file"));
        assert_eq!(why(&folder.path().join("none/tokens")), Some("does not exist"));
        chmod(folder.path(), 0o777);
        assert!(why(&path).is_some_and(|why| why.contains("folder that others")));
        // A folder in which something stands in the way that is no file.
        chmod(folder.path(), 0o700);
        fs::create_dir(folder.path().join(".tokens.tmp")).expect("made");
        assert!(locked.rehearse().is_err());
    }

    #[test]
    fn one_holds_the_lock_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let first = try_lock(&path).expect("usable");
        assert!(first.is_some() && try_lock(&path).expect("usable").is_none());
        drop(first);
        assert!(try_lock(&path).expect("usable").is_some());
    }
}
