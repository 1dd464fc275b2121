//! The files that a server's program is made of, as they were on the day of the pin.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use portcullis_canon::{Digest, Hasher, Kind, sanitize};
use rustix::fs::{Mode, OFlags};

/// The most files of one server.
pub const MAX_PINNED_FILES: usize = 64;

/// The largest of them, in bytes: 1 GiB.
pub const MAX_PINNED_FILE_BYTES: u64 = 1 << 30;

/// What some files held, by their absolute paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedFiles(BTreeMap<String, Digest>);

/// Why files cannot be pinned, or are not what was pinned. Every message is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// It cannot be read.
    #[error("the pinned file {path} cannot be read: {why}")]
    Unreadable {
        /// The path, quoted.
        path: String,
        /// What the system says.
        why: String,
    },
    /// It is a folder, a pipe or a device.
    #[error("{0} is no file, so it cannot be pinned")]
    NotAFile(String),
    /// It is larger than [`MAX_PINNED_FILE_BYTES`].
    #[error("{0} is larger than {MAX_PINNED_FILE_BYTES} bytes, so it cannot be pinned")]
    TooLarge(String),
    /// Its path is not absolute, or no UTF-8 text.
    #[error("{0} is not an absolute path in UTF-8, so it cannot be pinned")]
    Path(String),
    /// There are more than [`MAX_PINNED_FILES`].
    #[error("a server has at most {MAX_PINNED_FILES} pinned files")]
    TooMany,
    /// It was never pinned.
    #[error("{0} was never pinned; look at it, then pin the server again")]
    Unpinned(String),
    /// It holds something else.
    #[error("{0} is not as it was pinned; look at who changed it, then pin the server again")]
    Changed(String),
}

impl PinnedFiles {
    /// Reads these files as they are now.
    ///
    /// # Errors
    /// [`FileFault`]; a link is followed to the file that it leads to.
    pub fn read<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self, FileFault> {
        let mut files = BTreeMap::new();
        for path in paths {
            let text = path.to_str().filter(|_| path.is_absolute());
            let text = text.ok_or_else(|| FileFault::Path(quoted(path)))?;
            files.insert(text.to_owned(), digest(path)?);
            if files.len() > MAX_PINNED_FILES {
                return Err(FileFault::TooMany);
            }
        }
        Ok(Self(files))
    }

    /// What a manifest says; `None` when a path is not absolute or there are too many.
    pub(super) fn stated(files: BTreeMap<String, Digest>) -> Option<Self> {
        let fit = files.len() <= MAX_PINNED_FILES
            && files.keys().all(|path| Path::new(path).is_absolute());
        fit.then_some(Self(files))
    }

    /// Paths and digests, sorted by path.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Digest)> {
        self.0.iter().map(|(path, digest)| (path.as_str(), *digest))
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of `now` that are not as they stand here, in order.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<FileFault> {
        let fault = |(path, digest): (&String, &Digest)| match self.0.get(path) {
            Some(pinned) if pinned == digest => None,
            Some(_) => Some(FileFault::Changed(quoted(Path::new(path)))),
            None => Some(FileFault::Unpinned(quoted(Path::new(path)))),
        };
        now.0.iter().filter_map(fault).collect()
    }

    /// Those of `paths` that are pinned here, and nothing else.
    ///
    /// # Errors
    /// [`FileFault::Unpinned`] and [`FileFault::Path`].
    pub fn only<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Result<Self, FileFault> {
        let one = |path: &Path| {
            let text = path.to_str().ok_or_else(|| FileFault::Path(quoted(path)))?;
            let pinned = self.0.get_key_value(text);
            let pinned = pinned.ok_or_else(|| FileFault::Unpinned(quoted(path)))?;
            Ok((pinned.0.clone(), *pinned.1))
        };
        paths.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Looks at each file: whether it holds what it held then.
    ///
    /// It is a look and no lock: who can write a file can do so between this and the start of the program.
    ///
    /// # Errors
    /// The first that is not as it was.
    pub fn check(&self) -> Result<(), FileFault> {
        let now = Self::read(self.0.keys().map(Path::new))?;
        self.differences(&now).into_iter().next().map_or(Ok(()), Err)
    }
}

/// The digest of a plain file, read in pieces.
fn digest(path: &Path) -> Result<Digest, FileFault> {
    let failed =
        |error: &io::Error| FileFault::Unreadable { path: quoted(path), why: error.to_string() };
    // NONBLOCK: opening a pipe that somebody put there must not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
    let file = file.map_err(|errno| failed(&errno.into()))?;
    let meta = file.metadata().map_err(|error| failed(&error))?;
    if !meta.is_file() {
        return Err(FileFault::NotAFile(quoted(path)));
    }
    let mut left = file.take(MAX_PINNED_FILE_BYTES.saturating_add(1));
    let (mut hasher, mut piece) = (Hasher::new(Kind::File), vec![0; 64 * 1024]);
    loop {
        let read = left.read(&mut piece).map_err(|error| failed(&error))?;
        let Some(bytes @ [_, ..]) = piece.get(..read) else { break };
        hasher.update(bytes);
    }
    if left.limit() == 0 {
        return Err(FileFault::TooLarge(quoted(path)));
    }
    Ok(hasher.finish())
}

fn quoted(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;

    format!("`{}`", sanitize::line_bytes(path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::fs;

    use rustix::fs::{CWD, FileType};

    use super::*;

    #[test]
    fn what_changed_is_told_from_what_was_never_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let (program, lock) = (folder.path().join("bank"), folder.path().join("bank.lock"));
        fs::write(&program, "one").unwrap();
        fs::write(&lock, "two").unwrap();
        let pinned = PinnedFiles::read([program.as_path()]).unwrap();
        assert_eq!(pinned.iter().next().unwrap().1, Digest::of(Kind::File, b"one"));
        assert_eq!(pinned.check(), Ok(()));
        let both = PinnedFiles::read([program.as_path(), &lock]).unwrap();
        assert_eq!(pinned.differences(&both), [FileFault::Unpinned(quoted(&lock))]);
        assert_eq!(pinned.only([lock.as_path()]), Err(FileFault::Unpinned(quoted(&lock))));
        assert_eq!(both.only([program.as_path()]), Ok(pinned.clone()));
        fs::write(&program, "on\u{65}!").unwrap();
        assert_eq!(pinned.check(), Err(FileFault::Changed(quoted(&program))));
        fs::remove_file(&program).unwrap();
        assert!(matches!(pinned.check(), Err(FileFault::Unreadable { .. })));
    }

    #[test]
    fn only_plain_files_of_some_size_are_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let fault = |path: &Path| PinnedFiles::read([path]).unwrap_err();
        assert_eq!(fault(folder.path()), FileFault::NotAFile(quoted(folder.path())));
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(fault(&pipe), FileFault::NotAFile(quoted(&pipe)));
        assert_eq!(fault(Path::new("bank")), FileFault::Path("`bank`".to_owned()));
        let large = folder.path().join("large");
        fs::File::create(&large).unwrap().set_len(MAX_PINNED_FILE_BYTES + 1).unwrap();
        assert_eq!(fault(&large), FileFault::TooLarge(quoted(&large)));
        let many: Vec<_> =
            (0..=MAX_PINNED_FILES).map(|n| folder.path().join(n.to_string())).collect();
        many.iter().for_each(|path| fs::write(path, "").unwrap());
        let read = PinnedFiles::read(many.iter().map(|path| path.as_path()));
        assert_eq!(read, Err(FileFault::TooMany));
    }
}
