//! What the command's exit codes mean: the complete set.

use std::process::ExitCode;

/// How the command ended, as a script sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for was done; a run completed; a record is intact.
    Done,
    /// Refused, failed, cancelled, a record that does not verify, or what is not as it was or as another.
    Refused,
    /// The command line or its answers cannot be used; nothing was done.
    Usage,
    /// A run waits for a person.
    Waiting,
    /// A signal stopped the command; a run can be taken up again.
    Stopped,
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Usage => 2,
            Self::Waiting => 3,
            Self::Stopped => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
