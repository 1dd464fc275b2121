//! Files beneath a held directory.
//!
//! A [`Root`] is a directory handle. Every operation resolves its [`RelPath`] beneath that handle in one kernel
//! call which follows no link and enters no other file system, and works on the handle that comes back: no path
//! is checked and then used, and no absolute path is ever returned.
//!
//! What stays possible, since Linux has no operation against it: somebody with the same rights who holds a file
//! open can write to it while it is being replaced or removed, and somebody who may rename directories can carry a
//! directory out of the root while a handle to it is in use.

mod entry;
mod fault;
mod list;
mod moves;
mod open;
mod overlap;
mod path;
mod read;
mod remove;
mod replace;
mod root;
mod sweep;
mod temp;
mod walk;

pub use entry::{Kind, Stat};
pub use fault::{Fault, FileError};
pub use list::{Entry, Listing, MAX_SCAN};
pub use path::{MAX_DEPTH, MAX_PART, MAX_PATH, PathError, RelPath, TEMP_PREFIX};
pub use root::Root;
pub use sweep::Swept;
pub use walk::{WalkLimits, WalkSummary};
