//! The one way to resolve a path: beneath a held directory, no links, no other file system.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::entry::{Identity, Kind, Stat};
use super::{Fault, RelPath, Root};

/// How often a lookup is tried again when it was interrupted or renames raced with it.
const ATTEMPTS: u32 = 16;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens `path` beneath `dir`.
pub(super) fn beneath(dir: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Fault> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut last = Errno::AGAIN;
    for _ in 0..ATTEMPTS {
        match openat2(dir.as_fd(), path, flags, Mode::empty(), BENEATH) {
            Err(errno @ (Errno::INTR | Errno::AGAIN)) => last = errno,
            other => return other.map_err(Fault::from),
        }
    }
    Err(last.into())
}

/// A handle that only identifies: opening it touches neither device nor pipe, and works on a link itself.
pub(super) fn probe(dir: impl AsFd, path: &str) -> Result<(OwnedFd, rustix::fs::Stat), Fault> {
    let handle = beneath(dir, path, OFlags::PATH)?;
    let raw = fstat(&handle)?;
    Ok((handle, raw))
}

/// Opens a regular file with exactly one name, having made sure of both before it is touched and again after.
pub(super) fn regular(
    dir: impl AsFd,
    path: &str,
    access: OFlags,
) -> Result<(OwnedFd, rustix::fs::Stat), Fault> {
    let (_handle, seen) = probe(dir.as_fd(), path)?;
    require_regular(&seen)?;
    // Non-blocking and not controlling, for the case that something else was put there since.
    let file = beneath(dir, path, access | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let raw = fstat(&file)?;
    if Identity::of(&seen) != Identity::of(&raw) {
        return Err(Fault::Changed);
    }
    require_regular(&raw)?;
    Ok((file, raw))
}

/// A regular file with exactly one name.
pub(super) fn require_regular(raw: &rustix::fs::Stat) -> Result<(), Fault> {
    let stat = Stat::of(raw);
    match (stat.kind, stat.links) {
        (Kind::Link, _) => Err(Fault::Link),
        (Kind::File, 1) => Ok(()),
        // No name left: it was removed after it was found.
        (Kind::File, 0) => Err(Fault::Changed),
        (Kind::File, _) => Err(Fault::HardLinked),
        (kind, _) => Err(Fault::NotRegular(kind)),
    }
}

impl Root {
    /// The held directory in which `path` has its name, and that name.
    pub(super) fn parent<'p>(&self, path: &'p RelPath) -> Result<(OwnedFd, &'p str), Fault> {
        let (dir, name) = path.split().ok_or(Fault::BadName)?;
        Ok((self.directory(if dir.is_empty() { "." } else { dir })?, name))
    }

    pub(super) fn directory(&self, path: &str) -> Result<OwnedFd, Fault> {
        beneath(self.handle(), path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|fault| {
            // With O_DIRECTORY the kernel says "not a directory" of a link too; say which it is.
            match fault {
                Fault::NotDirectory if self.is_link(path) => Fault::Link,
                other => other,
            }
        })
    }

    fn is_link(&self, path: &str) -> bool {
        probe(self.handle(), path).is_ok_and(|(_, raw)| Stat::of(&raw).kind == Kind::Link)
    }
}
