//! The one folder in which an agent's program may write: drawn for it, 0700, gone afterwards.
//!
//! Whoever has one holds a lock on it. What a killed command left behind is locked by nobody, and the next command that
//! makes one removes it.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis::system::{OsEntropy, SystemClock};
use portcullis_domain::ports::{Clock as _, Entropy as _};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::retry_on_intr;

use crate::failure::Failure;

const PREFIX: &str = "portcullis-";

/// Hexadecimal digits after the prefix.
const DIGITS: usize = 24;

/// A folder that is younger may just be being made, and not be locked yet: nobody else takes its lock.
const SETTLED: Duration = Duration::from_secs(60);

/// The most folders that one command removes.
const MOST: usize = 64;

/// The most names that it looks at for them.
const MOST_NAMES: usize = 10_000;

/// A folder of this process alone.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _held: File,
}

impl Scratch {
    /// Makes it in the system's folder for temporary files, under a name that nobody can guess.
    pub(crate) fn make() -> Result<Self, Failure> {
        Self::make_in(&std::env::temp_dir())
    }

    fn make_in(temporary: &Path) -> Result<Self, Failure> {
        sweep(temporary, SETTLED);
        let mut random = [0_u8; DIGITS / 2];
        OsEntropy.fill(&mut random);
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = temporary.join(format!("{PREFIX}{name}"));
        let failed = |error: &std::io::Error| Failure::io("make", &path, error);
        let mut maker = std::fs::DirBuilder::new();
        maker.mode(0o700).create(&path).map_err(|error| failed(&error))?;
        let held = hold(&path).map_err(|errno| {
            remove(&path);
            failed(&errno.into())
        })?;
        Ok(Self { path, _held: held })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Opens a folder, no link.
fn opened(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map(File::from)
}

/// Opens a folder that this process made and locks it, once whoever looks at it has let it go.
fn hold(path: &Path) -> rustix::io::Result<File> {
    let handle = opened(path)?;
    retry_on_intr(|| flock(&handle, FlockOperation::LockExclusive))?;
    Ok(handle)
}

/// Removes what killed commands of this user left behind. What cannot be removed stays.
fn sweep(temporary: &Path, settled: Duration) {
    if !names_are_kept(temporary) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(temporary) else { return };
    let mut removed = 0;
    for entry in entries.take(MOST_NAMES).flatten() {
        if removed == MOST {
            return;
        }
        if is_ours(&entry.file_name().to_string_lossy()) && is_swept(&entry.path(), settled) {
            removed += 1;
        }
    }
}

/// Whether nobody else can give a folder of this user's another name there, one that looks like ours.
fn names_are_kept(folder: &Path) -> bool {
    let others_write = |mode: u32| mode & 0o022 != 0 && mode & 0o1000 == 0;
    opened(folder).and_then(|handle| fstat(&handle)).is_ok_and(|stat| !others_write(stat.st_mode))
}

/// Removes one folder if it was left behind. It is looked at before it is locked, so that nobody who is making theirs
/// finds it locked, and again afterwards, when nobody has it.
fn is_swept(path: &Path, settled: Duration) -> bool {
    let Ok(handle) = opened(path) else { return false };
    is_left(&handle, settled)
        && flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok()
        && is_left(&handle, settled)
        && remove(path)
}

fn is_ours(name: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.len() == DIGITS && rest.bytes().all(digit))
}

/// Whether a folder is one that this user's command made, a while ago.
fn is_left(handle: &File, settled: Duration) -> bool {
    let Ok(stat) = fstat(handle) else { return false };
    let now = SystemClock::new().now().micros() / 1_000_000;
    let settled = i64::try_from(settled.as_secs()).unwrap_or(i64::MAX);
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && stat.st_mode & 0o7777 == 0o700
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && now.saturating_sub(stat.st_mtime) >= settled
}

#[expect(
    clippy::disallowed_methods,
    reason = "a folder that this command drew or locked; links in it are not followed"
)]
fn remove(path: &Path) -> bool {
    // What the program left behind and made unremovable stays.
    std::fs::remove_dir_all(path).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::fs::{Permissions, create_dir, create_dir_all, read_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// Makes a folder as a killed command leaves it, but for its mode.
    fn folder_of_mode(path: &Path, mode: u32) {
        create_dir(path).unwrap();
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_a_killed_command_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let held = Scratch::make_in(folder.path()).unwrap();
        // As a killed command leaves it: with the program's files in it, and locked by nobody.
        let left = at("portcullis-0123456789abcdef01234567");
        let others = [
            at("portcullis-0123456789abcdef0123456"),
            at("portcullis-0123456789ABCDEF01234567"),
            at("portcullis-demo-0123456789abcdef01234567"),
            at("somebody"),
        ];
        for path in others.iter().chain([&left]) {
            create_dir_all(path.join("deep")).unwrap();
            write(path.join("deep/file"), "x").unwrap();
            set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        }
        let open = at("portcullis-ffffffffffffffffffffffff");
        folder_of_mode(&open, 0o755);
        let link = at("portcullis-eeeeeeeeeeeeeeeeeeeeeeee");
        symlink(at("somebody"), &link).unwrap();
        sweep(folder.path(), SETTLED);
        assert!(left.exists(), "it is too young to be sure");
        sweep(folder.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!(held.path().exists(), "somebody has it");
        assert!(others.iter().chain([&open]).all(|path| path.exists()));
        assert!(link.is_symlink() && at("somebody/deep/file").exists());
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_removed_is_counted_and_not_what_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let there = || read_dir(folder.path()).unwrap().count();
        for number in 0..3 * MOST {
            let mode = if number < 2 * MOST { 0o755 } else { 0o700 };
            folder_of_mode(&folder.path().join(format!("{PREFIX}{number:024x}")), mode);
        }
        folder_of_mode(&folder.path().join(format!("{PREFIX}{:024x}", u64::MAX)), 0o700);
        sweep(folder.path(), Duration::ZERO);
        assert_eq!(there(), 2 * MOST + 1, "as many as one command removes");
        sweep(folder.path(), Duration::ZERO);
        assert_eq!(there(), 2 * MOST, "and the rest");
    }

    #[test]
    fn sweeping_hinders_nobody_who_is_making_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        // Made, and not locked yet.
        let young = folder.path().join(format!("{PREFIX}{:024x}", 0));
        folder_of_mode(&young, 0o700);
        let young = opened(&young).unwrap();
        let is_free = || {
            let free = flock(&young, FlockOperation::NonBlockingLockExclusive).is_ok();
            flock(&young, FlockOperation::Unlock).unwrap();
            free
        };
        let (over, sweeps) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        sweep(folder.path(), SETTLED);
                        sweeps.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let made: Vec<_> =
                (0..200).map(|_| Scratch::make_in(folder.path()).map(drop)).collect();
            let (mut taken, enough) = (0, sweeps.load(Ordering::Relaxed) + 10_000);
            while sweeps.load(Ordering::Relaxed) < enough {
                taken += usize::from(!is_free());
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(taken, 0, "nobody looks at it with a lock");
            let failed: Vec<_> = made.into_iter().filter_map(Result::err).collect();
            assert!(failed.is_empty(), "{failed:?}");
        });
        assert_eq!(read_dir(folder.path()).unwrap().count(), 1);
    }
}
