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

use crate::failure::Failure;

const PREFIX: &str = "portcullis-";

/// Hexadecimal digits after the prefix.
const DIGITS: usize = 24;

/// A folder that is younger may just be being made, and not be locked yet.
const SETTLED: Duration = Duration::from_secs(60);

/// The most folders that one command removes.
const MOST: usize = 64;

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
        let held = hold(&path).map_err(|errno| failed(&errno.into()))?;
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

/// Opens a folder, no link, and locks it, unless somebody else has.
fn hold(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = open(path, flags, Mode::empty())?;
    flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
    Ok(handle.into())
}

/// Removes what killed commands of this user left behind. What cannot be removed stays.
fn sweep(temporary: &Path, settled: Duration) {
    let Ok(entries) = std::fs::read_dir(temporary) else { return };
    let names = entries.flatten().filter(|entry| is_ours(&entry.file_name().to_string_lossy()));
    for entry in names.take(MOST) {
        let path = entry.path();
        let Ok(held) = hold(&path) else { continue };
        if is_left(&held, settled) {
            remove(&path);
        }
    }
}

fn is_ours(name: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.len() == DIGITS && rest.bytes().all(digit))
}

/// Whether a locked folder is one that this user's command made, a while ago.
fn is_left(held: &File, settled: Duration) -> bool {
    let Ok(stat) = fstat(held) else { return false };
    let now = SystemClock::new().now().micros() / 1_000_000;
    let settled = i64::try_from(settled.as_secs()).unwrap_or(i64::MAX);
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && stat.st_mode & 0o7777 == 0o700
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && now.saturating_sub(stat.st_mtime) >= settled
}

#[expect(
    clippy::disallowed_methods,
    reason = "a folder that this command drew and locked; links in it are not followed"
)]
fn remove(path: &Path) {
    // What the program left behind and made unremovable stays.
    let _ = std::fs::remove_dir_all(path);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

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
            std::fs::create_dir_all(path.join("deep")).unwrap();
            std::fs::write(path.join("deep/file"), "x").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let open = at("portcullis-ffffffffffffffffffffffff");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
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
}
