//! Why an agent was not started.

use std::path::PathBuf;

use thiserror::Error;

/// What the child was doing when it gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[repr(u8)]
pub enum Stage {
    /// Reading what it is to do.
    #[error("reading its orders")]
    Orders = 1,
    /// Making its own session.
    #[error("making its own session")]
    Session = 2,
    /// Arranging to die with its parent.
    #[error("arranging to die with its parent")]
    ParentDeath = 3,
    /// Setting limits.
    #[error("setting limits")]
    Limits = 4,
    /// Entering the scratch folder.
    #[error("entering the scratch folder")]
    Scratch = 5,
    /// Giving up privileges.
    #[error("giving up privileges")]
    Privileges = 6,
    /// Applying Landlock.
    #[error("applying Landlock")]
    Landlock = 7,
    /// Filtering system calls.
    #[error("filtering system calls")]
    Filter = 8,
    /// Finding a forbidden path readable after all.
    #[error("checking that forbidden paths are out of reach")]
    ForbiddenReadable = 9,
    /// Finding the network open after all.
    #[error("checking that the network is out of reach")]
    NetworkOpen = 10,
    /// Becoming the program.
    #[error("starting the program")]
    Exec = 11,
}

impl Stage {
    const ALL: [Self; 11] = [
        Self::Orders,
        Self::Session,
        Self::ParentDeath,
        Self::Limits,
        Self::Scratch,
        Self::Privileges,
        Self::Landlock,
        Self::Filter,
        Self::ForbiddenReadable,
        Self::NetworkOpen,
        Self::Exec,
    ];

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| *stage as u8 == code)
    }
}

/// The agent was not started; nothing of its program ran.
#[derive(Debug, Error)]
pub enum SpawnError {
    /// No such program.
    #[error("there is no program {program:?}")]
    ProgramNotFound {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The program exists and the system would not run it.
    #[error("the program {program:?} cannot be started (system error {errno})")]
    Exec {
        /// Its path.
        program: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// The scratch folder is missing, is no directory, or overlaps a forbidden path.
    #[error("the scratch folder {scratch:?} is missing, is no folder, or overlaps {}", forbidden.as_ref().map_or_else(|| "nothing".into(), |f| format!("{f:?}")))]
    Scratch {
        /// The folder.
        scratch: PathBuf,
        /// What it overlaps, if that is the reason.
        forbidden: Option<PathBuf>,
    },
    /// Something that the agent must read lies in a place that it must not reach.
    #[error(
        "the agent needs to read {allowed:?}, which lies in {forbidden:?}, which it must not reach"
    )]
    Forbidden {
        /// What would be allowed.
        allowed: PathBuf,
        /// The forbidden path that contains it.
        forbidden: PathBuf,
    },
    /// A path that is part of the confinement could not be looked at.
    #[error("cannot look at {path:?}: {source}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An allowed folder holds too much beside a forbidden path to be allowed entry by entry.
    #[error("{path:?} has too many entries beside a path that must not be reached")]
    TooManyRules {
        /// The folder.
        path: PathBuf,
    },
    /// An argument, variable name or value holds a zero byte, a name is empty or holds `=`, or all is too long.
    #[error("the program's arguments or environment cannot be passed on")]
    Arguments,
    /// This machine does not enforce what is required.
    #[error("this machine cannot confine the agent: it failed {stage} (system error {errno})")]
    NotEnforced {
        /// What could not be enforced.
        stage: Stage,
        /// The system's error number; 0 when there is none.
        errno: i32,
    },
    /// The helper process could not be started or broke off.
    #[error("the process that confines the agent did not start or broke off: {0}")]
    Helper(std::io::Error),
}
