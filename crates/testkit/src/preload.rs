//! Faults of the disk under a whole process, by a small C library that is preloaded into it.
//!
//! It counts the calls of all threads together, makes one of them fail, come late or be cut short, and can keep what a
//! loss of power would leave. It reaches what goes through the C library: SQLite's files do, raw system calls do not.
//!
//! ```
//! use std::process::Command;
//!
//! use portcullis_testkit::preload::{Call, Fault, Plan, Preload};
//!
//! let folder = tempfile::tempdir()?;
//! let Some(preload) = Preload::compile() else { return Ok(()) };
//! let file = folder.path().join("file");
//! std::fs::write(&file, "bytes")?;
//! let mut sync = Command::new("sync");
//! sync.arg(&file);
//! let log = folder.path().join("log");
//! let plan = Plan { call: Call::Sync, files: "file", nth: 1, fault: Fault::Fail(5) };
//! preload.plan(&mut sync, plan, &log);
//! assert!(!sync.status()?.success());
//! assert_eq!(Preload::counted(&log, Call::Sync).fired, 1);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

const SOURCE: &str = include_str!("../preload/faults.c");

/// The library, compiled. Dropping it removes the file; processes that run keep it.
#[derive(Debug)]
pub struct Preload {
    folder: TempDir,
}

/// Which calls are counted and planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `fsync` and `fdatasync`, together.
    Sync,
    /// `pwrite`.
    Write,
}

impl Call {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Write => "write",
        }
    }
}

/// What becomes of the planned call. Errors are Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, this once.
    Fail(u32),
    /// It fails, and so does every later one.
    Stay(u32),
    /// A write leaves half of its bytes and fails.
    Torn(u32),
    /// A write leaves half of its bytes and says so.
    Short,
    /// It comes so much later.
    Late(Duration),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fail(error) => write!(f, "fail:{error}"),
            Self::Stay(error) => write!(f, "stay:{error}"),
            Self::Torn(error) => write!(f, "torn:{error}"),
            Self::Short => f.write_str("short"),
            Self::Late(by) => write!(f, "late:{}", by.as_millis()),
        }
    }
}

/// What becomes of which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// The calls that are counted.
    pub call: Call,
    /// What the names of the files contain on which they are counted.
    pub files: &'a str,
    /// Which of them meets the fault, from 1; 0 is none.
    pub nth: usize,
    /// What becomes of it.
    pub fault: Fault,
}

/// What a process did, by its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Calls that it made.
    pub calls: usize,
    /// Calls on which the fault struck.
    pub fired: usize,
}

impl Preload {
    /// Compiles the library; `None`, and a counted skip, where there is no C compiler.
    #[must_use]
    #[expect(
        clippy::panic,
        clippy::disallowed_methods,
        reason = "a test compiles a library of this crate, which cannot fail where there is a compiler"
    )]
    pub fn compile() -> Option<Self> {
        let made = tempfile::tempdir().and_then(|folder| {
            fs::write(folder.path().join("faults.c"), SOURCE)?;
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "faults.so", "faults.c"]);
            cc.args(["-ldl", "-lpthread"]).current_dir(folder.path());
            Ok((cc.output()?, folder))
        });
        match made {
            Ok((output, folder)) if output.status.success() => Some(Self { folder }),
            Ok((output, _)) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => {
                crate::skip::skip("no C compiler on this machine");
                None
            }
        }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("faults.so")
    }

    /// Counts calls into `log`, and has the planned one meet its fault.
    pub fn plan(&self, command: &mut Command, plan: Plan<'_>, log: &Path) {
        let Plan { call, files, nth, fault } = plan;
        command
            .env("LD_PRELOAD", self.library())
            .env("PORTCULLIS_FAULT", format!("{}:{nth}:{fault}", call.as_str()))
            .env("PORTCULLIS_FAULT_FILES", files)
            .env("PORTCULLIS_FAULT_LOG", log);
    }

    /// Keeps in `folder` what a loss of power would leave of each file that the process writes.
    pub fn keep_disk(&self, command: &mut Command, folder: &Path) {
        command.env("LD_PRELOAD", self.library()).env("PORTCULLIS_FAULT_DISK", folder);
    }

    /// What a process did. A log that was never begun has no calls.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the log is a test's own file")]
    pub fn counted(log: &Path, call: Call) -> Counted {
        let log = fs::read_to_string(log).unwrap_or_default();
        let count = |start: &str| log.lines().filter(|line| line.starts_with(start)).count();
        let fired = count(&format!("fired {} ", call.as_str()));
        Counted { calls: count(&format!("{} ", call.as_str())).saturating_add(fired), fired }
    }
}
