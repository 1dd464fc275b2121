//! This binary run again as a process of its own that appends to a store.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use portcullis_domain::ports::{Condition, Durability, Store, StoreError};
use portcullis_domain::scope::Scope;
use portcullis_store::sqlite::Committing;
use portcullis_testkit::block_on;
use portcullis_testkit::scenario::Scenario;
use portcullis_testkit::store_contract::fold;

use crate::sqlite::open_with;

/// What the child shall do: `<task> <seed> <path>`.
const TASK: &str = "PORTCULLIS_STORE_TEST_WORK";

/// The command that runs `task` on the store at `path`; it waits for a line on its standard input.
pub fn command(program: Command, task: &str, seed: u64, path: &Path) -> Command {
    let mut command = program;
    command
        .args(["--exact", "worker::child", "--nocapture", "--test-threads=1"])
        .env(TASK, format!("{task} {seed} {}", path.to_str().unwrap()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

/// Starts a child.
pub fn start(task: &str, seed: u64, path: &Path) -> Child {
    let program = Command::new(std::env::current_exe().unwrap());
    command(program, task, seed, path).spawn().unwrap()
}

/// Lets a child begin.
pub fn release(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
}

/// The numbers that a child printed as `<word> <number>`.
pub fn numbers(output: &str, word: &str) -> Vec<u64> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(|number| number.trim().parse().unwrap()).collect()
}

/// Not a test by itself: the body of the child.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut parts = task.splitn(3, ' ');
    let (task, seed) = (parts.next().unwrap(), parts.next().unwrap().parse().unwrap());
    let path = Path::new(parts.next().unwrap());
    println!("\nready 0");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    match task {
        "histories" => histories(path, seed),
        "same" => same(path, seed),
        "endless" => endless(path, seed),
        "fill" => fill(path, seed),
        "doubtful" => doubtful(path, seed, 3),
        "doubtful-once" => doubtful(path, seed, 1),
        other => panic!("{other}"),
    }
}

fn append(store: &dyn Store, append: portcullis_domain::ports::Append) -> Result<u64, StoreError> {
    let committed = block_on(store.append(&Scope::of_file_owner(), append))?;
    Ok(committed.events.last().unwrap().link.journal_seq)
}

/// Runs of its own, the last one only after the other child (of 1 and 2) has begun.
fn histories(path: &Path, seed: u64) {
    let store = open_with(path, Vec::new(), Committing::Caller).unwrap();
    let other = Scenario::new((3 - seed) * 1_000, store.instance()).run;
    let scope = Scope::of_file_owner();
    for run in 0..10 {
        while run == 9 && block_on(store.run(&scope, other)).unwrap().is_none() {
            std::thread::yield_now();
        }
        let mut run = Scenario::new(seed * 1_000 + run, store.instance());
        for next in run.every_event() {
            println!("seq {}", append(&store, next).unwrap());
        }
    }
}

/// The same run as every other child with this seed.
fn same(path: &Path, seed: u64) {
    let store = open_with(path, Vec::new(), Committing::Caller).unwrap();
    for run in 0..10 {
        let mut run = Scenario::new(seed * 1_000 + run, store.instance());
        for next in run.every_event() {
            if next.condition == Condition::Late {
                continue;
            }
            match append(&store, next) {
                Ok(seq) => println!("seq {seq}"),
                Err(
                    StoreError::Stale
                    | StoreError::LeaseLost
                    | StoreError::Leased { .. }
                    | StoreError::RunState { .. }
                    | StoreError::QuestionState { .. },
                ) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// Steps until somebody kills this process.
fn endless(path: &Path, seed: u64) {
    let store = open_with(path, Vec::new(), Committing::Caller).unwrap();
    let mut run = Scenario::new(seed, store.instance());
    println!("seq {}", append(&store, run.begin()).unwrap());
    loop {
        for next in run.whole_step() {
            println!("seq {}", append(&store, next).unwrap());
        }
    }
}

/// Two runs in turns, each with appends that wait for no sync; then the end, without a word to the store. It comes earlier
/// when one append was in doubt for so many `tries`.
fn doubtful(path: &Path, seed: u64, tries: u32) {
    let Ok(store) = open_with(path, Vec::new(), Committing::OwnThread) else {
        return println!("unopened 1");
    };
    let mut runs = [seed, seed + 1].map(|seed| Scenario::new(seed, store.instance()));
    for run in &mut runs {
        settled(&store, run.begin(), tries);
    }
    for _ in 0..4 {
        let [one, other] = &mut runs;
        for (first, second) in one.whole_step().into_iter().zip(other.whole_step()) {
            settled(&store, first, tries);
            settled(&store, second, tries);
        }
    }
    std::process::abort();
}

/// Stores an append; one in doubt is stored once more, unless it turns out to be there.
fn settled(store: &dyn Store, next: portcullis_domain::ports::Append, tries: u32) {
    let synced = next.durability == Durability::Synced;
    for _ in 0..tries {
        match append(store, next.clone()) {
            Ok(seq) if synced => println!("seq {seq}"),
            Ok(_) => {}
            // It was stored after all.
            Err(StoreError::Stale) => {}
            Err(StoreError::InDoubt) => {
                println!("doubt 1");
                continue;
            }
            Err(_) => std::process::abort(),
        }
        return;
    }
    std::process::abort();
}

/// Contents until the disk is full, then a little room, then the same append again.
fn fill(path: &Path, seed: u64) {
    let ballast = path.with_file_name("ballast");
    std::fs::write(&ballast, vec![1; 256 * 1024]).unwrap();
    let store = open_with(path, Vec::new(), Committing::Caller).unwrap();
    let mut run = Scenario::new(seed, store.instance());
    append(&store, run.begin()).unwrap();
    let mut stored = 0;
    for size in [64 * 1024, 16 * 1024, 1024].into_iter().cycle() {
        run.step_opened();
        run.proposed(&vec![b'x'; size]);
        run.finished(portcullis_domain::observation::ObservationKind::InvalidProposal);
        let next = run.driver(Durability::Synced);
        match append(&store, next.clone()) {
            Ok(_) => stored += 1,
            Err(error) => {
                assert_eq!(error, StoreError::Full);
                let folded = fold::check(&store);
                assert_eq!(folded.runs[&run.run].run.step_count, stored);
                std::fs::remove_file(&ballast).unwrap();
                append(&store, next).unwrap();
                assert_eq!(fold::check(&store).runs[&run.run].run.step_count, stored + 1);
                break;
            }
        }
    }
    println!("filled {stored}");
}
