//! What is asked for, and what was enforced.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where programs are looked for unless the operator says otherwise.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What of the network an agent may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// No sockets at all.
    #[default]
    Denied,
    /// Internet sockets; still none to other programs on this machine by file name.
    Open,
}

/// What a confined agent may use up. Each holds for one process, but for `processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory of its own that a process may write to. It may reserve four times as many addresses, since
    /// some runtimes reserve far more than they touch.
    pub memory: u64,
    /// Bytes of the largest file that may be written.
    pub file_size: u64,
    /// Processes and threads of this user on the whole machine beyond which the agent can start none. The kernel
    /// does not hold root to it.
    pub processes: u64,
    /// Open files.
    pub open_files: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { memory: 4 << 30, file_size: 1 << 30, processes: 4_096, open_files: 256 }
    }
}

/// One agent program and its bounds.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// A name to look for on `search_path`, or a path with a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory, the only place where it may write. Must exist.
    pub scratch: PathBuf,
    /// What it may read and execute beside system folders and the program's own folder.
    pub readable: Vec<PathBuf>,
    /// What it must not reach: state, keys, policy, the governed root, our own binary. An allowed folder that
    /// contains one of them is allowed entry by entry, without it.
    pub forbidden: Vec<PathBuf>,
    /// False: no Landlock, no socket filter, capabilities kept. For an operator who said so.
    pub confined: bool,
    /// True: a small process of ours stays between, by which every descendant is found and ended with the program,
    /// and with this process however it ends. It runs as the same user: an unconfined program can kill it.
    pub kept: bool,
    /// What of the network it may use, when confined.
    pub network: Network,
    /// Folders where programs are looked for, separated by colons.
    pub search_path: OsString,
    /// The operator's home, of which no folder is opened whole unless it is the program's own.
    pub home: Option<PathBuf>,
    /// What it may use up, when confined.
    pub bounds: Bounds,
}

impl AgentSpec {
    /// A confined program without arguments, environment or network.
    #[must_use]
    pub fn new(program: impl Into<OsString>, scratch: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            scratch: scratch.into(),
            readable: Vec::new(),
            forbidden: Vec::new(),
            confined: true,
            kept: false,
            network: Network::Denied,
            search_path: DEFAULT_PATH.into(),
            home: None,
            bounds: Bounds::default(),
        }
    }
}

/// What the child found enforced on itself, by trying, before it became the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The Landlock version in force; 0 when unconfined.
    pub landlock_abi: u32,
    /// Every Landlock right that this version knows is enforced. False on an older kernel, which enforces what is
    /// required (all rights on files, Linux 6.2) and lacks some of the rest; less than that is never started.
    pub fully_enforced: bool,
    /// Neither TCP nor UDP nor local sockets can be made.
    pub network_denied: bool,
    /// Signals do not reach the parent.
    pub signals_scoped: bool,
}
