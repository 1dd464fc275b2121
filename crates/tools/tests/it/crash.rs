//! A process that is killed while it writes: files are whole, and what is left over is hidden and harmless.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_testkit::block_on;
use portcullis_testkit::permit::permit_for;
use portcullis_tools::Files;

use crate::bench::{Bench, names};

/// Names the folder to write in, for the process that is to be killed.
const VARIABLE: &str = "PORTCULLIS_TEST_CRASH_FOLDER";
const SIZE: usize = 256 * 1024;

/// Not a test of its own: what the killed process runs. Without the variable it does nothing.
#[test]
fn writes_until_it_is_killed() {
    use portcullis_domain::ports::ToolSource as _;
    let Some(folder) = std::env::var_os(VARIABLE) else { return };
    let files = Files::open(Path::new(&folder), &[]).unwrap();
    println!("begun");
    for n in 0_u64.. {
        let path = format!("f{n}");
        let create = [("path", path.clone()), ("content", "x".repeat(SIZE))].into_iter().collect();
        block_on(files.call(permit_for("files.create", create))).unwrap();
        let delete: Object = [("path", path)].into_iter().collect();
        block_on(files.call(permit_for("files.delete", delete))).unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_whole_files_and_hidden_rest() {
    let bench = Bench::new();
    let (mut hidden, mut swept) = (0, 0);
    for round in 0..40_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture"])
            .env(VARIABLE, &bench.inside)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"begun\n") {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "the writer ended early");
            said.extend(byte);
        }
        // Another moment each time; which one does not matter, only that all of them are fine.
        std::thread::sleep(Duration::from_micros(300 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        swept += sweep(&bench);
        hidden += check_rest(&bench);
    }
    // Of 40 kills each meets a writer somewhere else; most of its time it writes and syncs.
    if swept == 0 {
        portcullis_testkit::skip::skip("no kill met a writer that was writing");
    }
    if hidden + swept == 0 {
        portcullis_testkit::skip::skip(
            "no kill met a writer between its temporary file and its name",
        );
    }
}

/// Whoever opens the folder next removes what was half written, and nothing that was set aside. How much that was.
fn sweep(bench: &Bench) -> usize {
    // Set aside under 32 digits; half written under those and an inode.
    let rest = || {
        let names =
            std::fs::read_dir(&bench.inside).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let hidden = names.filter(|name| name.starts_with(".portcullis-tmp-"));
        hidden.partition::<Vec<_>, _>(|name| name.rsplit('-').next().unwrap().len() == 32)
    };
    let (aside, written) = rest();
    Files::open(&bench.inside, &[]).unwrap();
    assert_eq!(rest(), (aside, Vec::new()));
    written.len()
}

/// Everything that can be seen is whole; the rest is removed. How much rest there was.
fn check_rest(bench: &Bench) -> usize {
    let listed = bench.ok("files.list", "{}");
    let visible = names(&listed);
    for name in &visible {
        assert!(name.starts_with('f'), "{name}");
        assert_eq!(bench.on_disk(name).len(), SIZE);
    }
    let all: Vec<PathBuf> =
        std::fs::read_dir(&bench.inside).unwrap().map(|entry| entry.unwrap().path()).collect();
    let hidden = all.len() - visible.len();
    let counted = listed.get("unfinished_changes").and_then(Value::as_u64).unwrap_or(0);
    assert_eq!(counted, hidden as u64);
    for path in all {
        std::fs::remove_file(path).unwrap();
    }
    hidden
}

#[test]
fn a_leftover_is_hidden_cannot_be_named_and_is_in_nobodys_way() {
    let bench = Bench::new();
    bench.put(".portcullis-tmp-0123", "needle");
    let listed = bench.ok("files.list", "{}");
    assert_eq!(names(&listed), Vec::<&str>::new());
    assert_eq!(listed.get("unfinished_changes"), Some(&Value::from(1_u64)));
    let found = bench.ok("files.search", r#"{"text":"needle"}"#);
    assert_eq!(found.get("matches"), Some(&Value::Array(vec![])));
    for (tool, arguments) in [
        ("files.read", r#"{"path":".portcullis-tmp-0123"}"#),
        ("files.delete", r#"{"path":".portcullis-tmp-0123"}"#),
        ("files.create", r#"{"path":".portcullis-tmp-4567","content":""}"#),
    ] {
        assert_eq!(bench.no(tool, arguments), "the path names an unfinished change");
    }
    bench.ok("files.create", r#"{"path":"a","content":"x"}"#);
    assert_eq!(names(&bench.ok("files.list", "{}")), ["a"]);
}
