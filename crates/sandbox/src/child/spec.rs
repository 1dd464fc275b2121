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
    /// What of the network it may use, when confined.
    pub network: Network,
    /// Folders where programs are looked for, separated by colons.
    pub search_path: OsString,
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
            network: Network::Denied,
            search_path: DEFAULT_PATH.into(),
        }
    }
}

/// What the child found enforced on itself, by trying, before it became the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The Landlock version in force; 0 when unconfined.
    pub landlock_abi: u32,
    /// Every Landlock right asked for is enforced and every forbidden path was refused.
    pub fully_enforced: bool,
    /// Neither TCP nor UDP nor local sockets can be made.
    pub network_denied: bool,
    /// Signals do not reach the parent.
    pub signals_scoped: bool,
}
