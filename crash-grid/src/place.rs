//! Where a story happens: a database or tables in memory, the counter that hears of its changes, and a log of the points
//! that a process went through.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portcullis::domain::ports::Clock as _;
use portcullis::store::memory::MemoryStore;
use portcullis::system::{OsEntropy, SystemClock};
use portcullis_testkit::counter::Counter;
use portcullis_testkit::stage::{Aim, Sighted};
use tempfile::TempDir;

use super::cast::{Mode, Role};
use super::life;
use super::story::Story;

/// How long a process may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the store behind a story is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Medium {
    Sqlite,
    Memory,
}

impl Medium {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Memory];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
        }
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself.
    Code(i32),
    /// Killed.
    Killed,
    /// In another way, and what it complained about.
    Failed(String),
}

/// The changes of one place, as the counter knows them.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    pub(crate) counter: Counter,
    pub(crate) place: String,
}

impl Effects {
    /// The effect of a change: named by the argument of the call, the step and the start.
    pub(crate) fn ring(&self, n: u64, step: &str, start: u32) {
        self.counter.ring(&self.place, &format!("{n}.{step}.{start}")).unwrap();
    }

    pub(crate) fn happened(&self, n: u64, step: &str, start: u32) -> bool {
        let tally = self.counter.tally(&self.place).unwrap();
        tally.contains_key(&format!("{n}.{step}.{start}"))
    }

    /// How often each start of each change happened.
    pub(crate) fn all(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (change, times) in self.counter.tally(&self.place).unwrap() {
            let n = change.split('.').next().unwrap().parse().unwrap();
            found.entry(n).or_default().push(times);
        }
        found
    }
}

/// One place.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) effects: Effects,
    pub(crate) kept: Kept,
}

/// What is left of a process when it has ended.
#[derive(Clone)]
pub(crate) enum Kept {
    Sqlite { folder: PathBuf, _owned: Option<Arc<TempDir>> },
    Memory(Arc<Tables>),
}

/// Tables that outlive their holders.
pub(crate) struct Tables {
    pub(crate) store: MemoryStore,
    /// How many holders there were.
    pub(crate) lives: AtomicU32,
    /// What the last of them went through.
    pub(crate) log: Arc<Mutex<Vec<Sighted>>>,
}

impl Place {
    /// An empty place. Databases lie beside this program, which is on a disk.
    pub(crate) fn fresh(medium: Medium, counter: &Counter) -> Self {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        // Several programs may share a counter.
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let place = format!("{}.{number}", std::process::id());
        let kept = match medium {
            Medium::Sqlite => {
                let owned = TempDir::new_in(scratch()).unwrap();
                let folder = owned.path().to_owned();
                fs::create_dir(folder.join("state")).unwrap();
                Kept::Sqlite { folder, _owned: Some(Arc::new(owned)) }
            }
            Medium::Memory => {
                let store = MemoryStore::new(SystemClock::new().now(), &OsEntropy);
                Kept::tables(store, 0)
            }
        };
        Self { effects: Effects { counter: counter.clone(), place }, kept }
    }

    /// A place in a folder as another process finds it.
    pub(crate) fn at(folder: &str, effects: Effects) -> Self {
        Self { effects, kept: Kept::Sqlite { folder: PathBuf::from(folder), _owned: None } }
    }

    /// The same state once more, elsewhere. No process may be using this one.
    pub(crate) fn copy(&self) -> Self {
        let counter = &self.effects.counter;
        let copy = match &self.kept {
            Kept::Sqlite { folder, .. } => {
                let copy = Self::fresh(Medium::Sqlite, counter);
                for entry in fs::read_dir(folder.join("state")).unwrap() {
                    let entry = entry.unwrap();
                    let to = copy.folder().join("state").join(entry.file_name());
                    fs::copy(entry.path(), to).unwrap();
                }
                copy
            }
            Kept::Memory(tables) => {
                let lives = tables.lives.load(Ordering::Acquire);
                let kept = Kept::tables(tables.store.fork().unwrap(), lives);
                Self { kept, ..Self::fresh(Medium::Memory, counter) }
            }
        };
        counter.copy(&self.effects.place, &copy.effects.place).unwrap();
        copy
    }

    fn folder(&self) -> &Path {
        match &self.kept {
            Kept::Sqlite { folder, .. } => folder,
            Kept::Memory(_) => panic!("tables in memory lie in no folder"),
        }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder().join("state/portcullis.db")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    /// The points that the last process went through.
    pub(crate) fn sighted(&self) -> Vec<Sighted> {
        match &self.kept {
            Kept::Sqlite { .. } => {
                let text = fs::read_to_string(self.log()).unwrap_or_default();
                text.lines().map(|line| Sighted::from_line(line).unwrap()).collect()
            }
            Kept::Memory(tables) => tables.log.lock().unwrap().clone(),
        }
    }

    /// Plays a part to its end.
    pub(crate) fn play(&self, story: &Story, role: Role, mode: Mode, aim: Option<Aim>) -> Exit {
        let tables = match &self.kept {
            Kept::Memory(tables) => tables,
            Kept::Sqlite { .. } => return self.play_process(story, role, mode, aim),
        };
        life::in_memory(story, role, mode, aim, tables, &self.effects)
    }

    fn play_process(&self, story: &Story, role: Role, mode: Mode, aim: Option<Aim>) -> Exit {
        let mut child = self.start(story, role, mode, aim);
        match wait(&mut child, PATIENCE) {
            Some(status) => self.exit(status),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                Exit::Failed(format!("{} of {} hangs: {}", role.name(), story.name, self.said()))
            }
        }
    }

    /// Starts a process that plays a part, with a new log.
    pub(crate) fn start(&self, story: &Story, role: Role, mode: Mode, aim: Option<Aim>) -> Child {
        match fs::remove_file(self.log()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
        let aim = aim.map_or_else(|| "-".to_owned(), |aim| aim.to_string());
        let Effects { counter, place } = &self.effects;
        let words = [role.name(), story.name, mode.name(), &aim, place];
        let paths = [counter.path(), self.folder()].map(|path| path.to_str().unwrap().to_owned());
        let mut command = this_program();
        command.arg("part").args(words).args(paths);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(self.folder().join("stderr")).unwrap());
        command.spawn().unwrap()
    }

    pub(crate) fn exit(&self, status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) if life::CODES.contains(&code) => Exit::Code(code),
            (_, Some(9)) => Exit::Killed,
            _ => Exit::Failed(format!("{status}: {}", self.said())),
        }
    }

    /// What the last process complained about.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder().join("stderr")).unwrap_or_default()
    }
}

impl Kept {
    fn tables(store: MemoryStore, lives: u32) -> Self {
        Self::Memory(Arc::new(Tables { store, lives: AtomicU32::new(lives), log: Arc::default() }))
    }
}

/// Where databases lie.
fn scratch() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap().join("crash-grid-places");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The program that plays parts: this one. Its tests are another program, which lies beside it.
pub(crate) fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(&program);
    if cfg!(test) {
        command.args(["--exact", "tests::a_part_in_another_process", "--nocapture"]);
        command.args(["--test-threads=1", "--"]);
    }
    command
}

/// Waits for a process, at most this long.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        let left = patience.checked_sub(begun.elapsed())?;
        std::thread::sleep(left.min(Duration::from_millis(2)));
    }
}
