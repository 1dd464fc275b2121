//! The drivers: what each is called, with which words it is started, and what it answers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::workspace::target;

/// The longest that one run of a driver may take.
const DEADLINE: Duration = Duration::from_secs(300);

/// How often a run is looked at; what it measures it measures itself.
const LOOK: Duration = Duration::from_millis(5);

/// One setting of a system.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// For people.
    pub(super) name: &'static str,
    /// For the driver.
    pub(super) words: &'static [&'static str],
    /// Whether the loops run with it; the kills run with all.
    pub(super) looped: bool,
}

/// A system under measurement.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    /// For people.
    pub(super) name: &'static str,
    /// Its settings.
    pub(super) settings: Vec<Setting>,
    /// Whether it keeps a record; what does not is the control of the kills, and does not run the loops.
    pub(super) records: bool,
    program: PathBuf,
    first: Vec<String>,
}

impl Driver {
    /// A system whose driver is `program` with these first words.
    pub(super) fn new(
        name: &'static str,
        program: PathBuf,
        first: Vec<String>,
        settings: Vec<Setting>,
    ) -> Self {
        Self { name, settings, records: true, program, first }
    }

    /// The bench program as our side.
    pub(super) fn own(root: &Path) -> Self {
        let program = target(root).join("release").join(crate::bench::PROGRAM);
        let setting = Setting { name: "only", words: &["--sync", "full"], looped: true };
        Self::new("Portcullis", program, vec!["driver".to_owned()], vec![setting])
    }

    /// Starts it with `words` on a run in `folder` and waits for its end.
    pub(super) fn run(&self, word: &str, folder: &Path, words: &[String]) -> Result<Ended> {
        let told = folder.with_extension("out");
        let complained = folder.with_extension("err");
        let mut command = Command::new(&self.program);
        command.args(&self.first).arg(word).arg(folder).args(words);
        // No byte code beside the sources, no spans to anywhere.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("LANGSMITH_TRACING", "false");
        command
            .stdin(Stdio::null())
            .stdout(File::create(&told)?)
            .stderr(File::create(&complained)?);
        let status = within(&mut command, DEADLINE)
            .with_context(|| format!("the driver of {}", self.name))?;
        let ended = Ended {
            status,
            told: fs::read_to_string(&told)?,
            complained: fs::read_to_string(&complained).unwrap_or_default(),
        };
        fs::remove_file(told)?;
        fs::remove_file(complained)?;
        Ok(ended)
    }
}

/// Waits for a program, and ends it when it takes too long.
fn within(command: &mut Command, deadline: Duration) -> Result<ExitStatus> {
    let mut child = command.spawn().context("it cannot start")?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("it was not done after {} seconds", deadline.as_secs());
        }
        thread::sleep(LOOK);
    }
}

/// How a driver ended, and what it said.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    told: String,
    complained: String,
}

/// The facts that a driver prints, one a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Of the loop alone.
    pub(super) seconds: f64,
    /// Bytes that the process had written.
    pub(super) written: f64,
    /// The settings as read back.
    pub(super) set: String,
    /// The versions of the packages.
    pub(super) versions: String,
    /// How often a person was needed.
    pub(super) asked: u32,
}

impl Ended {
    /// The facts, or what went wrong.
    pub(super) fn facts(&self) -> Result<Facts> {
        if !self.status.success() {
            bail!("{}: {}", self.status, self.last_complaint());
        }
        Facts::read(&self.told)
    }

    fn last_complaint(&self) -> &str {
        self.complained.trim().lines().last().unwrap_or("it said nothing")
    }
}

impl Facts {
    fn read(text: &str) -> Result<Self> {
        let fact = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(found, _)| *found == name);
            found.map(|(_, value)| value.trim()).with_context(|| format!("it tells no `{name}`"))
        };
        Ok(Self {
            seconds: fact("seconds")?.parse()?,
            written: fact("written")?.parse()?,
            set: fact("set")?.to_owned(),
            versions: fact("versions")?.to_owned(),
            asked: fact("asked")?.parse()?,
        })
    }
}

/// A folder below `place` that is gone when this is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes it, empty.
    pub(super) fn new(place: &Path) -> Result<Self> {
        let path = place.join("runs").join(std::process::id().to_string());
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The bytes of the files in it.
    pub(super) fn size(&self) -> Result<u64> {
        let mut size = 0;
        for entry in fs::read_dir(&self.0)? {
            size += entry?.metadata()?.len();
        }
        Ok(size)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_for_the_next_one = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const TOLD: &str = "seconds 0.5\nnoise\nwritten 4096\nset a=b c\nversions x 1\nasked 0\n";

    fn shell(script: &str) -> Driver {
        let first = vec!["-c".to_owned(), script.to_owned(), "sh".to_owned()];
        Driver::new("sh", PathBuf::from("/bin/sh"), first, Vec::new())
    }

    #[test]
    fn facts_are_read_and_a_missing_one_is_named() {
        let facts = Facts::read(TOLD).expect("facts");
        assert_eq!((facts.seconds, facts.written, facts.asked), (0.5, 4096.0, 0));
        assert_eq!(facts.set, "a=b c");
        let told = Facts::read(&TOLD.replace("asked", "ask")).expect_err("a fact is missing");
        assert!(told.to_string().contains("`asked`"));
    }

    #[test]
    fn a_driver_is_run_on_a_folder_and_its_end_is_told() {
        let tree = Scratch::new("drivers");
        let folder = Folder::new(tree.path()).expect("a folder");
        let script = format!("printf 1234 > \"$2/file\"; printf '{TOLD}'; test \"$1$3\" = runx");
        let ended = shell(&script).run("run", folder.path(), &["x".to_owned()]).expect("it runs");
        assert_eq!(ended.facts().expect("facts").versions, "x 1");
        assert_eq!(folder.size().expect("a size"), 4);
        let failing = shell("echo first >&2; echo why >&2; exit 3");
        let ended = failing.run("run", folder.path(), &[]).expect("it runs");
        assert!(ended.facts().expect_err("it failed").to_string().ends_with("3: why"));
        let gone = folder.path().to_path_buf();
        drop(folder);
        assert!(!gone.exists());
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let mut command = Command::new("sleep");
        let told = within(command.arg("60"), Duration::from_millis(20)).expect_err("too long");
        assert!(told.to_string().contains("not done"));
        assert!(within(&mut Command::new("true"), DEADLINE).expect("true").success());
    }
}
