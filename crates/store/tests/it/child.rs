//! One test of this binary run again in a process of its own, with its own umask or user.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use portcullis_store::sqlite::open::{OpenMode, open};

use crate::open::SCHEMA;

/// What the child shall do: `<mode> <umask in octal> <path>`.
const TASK: &str = "PORTCULLIS_STORE_TEST_TASK";

/// Set when the child shall die without closing.
const CRASH: &str = "PORTCULLIS_STORE_TEST_CRASH";

/// The user id of `nobody`.
pub const NOBODY: u32 = 65534;

/// Opens `path` in another process and returns what happened: `ok`, `ok immutable`, or the error's kind.
pub fn open_elsewhere(path: &Path, mode: OpenMode, umask: u32, user: Option<u32>) -> String {
    run(path, mode, umask, user, false)
}

/// The same for a writer that then dies without closing, so that its side files stay.
pub fn crash_elsewhere(path: &Path, umask: u32, user: Option<u32>) -> String {
    run(path, OpenMode::Existing, umask, user, true)
}

fn run(path: &Path, mode: OpenMode, umask: u32, user: Option<u32>, crash: bool) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // The other user may not be able to reach the build folder.
    let exe =
        tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    if let Some(user) = user {
        let copy = exe.path().join("it");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        command = Command::new(copy);
        command.uid(user).gid(user);
    }
    let task = format!("{mode:?} {umask:o} {}", path.to_str().unwrap());
    if crash {
        command.env(CRASH, "1");
    }
    let output = command
        .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
        .current_dir("/")
        .env(TASK, task)
        .output()
        .unwrap();
    result(&output)
}

fn result(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.split("result<").nth(1).and_then(|rest| rest.split('>').next()).map_or_else(
        || panic!("no result from the child: {text} {}", String::from_utf8_lossy(&output.stderr)),
        str::to_owned,
    )
}

/// Not a test by itself: the body of [`open_elsewhere`]'s child.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut parts = task.splitn(3, ' ');
    let mode = match parts.next().unwrap() {
        "CreateOrOpen" => OpenMode::CreateOrOpen,
        "Existing" => OpenMode::Existing,
        "ReadOnly" => OpenMode::ReadOnly,
        other => panic!("{other}"),
    };
    let umask = u32::from_str_radix(parts.next().unwrap(), 8).unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    match open(Path::new(parts.next().unwrap()), mode, SCHEMA) {
        Ok(opened) => {
            let rows: i64 =
                opened.conn.query_row("SELECT count(*) FROM thing", [], |row| row.get(0)).unwrap();
            assert!(rows >= 0);
            if mode != OpenMode::ReadOnly {
                opened
                    .conn
                    .execute("INSERT INTO thing (name) VALUES ('from the child')", [])
                    .unwrap();
            }
            println!("result<ok{}>", if opened.immutable { " immutable" } else { "" });
            if std::env::var_os(CRASH).is_some() {
                std::process::abort();
            }
        }
        Err(error) => println!("result<{}>", error.kind()),
    }
}
