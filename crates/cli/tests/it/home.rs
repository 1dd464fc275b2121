//! A home of its own for one test, and the command run in it as a process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use portcullis_canon::{Limits, Value, parse};
use tempfile::TempDir;

/// The command, for tests that start it in other ways.
pub(crate) const COMMAND: &str = env!("CARGO_BIN_EXE_portcullis");

pub(crate) struct Home {
    dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("files")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of this home and says where it is.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path("state/portcullis/portcullis.db")
    }

    /// Runs SQL on the database behind the command's back; afterwards all of it stands in the one file.
    pub(crate) fn sql(&self, sql: &str) {
        let conn = rusqlite::Connection::open(self.db()).unwrap();
        conn.execute_batch(sql).unwrap();
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)).unwrap();
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.path("config/portcullis/keys").join(name)
    }

    /// The command with these arguments; it knows nothing of the surroundings but this home and `PATH`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(COMMAND);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("USER", "ann")
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(args).output().unwrap())
    }

    /// `run` with a script of proposals, one a line.
    pub(crate) fn scripted(&self, script: &str, more: &[&str]) -> Ended {
        let agent = format!("scripted:{}", self.write("agent.jsonl", script).display());
        let files = self.path("files").display().to_string();
        let mut args = vec!["run", "--agent", &agent, "--files", &files, "do it"];
        args.extend(more);
        self.run(&args)
    }

    /// The configuration under which every change asks.
    pub(crate) fn asking(&self) -> String {
        self.write("ask.toml", "[classes]\nlocal_mutation = 'ask'\n").display().to_string()
    }

    /// The one error of a command under `--json`: an object on standard error, and nothing on standard output.
    #[track_caller]
    pub(crate) fn error(&self, args: &[&str], exit: i32) -> Value {
        let ended = self.run(args).exits(exit);
        assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1), "{ended:#?}");
        let error = parse(ended.err.trim_end().as_bytes(), &Limits::ENVELOPE).unwrap();
        for key in ["code", "error"] {
            text(&error, key);
        }
        assert!(error.get("hint").is_some(), "{error:?}");
        error
    }

    /// The one run of this home.
    pub(crate) fn only_run(&self) -> String {
        let runs = self.run(&["runs", "--json"]).json(0);
        let [run] = runs.get("runs").unwrap().as_array().unwrap() else { panic!("{runs:?}") };
        run.get("run").unwrap().as_str().unwrap().to_owned()
    }
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout.clone()).unwrap(),
            err: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(self, code: i32) -> Value {
        let ended = self.exits(code);
        parse(ended.out.trim_end().as_bytes(), &Limits::ENVELOPE).unwrap()
    }

    /// One sentence on standard error with a code and what to do, and nothing on standard output.
    #[track_caller]
    pub(crate) fn refuses(self, exit: i32, code: &str, words: &[&str]) {
        let ended = self.exits(exit);
        let line = ended.err.strip_suffix('\n').unwrap_or_default();
        assert!(!line.contains('\n') && !line.chars().any(char::is_control), "{ended:#?}");
        assert!(line.starts_with(&format!("portcullis: {code}: ")), "{ended:#?}");
        for word in words {
            assert!(line.contains(word), "no {word:?} in {ended:#?}");
        }
        assert_eq!(ended.out, "");
    }
}

/// A text member, or a panic.
#[track_caller]
pub(crate) fn text(value: &Value, key: &str) -> String {
    value
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no {key} in {value:?}"))
        .to_owned()
}

/// The example that comes with the source.
pub(crate) fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    path.canonicalize().unwrap().display().to_string()
}

/// True when a Python 3 can be started; counted as skipped otherwise.
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("-V").output().is_ok_and(|out| out.status.success());
    if !found {
        portcullis_testkit::skip::skip("no python3 on this machine");
    }
    found
}
