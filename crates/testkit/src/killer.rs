//! Kills of a whole process at the calls by which it changes a folder, by a small C program that traces it.
//!
//! Where [`preload`](crate::preload) reaches what goes through the C library, this sees every system call, those too that
//! a program makes by itself. It counts the calls of all threads together and tells of each before and after the kernel did
//! it, so that what was tried is known even of a program that was killed.
//!
//! ```
//! use portcullis_testkit::killer::{Kill, Killer, Side};
//!
//! let folder = tempfile::tempdir()?;
//! let (home, log) = (folder.path().join("home"), folder.path().join("log"));
//! std::fs::create_dir(&home)?;
//! let Some(killer) = Killer::compile() else { return Ok(()) };
//! let kill = Kill { nth: 1, side: Side::Before };
//! let mut touch = killer.command(&log, &home, Some(kill));
//! touch.arg("/usr/bin/env").arg("touch").arg(home.join("file"));
//! touch.status()?;
//! let told = Killer::told(&log);
//! assert!(told.killed && told.calls.is_empty());
//! assert!(!home.join("file").exists());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const SOURCE: &str = include_str!("../preload/killer.c");

/// The program, compiled. Dropping it removes the file.
#[derive(Debug)]
pub struct Killer {
    folder: TempDir,
}

/// On which side of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The kernel does nothing about the call.
    Before,
    /// The kernel is done with it, and the program does not hear of it.
    After,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];

    /// One word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// At which call the program is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Which of the calls, from 1.
    pub nth: usize,
    /// On which side of it.
    pub side: Side,
}

/// A call that changes the folder, or makes such a change last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does: `pwrite`, `fsync`, `create`, `rename`, `unlink` and so on.
    pub name: String,
    /// What it changes; of a new name the old one.
    pub path: PathBuf,
    /// The new name of a `rename` or `link`.
    pub to: Option<PathBuf>,
    /// What the kernel answered: 0 or more, or an error below 0. Nobody heard of it when the program died before.
    pub result: Option<i64>,
}

/// What a program did to the folder, by the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The calls that the kernel was asked for, in order.
    pub calls: Vec<Call>,
    /// Whether it was killed at the call that was planned.
    pub killed: bool,
}

impl Killer {
    /// Compiles the program; `None`, and a counted skip, where there is no C compiler or nothing may be traced.
    #[must_use]
    #[expect(
        clippy::panic,
        clippy::disallowed_methods,
        reason = "a test compiles a program of this crate, which cannot fail where there is a compiler"
    )]
    pub fn compile() -> Option<Self> {
        let made = tempfile::tempdir().and_then(|folder| {
            fs::write(folder.path().join("killer.c"), SOURCE)?;
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Werror", "-o", "killer", "killer.c"]);
            Ok((cc.current_dir(folder.path()).output()?, folder))
        });
        let killer = match made {
            Ok((output, folder)) if output.status.success() => Self { folder },
            Ok((output, _)) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => {
                crate::skip::skip("no C compiler on this machine");
                return None;
            }
        };
        if killer.traces() {
            return Some(killer);
        }
        crate::skip::skip("no process may be traced on this machine");
        None
    }

    /// Whether the machine lets it trace a program at all.
    fn traces(&self) -> bool {
        let folder = self.folder.path();
        let mut tried = self.command(&folder.join("tried"), folder, None);
        tried.args(["/bin/sh", "-c", "exit 7"]);
        tried.output().is_ok_and(|output| output.status.code() == Some(7))
    }

    /// A command to which the whole path of a program and its arguments are still to be added: it counts the calls that
    /// change `folder` (its real path, without links) into `log`, which has to lie elsewhere, and dies where it is told to.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a test starts a program")]
    pub fn command(&self, log: &Path, folder: &Path, kill: Option<Kill>) -> Command {
        let mut command = Command::new(self.folder.path().join("killer"));
        let (nth, side) = kill.map_or((0, Side::Before), |kill| (kill.nth, kill.side));
        command.arg(log).arg(folder).arg(nth.to_string()).arg(side.as_str());
        command
    }

    /// What a program did. A log that was never begun has no calls.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the log is a test's own file")]
    pub fn told(log: &Path) -> Told {
        let mut told = Told::default();
        // The place of each number among the calls: a call that was killed before it was made has none.
        let mut numbers: Vec<&str> = Vec::new();
        let text = fs::read_to_string(log).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            match words.as_slice() {
                ["try", number, name, path, to @ ..] => {
                    numbers.push(number);
                    told.calls.push(Call {
                        name: (*name).to_owned(),
                        path: PathBuf::from(path),
                        to: to.first().map(PathBuf::from),
                        result: None,
                    });
                }
                ["did", number, result] => {
                    let at = numbers.iter().rposition(|known| known == number);
                    if let Some(call) = at.and_then(|at| told.calls.get_mut(at)) {
                        call.result = result.parse().ok();
                    }
                }
                ["killed", _] => told.killed = true,
                _ => {}
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `sh` does with this script in a folder of its own, killed or not.
    fn play(script: &str, kill: Option<Kill>) -> Option<(TempDir, Told)> {
        let killer = Killer::compile()?;
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home");
        fs::create_dir(&home).unwrap();
        let log = folder.path().join("log");
        let mut sh = killer.command(&log, &home, kill);
        sh.args(["/bin/sh", "-c", script]).current_dir(&home);
        let status = sh.status().unwrap();
        let told = Killer::told(&log);
        assert_eq!(status.code(), Some(if told.killed { 137 } else { 0 }));
        Some((folder, told))
    }

    const SCRIPT: &str = "echo one > a; mv a b; mv -n none c 2>/dev/null; rm b; echo x > /dev/null";

    #[test]
    fn calls_of_the_program_and_its_children_are_told_in_order() {
        let Some((_folder, told)) = play(SCRIPT, None) else { return };
        let names: Vec<&str> = told.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names.first_chunk(), Some(&["create", "write", "rename"]));
        assert!(names.contains(&"unlink"), "{names:?}");
        let renamed = told.calls.iter().find(|call| call.name == "rename").unwrap();
        assert!(renamed.path.ends_with("a") && renamed.to.as_ref().unwrap().ends_with("b"));
        assert_eq!(renamed.result, Some(0));
        // The rename of what is not there is asked for and fails.
        assert!(
            told.calls.iter().all(|call| call.result.is_some() && !call.path.ends_with("null"))
        );
    }

    #[test]
    fn a_kill_falls_on_the_side_that_is_asked_for() {
        for (nth, side, there) in [
            (1, Side::Before, [false, false]),
            (1, Side::After, [true, false]),
            (3, Side::Before, [true, false]),
            (3, Side::After, [false, true]),
        ] {
            let Some((folder, told)) = play(SCRIPT, Some(Kill { nth, side })) else { return };
            let home = folder.path().join("home");
            assert!(told.killed);
            assert_eq!(["a", "b"].map(|name| home.join(name).exists()), there, "{nth} {side:?}");
            let made = told.calls.iter().filter(|call| call.result.is_some()).count();
            assert_eq!(made, if side == Side::After { nth } else { nth - 1 });
        }
    }

    #[test]
    fn a_number_that_is_never_reached_kills_nothing() {
        let kill = Kill { nth: 1_000, side: Side::After };
        let Some((_folder, told)) = play(SCRIPT, Some(kill)) else { return };
        assert!(!told.killed && !told.calls.is_empty());
    }
}
