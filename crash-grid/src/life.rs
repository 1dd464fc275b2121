//! One process of a story: over a file it is a process of its own that sends itself `SIGKILL`; over tables in memory,
//! which no process outlives, it is a driver that is dropped with its whole runtime.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use portcullis::domain::ports::{Clock as _, Processes, Store};
use portcullis::sandbox::identity::LinuxProcesses;
use portcullis::store::sqlite::open::OpenMode;
use portcullis::store::sqlite::{Committing, Opening, SqliteStore};
use portcullis::system::{OsEntropy, SystemClock};
use portcullis_testkit::counter::Counter;
use portcullis_testkit::crash::{CrashStore, wrote};
use portcullis_testkit::ports::FixedProcesses;
use portcullis_testkit::stage::{Aim, Sighted, Stage};
use tokio::runtime::Runtime;

use super::cast::{Cast, Mode, Role};
use super::place::{Effects, Exit, Place, Tables};
use super::story::Story;

/// The run ended.
pub(crate) const ENDED: i32 = 10;
/// A person has to answer.
pub(crate) const WAITING: i32 = 11;
/// The run was let go and can be taken up.
pub(crate) const LET_GO: i32 = 12;
/// A person or the sweep is done.
pub(crate) const ACTED: i32 = 13;

/// The codes of a process that did its part.
pub(crate) const CODES: [i32; 4] = [ENDED, WAITING, LET_GO, ACTED];

/// How long one process waits for what another thread of it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Ends this process as nothing can be prepared for.
fn kill_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Plays the part that another process was started for; gives its exit code. The words are
/// `<role> <story> <mode> <aim or -> <place> <counter> <folder>`.
pub(crate) fn in_process(words: &[String]) -> i32 {
    let [role, story, mode, aim, place, counter, folder] = words else {
        panic!("not understood: {words:?}")
    };
    let role = Role::ALL.into_iter().find(|r| r.name() == role).unwrap();
    let mode = Mode::ALL.into_iter().find(|m| m.name() == mode).unwrap();
    let aim = (aim != "-").then(|| Aim::from_text(aim).unwrap());
    let counter = Counter::at(PathBuf::from(counter));
    let place = Place::at(folder, Effects { counter, place: place.clone() });
    let stage = Arc::new(Stage::new(aim, log_to(&place), kill_this_process));
    let runtime = runtime();
    let code = runtime.block_on(async {
        let store = Arc::new(open(&place, &stage));
        let processes = Arc::new(LinuxProcesses::new().unwrap());
        let store = crashing(store, &stage, kill_this_process);
        let cast = Cast::new(Story::named(story), place.effects, stage, Arc::new(store), processes);
        cast.play(role, mode).await
    });
    runtime.shutdown_timeout(PATIENCE);
    code
}

fn log_to(place: &Place) -> impl Fn(&Sighted) + Send + Sync + use<> {
    let log = OpenOptions::new().create(true).append(true).open(place.log()).unwrap();
    let log = Mutex::new(log);
    move |sighted: &Sighted| log.lock().unwrap().write_all(sighted.line().as_bytes()).unwrap()
}

/// Opens the store; each statement of it that writes is a point, from the first on.
fn open(place: &Place, stage: &Arc<Stage>) -> SqliteStore {
    let new = !place.db().exists();
    let (told, opened) = (Arc::clone(stage), Arc::new(AtomicBool::new(false)));
    let (is_open, number) = (Arc::clone(&opened), AtomicU64::new(0));
    let watch = move |sql: &str| {
        let Some(what) = written(sql) else { return };
        if is_open.load(Ordering::Acquire) {
            if what != "begin" {
                wrote(what);
            }
            return;
        }
        let number = number.fetch_add(1, Ordering::AcqRel) + 1;
        told.reach(&Sighted {
            aim: Aim::Opening(number),
            stored: None,
            what: if new { vec!["journal.opened".to_owned()] } else { Vec::new() },
            wrote: Some(what.to_owned()),
        });
    };
    let opening = Opening {
        now: SystemClock::new().now(),
        entropy: &OsEntropy,
        observers: Vec::new(),
        committing: Committing::Caller,
    };
    let store =
        SqliteStore::open_watched(&place.db(), OpenMode::CreateOrOpen, opening, watch).unwrap();
    opened.store(true, Ordering::Release);
    store
}

/// What a statement writes: a table, or where a transaction begins or is committed; `None` when it writes nothing.
fn written(sql: &str) -> Option<&str> {
    let mut words = sql.split_whitespace();
    match (words.next()?, words.next()) {
        ("BEGIN", _) => Some("begin"),
        ("COMMIT", _) => Some("commit"),
        ("INSERT" | "DELETE", Some("INTO" | "FROM" | "OR")) => {
            words.find(|word| !["REPLACE", "IGNORE", "INTO"].contains(word))
        }
        ("UPDATE", Some(table)) => Some(table),
        _ => None,
    }
}

fn crashing(
    store: Arc<dyn Store>,
    stage: &Arc<Stage>,
    kill: impl Fn() + Send + Sync + 'static,
) -> CrashStore {
    let told = Arc::clone(stage);
    let store =
        CrashStore::new(store, kill).witnessed(move |sight| told.reach(&Sighted::in_store(sight)));
    match stage.aim() {
        Some(Aim::Store(moment)) => store.aimed(moment),
        _ => store,
    }
}

/// Plays a part over tables in memory. Where it is aimed at, the store never answers again, no tool goes on, and the
/// runtime with everything in it is dropped; the next holder is another process to the engine, and this one is dead.
pub(crate) fn in_memory(
    story: &Story,
    role: Role,
    mode: Mode,
    aim: Option<Aim>,
    tables: &Arc<Tables>,
    effects: &Effects,
) -> Exit {
    tables.log.lock().unwrap().clear();
    let (exit, exits) = mpsc::channel();
    let (log, killed) = (Arc::clone(&tables.log), exit.clone());
    let keep = move |sighted: &Sighted| log.lock().unwrap().push(sighted.clone());
    let stage = Arc::new(Stage::new(aim, keep, move || drop(killed.send(Exit::Killed))));
    // The stage has ended already when the store's own kill comes.
    let store = crashing(Arc::new(tables.store.clone()), &stage, || {}).silent();
    let processes = next_life(tables);
    let (story, effects) = (Story::named(story.name), effects.clone());
    let runtime = runtime();
    let part = runtime.spawn(async move {
        Cast::new(story, effects, stage, Arc::new(store), processes).play(role, mode).await
    });
    runtime.spawn(async move {
        let ended = match part.await {
            Ok(code) => Exit::Code(code),
            Err(error) => Exit::Failed(error.to_string()),
        };
        drop(exit.send(ended));
    });
    let hangs = || Exit::Failed(format!("{} of {} hangs", role.name(), story.name));
    let exit = exits.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| hangs());
    match exit {
        Exit::Code(_) => runtime.shutdown_timeout(PATIENCE),
        Exit::Killed | Exit::Failed(_) => runtime.shutdown_background(),
    }
    exit
}

/// The next process of a place in memory, to which all before it are dead.
fn next_life(tables: &Tables) -> Arc<dyn Processes> {
    let life = tables.lives.fetch_add(1, Ordering::AcqRel) + 1;
    let processes = FixedProcesses::new(life);
    (1..life).for_each(|dead| processes.kill(dead));
    Arc::new(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_statement_writes_is_read_from_its_first_words() {
        for (sql, what) in [
            ("BEGIN IMMEDIATE", Some("begin")),
            ("COMMIT", Some("commit")),
            ("INSERT INTO events (a) VALUES (?1)", Some("events")),
            ("INSERT OR REPLACE INTO meta VALUES (?1)", Some("meta")),
            ("DELETE FROM leases WHERE run = ?1", Some("leases")),
            ("UPDATE runs SET a = ?1", Some("runs")),
            ("SELECT 1", None),
            ("PRAGMA synchronous = FULL", None),
            ("SAVEPOINT job", None),
            ("", None),
        ] {
            assert_eq!(written(sql), what, "{sql}");
        }
    }
}
