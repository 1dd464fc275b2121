//! Where heads are kept: a file that only moves forward, or whatever a caller's closure reaches.

use std::io;
use std::path::{Path, PathBuf};

use super::{Head, HeadError, MAX_LINE_BYTES};
use crate::guarded::{FileError, Folder, Guard, beside};

/// The most journals whose heads one file keeps.
const MAX_HEADS: usize = 256;

/// Why a head could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The file or its folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds something else.
    #[error("`{path}` holds something other than heads in line {line}: {source}")]
    Form {
        /// Where.
        path: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        source: HeadError,
    },
    /// Another head of the same length is kept: there are two records.
    #[error("`{path}` keeps another head of this journal at event {seq}: the record was rewritten")]
    Diverged {
        /// Where.
        path: String,
        /// Of both.
        seq: u64,
    },
    /// More journals than one file keeps.
    #[error("`{path}` keeps the heads of {MAX_HEADS} journals already")]
    Full {
        /// Where.
        path: String,
    },
    /// The caller's own way failed.
    #[error("the head could not be handed on: {0}")]
    Handed(#[from] io::Error),
}

/// What became of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is kept.
    Written,
    /// A later one of its journal is kept already, and stays.
    LaterIsKept,
}

/// Keeps heads outside the store.
pub trait HeadSink: Send + Sync {
    /// Keeps a head, durably.
    ///
    /// # Errors
    /// [`SinkError`]; what was kept before is still kept.
    fn keep(&self, head: &Head) -> Result<Kept, SinkError>;
}

/// A file with one line for each journal, replaced whole. A head never gives way to an earlier one.
#[derive(Clone, Debug)]
pub struct FileSink {
    path: PathBuf,
}

impl FileSink {
    /// Heads are kept in this file, which appears with the first one. Its folder must exist.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }
}

impl HeadSink for FileSink {
    fn keep(&self, head: &Head) -> Result<Kept, SinkError> {
        let (folder, name) = beside(&self.path, Guard::Readable)?;
        // Two processes that end at once must not both read, and then both write.
        let _lock = folder.lock()?;
        let mut heads = read_from(&folder, &name)?;
        let full = heads.len() >= MAX_HEADS;
        let same =
            |kept: &&mut Head| (kept.instance, kept.journal) == (head.instance, head.journal);
        match heads.iter_mut().find(same) {
            Some(kept) if kept.seq > head.seq => return Ok(Kept::LaterIsKept),
            Some(kept) if kept.seq == head.seq && kept.hash != head.hash => {
                return Err(SinkError::Diverged { path: folder.shown(&name), seq: head.seq });
            }
            Some(kept) => *kept = head.clone(),
            None if full => {
                return Err(SinkError::Full { path: folder.shown(&name) });
            }
            None => heads.push(head.clone()),
        }
        let text: String = heads.iter().map(|head| head.line() + "\n").collect();
        folder.replace(&name, text.as_bytes())?;
        Ok(Kept::Written)
    }
}

/// The heads that a file keeps; none when there is no file yet.
///
/// Signatures are not checked here: see [`Head::check`].
///
/// # Errors
/// [`SinkError`] when others could have written it, or it holds anything else.
pub fn read_heads(path: &Path) -> Result<Vec<Head>, SinkError> {
    let (folder, name) = beside(path, Guard::Readable)?;
    read_from(&folder, &name)
}

fn read_from(folder: &Folder, name: &str) -> Result<Vec<Head>, SinkError> {
    let text = match folder.read(name, Guard::Readable, MAX_HEADS * MAX_LINE_BYTES) {
        Err(FileError::Missing { .. }) => return Ok(Vec::new()),
        text => text?,
    };
    let form = |line, source| SinkError::Form { path: folder.shown(name), line, source };
    let mut heads = Vec::new();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let line = line.strip_suffix(b"\n").ok_or_else(|| form(number, HeadError::Form))?;
        heads.push(Head::read(line).map_err(|source| form(number, source))?);
    }
    Ok(heads)
}

/// A sink that hands each head's line to a closure: a command's input, a request, a mail.
pub struct FnSink<F>(pub F);

impl<F: Fn(&str) -> io::Result<()> + Send + Sync> HeadSink for FnSink<F> {
    fn keep(&self, head: &Head) -> Result<Kept, SinkError> {
        (self.0)(&head.line())?;
        Ok(Kept::Written)
    }
}
