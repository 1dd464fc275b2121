//! `verify`: an intact record, a changed one, and heads that were kept elsewhere.

use std::path::Path;

use portcullis_audit::head::{FileSink, Head, HeadSink as _, tips};
use portcullis_audit::keys::SigningKey;
use portcullis_canon::Value;
use portcullis_domain::ports::{Clock as _, Ledgers as _};
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::ports::SeededEntropy;

use crate::home::Home;
use crate::scene::{Scene, text_at};

fn worked(scene: &Scene) -> String {
    let run = scene.asking("send it", "a").to_string();
    scene.run(&["approve", &run, "--yes"]).out(0);
    run
}

/// `SEQ:HASH` as `verify` prints it.
fn head(scene: &Scene) -> String {
    let json = scene.run(&["verify", "--json"]).json(0);
    text_at(&json, "/heads/0/head").to_owned()
}

#[test]
fn an_intact_record_is_said_to_be() {
    let scene = Scene::new();
    worked(&scene);
    let out = scene.run(&["verify"]).out(0);
    assert_eq!(out.lines().last(), Some("intact"), "{out}");
    assert!(out.contains("1 signatures valid"), "{out}");
    // Every value begins in one column.
    let rows = out.lines().filter(|row| row.starts_with("  "));
    for row in rows {
        let value = row.char_indices().skip(16).find(|(_, c)| *c != ' ').map(|(at, _)| at);
        assert_eq!((row.get(15..16), value), (Some(" "), Some(16)), "{row}");
    }
    let json = scene.run(&["verify", "--json"]).json(0);
    assert_eq!(json.pointer("/report/intact").and_then(Value::as_bool), Some(true));
    assert_eq!(json.pointer("/report/signatures/checked").and_then(Value::as_u64), Some(1));
}

#[test]
fn the_calls_that_ran_on_a_yes_are_counted() {
    let home = Home::new();
    let asking = home.asking();
    let create =
        r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"a","content":"x"}}"#;
    let done = r#"{"kind":"complete","result":1}"#;
    home.scripted(&format!("{create}\n{done}"), &["-c", &asking]).exits(3);
    let run = home.only_run();
    home.run(&["approve", &run, "--yes"]).exits(0);
    let grants = |code| {
        let out = home.run(&["verify"]).exits(code).out;
        let row = out.lines().find_map(|row| row.strip_prefix("  grants        ")).unwrap();
        row.to_owned()
    };
    assert_eq!(grants(0), "0 used with leave");
    home.run(&["resume", &run]).exits(0);
    assert_eq!(grants(0), "1 used with leave");
    std::fs::rename(home.key("ann.pub"), home.path("ann.pub")).unwrap();
    assert_eq!(grants(0), "0 used with leave, 1 unchecked, since no keys are configured");
    home.run(&["key", "new", "bob"]).exits(0);
    assert_eq!(grants(1), "0 used with leave, 1 USED WITHOUT LEAVE");
}

#[test]
fn a_changed_record_is_broken_and_exits_1() {
    let scene = Scene::new();
    worked(&scene);
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    db.execute("UPDATE runs SET owner = 'm\u{1b}[2Jallory'", ()).unwrap();
    let out = scene.run(&["verify"]).out(1);
    assert_eq!(out.lines().last(), Some("NOT INTACT"), "{out}");
    assert!(out.contains("BROKEN `owner` of") && out.contains("\\x1B[2J"), "{out}");
    let json = scene.run(&["verify", "--json"]).json(1);
    assert_eq!(text_at(&json, "/report/breaks/0/kind"), "row_mismatch");
    assert!(text_at(&json, "/sentences/0").contains("owner"));
}

#[test]
fn a_kept_head_finds_an_old_copy() {
    let scene = Scene::new();
    worked(&scene);
    let early = head(&scene);
    scene.asking("more", "b");
    let late = head(&scene);
    assert!(scene.run(&["verify", "--head", &early]).out(0).contains("1 of 1 kept heads found"));
    scene.run(&["verify", "--head", &late]).out(0);
    let (seq, _) = late.split_once(':').unwrap();
    let (_, other) = early.split_once(':').unwrap();
    let out = scene.run(&["verify", "--head", &format!("{seq}:{other}")]).out(1);
    assert!(out.contains("the record was rewritten"), "{out}");
    let beyond = format!("{}:{other}", seq.parse::<u64>().unwrap() + 1);
    let out = scene.run(&["verify", "--head", &beyond]).out(1);
    assert!(out.contains("its tail was cut"), "{out}");
    assert_eq!(scene.run(&["verify", "--head", "7:ab"]).code, 2);
    let nowhere = scene.home.path().join("heads");
    let sentence = scene.run(&["verify", "--head", nowhere.to_str().unwrap()]).refused(1);
    assert!(sentence.contains("holds no head"), "{sentence}");
}

#[test]
fn the_configured_file_of_heads_is_compared_and_its_signatures_checked() {
    let scene = Scene::new();
    worked(&scene);
    let folder = scene.home.path().join(".config/portcullis");
    let key = SigningKey::create(&folder.join("host"), "host", &SeededEntropy::new(21)).unwrap();
    let heads = scene.home.path().join("state/heads");
    let config = format!("[head]\nfile = \"{}\"\n", heads.display());
    std::fs::write(folder.join("portcullis.toml"), config).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("portcullis.toml"), mode).unwrap();
    let keep = |key: &SigningKey, file: &Path| {
        let store = reader(&scene);
        let mut ledger = store.begin().unwrap();
        for (journal, tip) in tips(ledger.as_mut()).unwrap() {
            let at = scene.clock.now();
            let head = Head::sign(ledger.instance(), journal, tip, at, key);
            FileSink::new(file).keep(&head).unwrap();
        }
    };
    keep(&key, &heads);
    let out = scene.run(&["verify"]).out(0);
    assert!(out.contains("1 of 1 kept heads found"), "{out}");
    // A head that another key signed proves nothing, wherever it points.
    let foreign = scene.home.path().join("state/foreign");
    keep(&SigningKey::generate(&SeededEntropy::new(22)), &foreign);
    let out = scene.run(&["verify", "--head", foreign.to_str().unwrap()]).out(1);
    assert!(out.contains("is not signed by the expected key"), "{out}");
}

#[test]
fn a_head_is_kept_on_demand_when_the_record_is_intact() {
    let scene = Scene::new();
    worked(&scene);
    let file = scene.home.path().join("state/heads");
    let name = file.to_str().unwrap();
    scene.run(&["verify", "--write-head", name]).out(0);
    scene.asking("more", "b");
    let out = scene.run(&["verify", "--head", name]).out(0);
    assert!(out.contains("1 of 1 kept heads found"), "{out}");
    let kept = std::fs::read(&file).unwrap();
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    db.execute("UPDATE runs SET owner = 'mallory'", ()).unwrap();
    scene.run(&["verify", "--write-head", name]).out(1);
    assert_eq!(std::fs::read(&file).unwrap(), kept);
}

fn reader(scene: &Scene) -> SqliteStore {
    let entropy = SeededEntropy::new(1);
    let opening = Opening {
        now: scene.clock.now(),
        entropy: &entropy,
        observers: Vec::new(),
        committing: Committing::OwnThread,
    };
    SqliteStore::open(&scene.db(), OpenMode::ReadOnly, opening).unwrap()
}
