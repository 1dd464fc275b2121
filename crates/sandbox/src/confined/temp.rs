//! Creating a file: written under a name that nobody guesses, then given its own name in one step.

use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, flock, fstat, fsync, openat2,
    renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr, write};

use super::entry::Identity;
use super::path::may_create;
use super::{Fault, FileError, RelPath, Root, TEMP_PREFIX};

/// How long a change waits for another one in the same directory.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long it waits before it asks again.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// A file under a temporary name, removed when dropped unless it was given away.
pub(super) struct Temp<'d> {
    dir: BorrowedFd<'d>,
    name: String,
    file: OwnedFd,
    armed: bool,
}

impl<'d> Temp<'d> {
    /// Writes a new file and makes its content durable.
    pub(super) fn write(dir: &'d OwnedFd, bytes: &[u8], mode: Mode) -> Result<Self, Fault> {
        let name = unguessable_name()?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let file = retry_on_intr(|| openat2(dir, name.as_str(), flags, mode, resolve))?;
        let mut temp = Self { dir: dir.as_fd(), name, file, armed: true };
        temp.claim();
        write_all(&temp.file, bytes)?;
        Ok(temp)
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn sync(&self) -> Result<(), Fault> {
        retry_on_intr(|| fsync(&self.file)).map_err(Fault::from)
    }

    /// Locks the file, and then gives it a name that says which inode it is, so that a sweep after our death knows it.
    /// Where either cannot be had, nobody will sweep it.
    fn claim(&mut self) {
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let Ok(raw) = fstat(&self.file) else { return };
        let claimed = format!("{}-{}", self.name, raw.st_ino);
        if rename_new(self.dir, &self.name, self.dir, &claimed).is_ok() {
            self.name = claimed;
        }
    }

    /// Takes a name that no sweep knows: what is under it from now on can be somebody else's.
    pub(super) fn unclaim(&mut self) -> Result<(), Fault> {
        let plain = unguessable_name()?;
        rename_new(self.dir, &self.name, self.dir, &plain)?;
        self.name = plain;
        Ok(())
    }

    /// Nothing under the temporary name is ours to remove any more.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }

    /// Gives the file its name, unless that name is taken.
    fn publish(mut self, name: &str) -> Result<(), Fault> {
        rename_new(self.dir, &self.name, self.dir, name)?;
        self.disarm();
        let ours = fstat(&self.file).map_err(Fault::in_doubt)?;
        let there = statat(self.dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Fault::in_doubt)?;
        if Identity::of(&ours) != Identity::of(&there) {
            return Err(Fault::in_doubt(Errno::STALE));
        }
        sync_dir(self.dir)
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.armed {
            // Best effort: what stays is swept when the root is opened the next time.
            let _ = unlinkat(self.dir, self.name.as_str(), AtFlags::empty());
        }
    }
}

impl Root {
    /// Creates a file with this content. Nothing is overwritten, nobody sees it half written, and it is durable
    /// when this returns. Its permissions are 0666 less the process's umask.
    ///
    /// # Errors
    /// The name is taken (by anything, a dangling link too) or may not be created, its directory is missing or
    /// refused, or the space is used up.
    pub fn create(&self, path: &RelPath, bytes: &[u8]) -> Result<(), FileError> {
        self.create_inner(path, bytes).map_err(|fault| FileError::new(path, fault))
    }

    fn create_inner(&self, path: &RelPath, bytes: &[u8]) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        require_new_name(&dir, name)?;
        let temp = Temp::write(&dir, bytes, Mode::from_raw_mode(0o666))?;
        temp.sync()?;
        temp.publish(name)
    }
}

/// A name that may be created and is free now. Whether it is free at the end, the kernel says again.
pub(super) fn require_new_name(dir: impl AsFd, name: &str) -> Result<(), Fault> {
    if !may_create(name) {
        return Err(Fault::BadName);
    }
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Fault::Exists),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Renames, never onto an existing name.
pub(super) fn rename_new(
    from_dir: impl AsFd,
    from: &str,
    to_dir: impl AsFd,
    to: &str,
) -> Result<(), Fault> {
    rename_flagged(from_dir, from, to_dir, to, RenameFlags::NOREPLACE)
}

/// Swaps two names in one step.
pub(super) fn exchange(dir: impl AsFd, one: &str, other: &str) -> Result<(), Fault> {
    rename_flagged(dir.as_fd(), one, dir.as_fd(), other, RenameFlags::EXCHANGE)
}

fn rename_flagged(
    from_dir: impl AsFd,
    from: &str,
    to_dir: impl AsFd,
    to: &str,
    flags: RenameFlags,
) -> Result<(), Fault> {
    match retry_on_intr(|| renameat_with(from_dir.as_fd(), from, to_dir.as_fd(), to, flags)) {
        // A file system that does not know the flag says "invalid argument".
        Err(Errno::INVAL) => Err(Fault::Unsupported),
        other => other.map_err(Fault::from),
    }
}

/// Keeps other replacements and removals of ours, in this process or another, out of this directory until the
/// handle is closed. It is advice, so that our own writers never see each other half-way; against everybody else
/// the checks after the swap count.
#[expect(clippy::disallowed_methods, reason = "flock has no deadline of its own")]
pub(super) fn lock(dir: &OwnedFd) -> Result<(), Fault> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        // Looked at before the lock, so that a process that was stopped for longer than this tries once more.
        let last = Instant::now() >= end;
        match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if !last => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(Fault::Busy),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Makes a change of names durable. Called after the change, so that a failure leaves it in doubt.
pub(super) fn sync_dir(dir: impl AsFd) -> Result<(), Fault> {
    retry_on_intr(|| fsync(dir.as_fd())).map_err(Fault::in_doubt)
}

pub(super) fn unguessable_name() -> Result<String, Fault> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).map_err(|_| Fault::Unsupported)?;
    let mut name = String::with_capacity(TEMP_PREFIX.len() + 32);
    name.push_str(TEMP_PREFIX);
    for byte in random {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    Ok(name)
}

/// The inode of which a claimed name speaks.
pub(super) fn claimed_inode(name: &str) -> Option<u64> {
    let (random, inode) = name.strip_prefix(TEMP_PREFIX)?.split_once('-')?;
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let number: u64 = inode.parse().ok()?;
    let fits = random.len() == 32 && random.bytes().all(hex) && number.to_string() == inode;
    fits.then_some(number)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Fault> {
    while !bytes.is_empty() {
        let count = retry_on_intr(|| write(file, bytes))?;
        if count == 0 {
            return Err(Fault::Full);
        }
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}
