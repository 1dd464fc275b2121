//! The scene of the README with the fake bank, as it stands there: its lines are run by a shell, in the checkout.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use portcullis_canon::Value;

use crate::home::{COMMAND, Ended, Home, has_python, text};

/// Where the scene begins.
const HEADING: &str = "## A payment that is tried again\n";

/// The blocks of one language under the heading.
fn blocks<'a>(readme: &'a str, language: &str) -> Vec<&'a str> {
    let (_, scene) = readme.split_once(HEADING).expect("the scene");
    let scene = scene.split("\n## ").next().unwrap();
    let mark = format!("```{language}\n");
    scene.split(&mark).skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

/// A `cargo` that knows one thing: `cargo run -q -- …` is the command that was built for this test.
fn cargo(home: &Home) {
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3\" = 'run -q --' ] || exit 97\nshift 3\nexec '{COMMAND}' \"$@\"\n"
    );
    let path = home.write("bin/cargo", script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn the_scene_of_the_readme_pays_once_with_the_gate_and_twice_without() {
    if !has_python() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let ([lines], [shown]) = (&blocks(&readme, "sh")[..], &blocks(&readme, "text")[..]) else {
        panic!("one block of commands, and one of what they print")
    };
    let home = Home::new();
    cargo(&home);
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &format!("{lines}\necho \"in $BANK\"")]);
    shell.env_clear().current_dir(&root).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", home.path("bin").display()));
    shell.env("HOME", home.path("")).env("TMPDIR", home.path(""));
    let played = Ended::of(&shell.output().unwrap()).exits(0);

    // What the README shows is what is printed, in its order; `…` stands for what is left out.
    let mut printed = played.out.lines();
    for line in shown.lines().filter(|line| *line != "…") {
        let begins = line.strip_suffix('…').unwrap_or(line);
        assert!(printed.any(|row| row.starts_with(begins)), "{line:?} is not in {played:#?}");
    }
    let bank = played.out.lines().last().and_then(|line| line.strip_prefix("in ")).unwrap();
    let ledger = |name: &str| fs::read_to_string(Path::new(bank).join(name)).unwrap();
    assert_eq!(ledger("without"), "40 to ann\n40 to ann\n", "the control");
    assert_eq!(ledger("with"), "40 to ann\n");

    // And what it says of the question holds.
    let db = format!("{bank}/portcullis.db");
    let run = |args: &[&str]| home.run(&[&["--db", &db], args].concat());
    let inbox = run(&["inbox", "--json"]).json(0);
    let kind = inbox.pointer("/questions/0/kind").and_then(Value::as_str);
    assert_eq!(kind, Some("unknown_outcome"));
    let question = text(inbox.pointer("/questions/0").unwrap(), "question");
    run(&["answer", &question, "happened", "--yes"]).exits(0);
    assert_eq!(run(&["inbox", "--json"]).json(0).pointer("/questions/0"), None);
    run(&["verify"]).exits(0);
}
