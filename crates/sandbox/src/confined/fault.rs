//! What can be wrong with a file operation.

use rustix::io::Errno;
use thiserror::Error;

use super::{Kind, RelPath};

/// A refused or failed operation: where, and what was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}`: {fault}")]
pub struct FileError {
    /// The path as the caller named it. Its display form is escaped.
    pub path: RelPath,
    /// What was wrong.
    pub fault: Fault,
}

impl FileError {
    pub(super) fn new(path: &RelPath, fault: Fault) -> Self {
        Self { path: path.clone(), fault }
    }
}

/// The kinds of fault. Every one but [`Fault::InDoubt`] means that nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// There is nothing of that name.
    #[error("does not exist")]
    NotFound,
    /// The name is taken, and nothing is ever overwritten.
    #[error("already exists")]
    Exists,
    /// A symbolic link stands at the end of the path or on the way; links are never followed.
    #[error("is, or leads through, a symbolic link")]
    Link,
    /// Not a regular file.
    #[error("is not a regular file but {0}")]
    NotRegular(Kind),
    /// The file has other names, perhaps outside the root.
    #[error("has more than one hard link")]
    HardLinked,
    /// More bytes than the caller allows.
    #[error("holds {size} bytes, more than the cap of {cap}")]
    TooLarge {
        /// The size found, in bytes; a lower bound when the file grew while it was read.
        size: u64,
        /// The cap, in bytes.
        cap: u64,
    },
    /// Somebody else changed it meanwhile, or it is not what the caller expected.
    #[error("is not, or is no longer, what was expected")]
    Changed,
    /// The operating system refused.
    #[error("permission denied")]
    Denied,
    /// No space, or no quota.
    #[error("no space left")]
    Full,
    /// Another file system is mounted on the way.
    #[error("leads into another file system")]
    CrossDevice,
    /// A directory was needed.
    #[error("is not a directory")]
    NotDirectory,
    /// The directory still has entries (perhaps hidden leftovers of ours).
    #[error("is a directory that is not empty")]
    NotEmpty,
    /// The name may not be created: control characters, marks of text direction, or empty.
    #[error("is not a name that may be created")]
    BadName,
    /// Another change in the same directory did not end in time.
    #[error("is in a directory where another change is under way")]
    Busy,
    /// A directory cannot move into itself.
    #[error("cannot move into itself")]
    IntoItself,
    /// The kernel or file system lacks an operation that confinement needs.
    #[error("the kernel or file system lacks an operation that is needed here")]
    Unsupported,
    /// The change may or may not have happened, or may not survive a loss of power.
    #[error("the change may have happened (system error {0})")]
    InDoubt(i32),
    /// Another system error, by number.
    #[error("system error {0}")]
    Io(i32),
}

impl Fault {
    /// True when the operation may have had an effect, so that its outcome is unknown.
    #[must_use]
    pub const fn effect_possible(self) -> bool {
        matches!(self, Self::InDoubt(_))
    }

    pub(super) fn in_doubt(errno: Errno) -> Self {
        Self::InDoubt(errno.raw_os_error())
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::EXIST => Self::Exists,
            Errno::LOOP => Self::Link,
            Errno::ISDIR => Self::NotRegular(Kind::Directory),
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY => Self::Denied,
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            Errno::XDEV => Self::CrossDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::NAMETOOLONG => Self::BadName,
            // openat2 gives AGAIN when renames keep racing with the lookup, STALE is their network form.
            Errno::AGAIN | Errno::STALE => Self::Changed,
            Errno::NOSYS | Errno::OPNOTSUPP => Self::Unsupported,
            other => Self::Io(other.raw_os_error()),
        }
    }
}
