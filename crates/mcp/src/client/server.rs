//! What the operator says of one server that is a program.

use std::ffi::OsString;
use std::path::PathBuf;

use portcullis_sandbox::child::DEFAULT_PATH;

use crate::pin::PinnedFiles;

/// One server: its program, and what it is given.
///
/// It is not confined: it runs as this user and reaches what this user reaches. That it is told nothing of our own
/// files, gets an environment and a home of its own, and ends with all that it started is not a sandbox.
#[derive(Clone, Debug)]
pub struct StdioServer {
    /// A name to look for on `search_path`, or a path with a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What it finds in its environment beside `PATH`, `HOME` and `TMPDIR`, or instead of them.
    pub env: Vec<(OsString, OsString)>,
    /// Folders where programs are looked for, separated by colons: its `PATH` too.
    pub search_path: OsString,
    /// A private, empty folder for this session alone: its home, its working directory and its temporary files lie
    /// there. Whoever made it removes it, after the session was dropped.
    pub room: PathBuf,
    /// Our own files: the database, the configuration, manifests, keys. An argument or variable that names one of
    /// them, or a folder that one lies in, refuses the start.
    pub ours: Vec<PathBuf>,
    /// Files that have to be as they were pinned, looked at right before each start; the program may be one.
    pub pinned: PinnedFiles,
    /// What a leading `~` in an argument means to the operator.
    pub operators_home: Option<PathBuf>,
    /// A program whose `main` calls [`run_if_child`](portcullis_sandbox::child::run_if_child) first: our own.
    pub helper_exe: PathBuf,
}

impl StdioServer {
    /// A program without arguments, started by way of this process's own binary.
    #[must_use]
    pub fn new(program: impl Into<OsString>, room: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            search_path: DEFAULT_PATH.into(),
            room: room.into(),
            ours: Vec::new(),
            pinned: PinnedFiles::default(),
            operators_home: None,
            helper_exe: PathBuf::from("/proc/self/exe"),
        }
    }
}
