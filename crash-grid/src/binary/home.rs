//! A home of the command: its state, its configuration and the folder of files, at one path for all that is tried in it.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portcullis::canon::{Limits, Value, parse};
use portcullis_testkit::killer::{Kill, Killer, Told};
use tempfile::TempDir;

use super::story::{CONTENT, Change, Does, OLD, Story};

/// How long a process may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks before anything is deleted.
const RULES: &str = "[classes]\nlocal_mutation = 'allow'\ndestructive = { ask = 'operator' }\n";

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// `None` when it was stopped, since it does not end.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// What it said under `--json`, when it did what it was asked.
    pub(crate) fn json(&self) -> Option<Value> {
        let said = parse(self.out.trim_end().as_bytes(), &Limits::ENVELOPE).ok();
        said.filter(|_| self.code == Some(0))
    }
}

/// A home as it was.
pub(crate) struct Saved(TempDir);

/// One home.
pub(crate) struct Home<'a> {
    folder: TempDir,
    command: &'a Path,
    killer: &'a Killer,
    processes: Cell<usize>,
}

impl<'a> Home<'a> {
    pub(crate) fn new(command: &'a Path, killer: &'a Killer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = Self { folder, command, killer, processes: Cell::new(0) };
        fs::create_dir(home.path()).unwrap();
        fs::create_dir(home.files()).unwrap();
        home
    }

    /// The real path: the tracer compares it with what the kernel says.
    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("home")
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.path().join("files")
    }

    /// An empty home with what a story begins with. The folder of files stays the one that it was: calls are bound to it.
    pub(crate) fn begin(&self, story: &Story) {
        self.clear();
        self.write("rules.toml", RULES);
        self.write("agent.jsonl", story.script);
        fs::write(self.files().join(OLD), "old").unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn clear(&self) {
        for entry in fs::read_dir(self.path()).unwrap() {
            let path = entry.unwrap().path();
            if path == self.files() {
                for file in fs::read_dir(&path).unwrap() {
                    fs::remove_file(file.unwrap().path()).unwrap();
                }
            } else if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
    }

    pub(crate) fn save(&self) -> Saved {
        let saved = tempfile::tempdir().unwrap();
        copy(&self.path(), saved.path());
        Saved(saved)
    }

    /// As it was when it was saved.
    pub(crate) fn restore(&self, saved: &Saved) {
        self.clear();
        copy(saved.0.path(), &self.path());
    }

    /// Takes a change out of the folder that happened, so that it can happen again: a file that was made is taken away, one
    /// that was removed is put back. True when there was one.
    pub(crate) fn collect(&self, change: Change) -> bool {
        let file = self.files().join(change.file);
        let there = fs::read_to_string(&file).ok();
        match change.does {
            Does::Makes if there.is_some() => {
                assert_eq!(there.as_deref(), Some(CONTENT), "half a file has the name");
                fs::remove_file(file).unwrap();
                true
            }
            Does::Removes if there.is_none() => {
                fs::write(file, "old").unwrap();
                true
            }
            _ => false,
        }
    }

    /// What lies in the folder. What the tools set aside is hidden and no file of anybody's.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.files()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter(|name| !name.starts_with(".portcullis-tmp-")).collect();
        names.sort();
        names
    }

    /// Runs the command where nobody has to know what it did to this home.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(self.command);
        command.args(arguments);
        let number = self.next();
        let at = |name: &str| self.folder.path().join(format!("{number}.{name}"));
        self.ended(command, &at("out"), &at("err"))
    }

    fn next(&self) -> usize {
        self.processes.replace(self.processes.get() + 1)
    }

    /// Runs the command and keeps what it did to this home.
    pub(crate) fn run(&self, arguments: &[&str], kill: Option<Kill>) -> (Ended, Told) {
        let number = self.next();
        let at = |name: &str| self.folder.path().join(format!("{number}.{name}"));
        let log = at("log");
        let mut command = self.killer.command(&log, &self.path(), kill);
        command.arg(self.command).args(arguments);
        let ended = self.ended(command, &at("out"), &at("err"));
        let told = Killer::told(&log);
        let _never_begun = fs::remove_file(log);
        (ended, told)
    }

    /// `run` or `resume` with the same agent, files and rules.
    pub(crate) fn drive(&self, first: &[&str], last: &[&str], kill: Option<Kill>) -> (Ended, Told) {
        let agent = format!("scripted:{}", self.path().join("agent.jsonl").display());
        let (files, rules) = (self.files(), self.path().join("rules.toml"));
        let (files, rules) = (files.display().to_string(), rules.display().to_string());
        let flags = ["-q", "-c", &rules, "--agent", &agent, "--files", &files];
        let words: Vec<&str> = first.iter().chain(&flags).chain(last).copied().collect();
        self.run(&words, kill)
    }

    fn ended(&self, mut command: Command, out: &Path, err: &Path) -> Ended {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("USER", "ann")
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(fs::File::create(out).unwrap())
            .stderr(fs::File::create(err).unwrap());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if begun.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let said = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            fs::remove_file(path).unwrap();
            text
        };
        Ended { code: status.and_then(|status| status.code()), out: said(out), err: said(err) }
    }
}

/// Copies what is in a folder, with its permissions, into one that is there.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            if !to.is_dir() {
                fs::create_dir(&to).unwrap();
            }
            fs::set_permissions(&to, fs::metadata(&from).unwrap().permissions()).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
