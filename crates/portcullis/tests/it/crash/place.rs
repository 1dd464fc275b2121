//! Where a story happens: a database, the files of its changes, and a log of the moments that a process went through.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_testkit::crash::Phase;
use tempfile::TempDir;

use super::child::{Aim, Mode, Role, TASK};
use super::story::Story;

/// How long a process may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One folder on the disk.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    _owned: Option<Arc<TempDir>>,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighted {
    pub aim: Aim,
    /// Whether the store said yes; only after it was asked.
    pub stored: Option<bool>,
    /// Types of events, or the tool.
    pub what: Vec<String>,
}

impl Place {
    /// An empty place beneath the build folder, which is on a disk.
    pub fn fresh() -> Self {
        let owned = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let folder = owned.path().to_owned();
        for part in ["state", "effects"] {
            fs::create_dir(folder.join(part)).unwrap();
        }
        Self { folder, _owned: Some(Arc::new(owned)) }
    }

    /// The place as another process finds it.
    pub fn at(folder: &str) -> Self {
        Self { folder: PathBuf::from(folder), _owned: None }
    }

    /// The same state once more, elsewhere. No process may be using this one.
    pub fn copy(&self) -> Self {
        let copy = Self::fresh();
        for part in ["state", "effects"] {
            for entry in fs::read_dir(self.folder.join(part)).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), copy.folder.join(part).join(entry.file_name())).unwrap();
            }
        }
        copy
    }

    pub fn db(&self) -> PathBuf {
        self.folder.join("state/portcullis.db")
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The file of one start of one change: named by the argument, the step and the start.
    pub fn effect(&self, n: u64, step: &str, start: u32) -> PathBuf {
        self.folder.join("effects").join(format!("{n}.{step}.{start}"))
    }

    /// The file of a change that its receiver knows by its key.
    pub fn keyed_effect(&self, n: u64, key: &str) -> PathBuf {
        self.folder.join("effects").join(format!("{n}.{key}"))
    }

    /// Whether a change left a byte.
    pub fn happened(&self, n: u64) -> bool {
        self.effects().get(&n).is_some_and(|bytes| bytes.iter().any(|bytes| *bytes > 0))
    }

    /// How many bytes each start of each change left.
    pub fn effects(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for entry in fs::read_dir(self.folder.join("effects")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let n = name.split('.').next().unwrap().parse().unwrap();
            found.entry(n).or_default().push(entry.metadata().unwrap().len());
        }
        found
    }

    /// The moments that the last process went through.
    pub fn sighted(&self) -> Vec<Sighted> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().map(|line| Sighted::from_line(line).unwrap()).collect()
    }

    /// Starts a process that plays a part, with a new log.
    pub fn start(&self, story: &Story, role: Role, mode: Mode, aim: Option<Aim>) -> Child {
        match fs::remove_file(self.log()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
        let aim = aim.map_or_else(|| "-".to_owned(), |aim| aim.to_string());
        let folder = self.folder.to_str().unwrap();
        let task = format!("{} {} {} {aim} {folder}", role.name(), story.name, mode.name());
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child::a_part_in_another_process", "--nocapture"])
            .arg("--test-threads=1")
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("stderr")).unwrap())
            .spawn()
            .unwrap()
    }

    /// Plays a part to its end.
    pub fn play(&self, story: &Story, role: Role, mode: Mode, aim: Option<Aim>) -> ExitStatus {
        let mut child = self.start(story, role, mode, aim);
        match wait(&mut child, PATIENCE) {
            Some(status) => status,
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{} of {} hangs: {}", role.name(), story.name, self.complaint());
            }
        }
    }

    /// What the last process complained about.
    pub fn complaint(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }
}

/// Waits for a process, at most this long.
pub fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        let left = patience.checked_sub(begun.elapsed())?;
        std::thread::sleep(left.min(Duration::from_millis(2)));
    }
}

impl Sighted {
    /// `append:3:after ok step.judged,step.started`
    pub fn line(aim: Aim, stored: Option<bool>, what: &str) -> String {
        let stored = match stored {
            None => "-",
            Some(true) => "ok",
            Some(false) => "refused",
        };
        format!("{aim} {stored} {what}\n")
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let aim = Aim::from_text(parts.next()?)?;
        let stored = match parts.next()? {
            "-" => None,
            "ok" => Some(true),
            "refused" => Some(false),
            _ => return None,
        };
        let what = parts.next()?.split(',').map(str::to_owned).collect();
        Some(Self { aim, stored, what })
    }

    pub fn phase(&self) -> Phase {
        match self.aim {
            Aim::Store(moment) => moment.phase,
            Aim::Effect(_, phase) => phase,
        }
    }
}

/// The folder of what this build made, for the grid.
pub fn build_folder() -> &'static Path {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    scratch.parent().unwrap_or(scratch)
}
