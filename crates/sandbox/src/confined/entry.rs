//! What an entry is: its kind, size and identity.

use std::fmt;

use rustix::fs::{FileType, Stat as RawStat};

/// The kinds of directory entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
    /// Something that this crate does not know.
    Other,
}

impl Kind {
    fn of(mode: u32) -> Self {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Other,
        }
    }

    /// One lowercase word: `file`, `directory`, `link`, `fifo`, `socket`, `device` or `other`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "link",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Other => "something unknown",
        };
        f.write_str(text)
    }
}

/// What is known of one entry without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Bytes, for a regular file; 0 for everything else.
    pub size: u64,
    /// How many names the file has.
    pub links: u64,
    /// Permission bits, without the file type.
    pub mode: u32,
    /// Last change of the content, in seconds since 1970, UTC.
    pub modified: i64,
}

impl Stat {
    pub(super) fn of(raw: &RawStat) -> Self {
        let kind = Kind::of(raw.st_mode);
        let size = if kind == Kind::File { u64::try_from(raw.st_size).unwrap_or(0) } else { 0 };
        Self { kind, size, links: links(raw), mode: raw.st_mode & 0o7777, modified: raw.st_mtime }
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_fallible_conversions,
    reason = "the width differs by architecture"
)]
fn links(raw: &RawStat) -> u64 {
    u64::try_from(raw.st_nlink).unwrap_or(u64::MAX)
}

/// Which file it is: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(pub(super) u64, pub(super) u64);

impl Identity {
    pub(super) fn of(raw: &RawStat) -> Self {
        Self(raw.st_dev, raw.st_ino)
    }
}

/// Identity and everything that a change of the content moves. `ctime` is apart, since a rename moves it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    identity: Identity,
    size: i64,
    mtime: (i64, i64),
}

impl Version {
    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_fallible_conversions,
        reason = "the width differs by architecture"
    )]
    pub(super) fn of(raw: &RawStat) -> Self {
        let nanos = i64::try_from(raw.st_mtime_nsec).unwrap_or(-1);
        Self { identity: Identity::of(raw), size: raw.st_size, mtime: (raw.st_mtime, nanos) }
    }
}
