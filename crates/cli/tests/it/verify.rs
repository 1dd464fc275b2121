//! `verify`: an intact record, a changed one, and heads that were kept elsewhere.

use std::path::Path;

use portcullis_audit::head::{FileSink, Head, HeadSink as _, tips};
use portcullis_audit::keys::SigningKey;
use portcullis_canon::Value;
use portcullis_domain::ports::{Clock as _, Ledgers as _};
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_testkit::ports::SeededEntropy;

use crate::home::{Home, text};
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
    assert!(out.contains("1 signature valid"), "{out}");
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

const CREATE: &str =
    r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"NAME","content":"x"}}"#;

/// A home in which ann and bob have keys.
fn people() -> Home {
    let home = Home::new();
    for name in ["ann", "bob"] {
        home.run(&["key", "new", name]).exits(0);
    }
    home
}

/// A configuration under which this role is asked, and this person alone has it.
fn asks(home: &Home, file: &str, role: &str, person: &str) -> String {
    let key = home.run(&["key", "public", person]).exits(0).out;
    let rules = format!(
        "[classes]\nlocal_mutation = {{ ask = '{role}' }}\n\
         [[reviewers]]\nperson = '{person} of {file}'\nroles = ['{role}']\nkey = '{}'\n",
        key.trim()
    );
    home.write(file, rules).display().to_string()
}

/// Begins a run under this configuration, has this person approve its one change, and completes it.
fn approved(home: &Home, config: &str, person: &str, more: &[&str]) -> String {
    let done = r#"{"kind":"complete","result":1}"#;
    let create = CREATE.replace("NAME", person);
    let args = [&["-c", config, "--json", "--owner", "team"], more].concat();
    let begun = home.scripted(&format!("{create}\n{done}"), &args).json(3);
    let run = text(&begun, "run");
    home.run(&[&["approve", &run, "--yes", "--key", person], more].concat()).exits(0);
    home.run(&[&["resume", &run], more].concat()).exits(0);
    run
}

#[test]
fn answers_are_judged_with_the_reviewers_of_the_configuration_that_the_run_began_with() {
    let home = people();
    let config = asks(&home, "release.toml", "release", "ann");
    approved(&home, &config, "ann", &[]);
    let out = home.run(&["verify"]).exits(0).out;
    assert!(out.contains("1 signature valid\n") && out.contains("1 used with leave\n"), "{out}");
    assert!(out.contains(&format!("1 key of {config}\n")), "{out}");
    let keys = home.path("config/portcullis/keys").display().to_string();
    assert!(out.contains(&format!("  reviewers     2 keys of {keys}\n")), "{out}");
    let json = home.run(&["verify", "--json"]).json(0);
    for (at, from, keys) in [(0, &keys, 2), (1, &config, 1)] {
        let source = json.pointer(&format!("/reviewers/{at}")).unwrap();
        assert_eq!((&text(source, "from"), source.get("why")), (from, Some(&Value::Null)));
        assert_eq!(source.get("keys").and_then(Value::as_u64), Some(keys));
    }
    assert_eq!(json.get("hint"), Some(&Value::Null));
    home.run(&["verify", "-c", &config]).exits(0);
}

#[test]
fn one_database_that_served_two_configurations_is_intact() {
    let home = people();
    let first = asks(&home, "one.toml", "release", "ann");
    let second = asks(&home, "two.toml", "review", "bob");
    approved(&home, &first, "ann", &[]);
    approved(&home, &second, "bob", &[]);
    let out = home.run(&["verify"]).exits(0).out;
    assert!(out.contains("2 signatures valid\n") && out.contains("2 used with leave\n"), "{out}");
    // By the one that is named alone, the other's people are nobody.
    for (named, other) in [(&first, &second), (&second, &first)] {
        let out = home.run(&["verify", "-c", named]).exits(1).out;
        assert!(out.contains("1 USED WITHOUT LEAVE") && !out.contains(other.as_str()), "{out}");
        assert!(out.contains("alone; without -c") && out.ends_with("NOT INTACT\n"), "{out}");
    }
    // A run of another database has no say here.
    let stranger = asks(&home, "three.toml", "review", "ann");
    let db = home.path("other.db").display().to_string();
    std::fs::remove_file(home.path("files/ann")).unwrap();
    approved(&home, &stranger, "ann", &["--db", &db]);
    assert!(home.run(&["verify", "--db", &db]).exits(0).out.contains(&stranger));
    assert!(!home.run(&["verify"]).exits(0).out.contains(&stranger));
}

#[test]
fn an_answer_that_no_configuration_knows_is_a_break_that_says_what_to_name() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    let home = people();
    let config = asks(&home, "release.toml", "release", "ann");
    let run = approved(&home, &config, "ann", &[]);
    let whole = std::fs::read_to_string(&config).unwrap();
    let broken = |why: &str, said: &str| {
        let out = home.run(&["verify"]).exits(1).out;
        assert!(out.contains("1 USED WITHOUT LEAVE") && out.contains(said), "{why}: {out}");
        assert!(out.contains("judge by that one: `portcullis -c FILE verify`"), "{why}: {out}");
        let json = home.run(&["verify", "--json"]).json(1);
        let breaks = json.pointer("/report/breaks").and_then(Value::as_array).unwrap();
        assert!(breaks.iter().any(|found| text(found, "kind") == "no_leave"), "{why}: {json:?}");
        assert!(text_at(&json, "/hint").contains("-c FILE"), "{why}");
    };
    let rewritten =
        |from: &str, to: &str| std::fs::write(&config, whole.replace(from, to)).unwrap();
    rewritten("['release']", "['auditor']");
    broken("no role", "does not have the role");
    let bob = home.run(&["key", "public", "bob"]).exits(0).out;
    let ann = home.run(&["key", "public", "ann"]).exits(0).out;
    rewritten(ann.trim(), bob.trim());
    broken("another key", "does not have the role");
    rewritten("roles =", "revoked = true\nroles =");
    broken("revoked", "revoked or outside its term");
    // Not trusted, it is not used, and that is said.
    rewritten("", "");
    set_permissions(&config, Permissions::from_mode(0o666)).unwrap();
    broken("writable", "NOT USED: the configuration");
    set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
    let elsewhere = asks(&home, "moved.toml", "release", "ann").replace("moved.toml", "kept.toml");
    std::fs::rename(&config, &elsewhere).unwrap();
    broken("gone", "does not exist");
    let json = home.run(&["verify", "--json"]).json(1);
    assert_eq!(text_at(&json, "/reviewers/1/from"), config);
    assert!(text_at(&json, "/reviewers/1/why").contains("does not exist"));
    home.run(&["verify", "-c", &elsewhere]).exits(0);
    // A memory that cannot be trusted names no configuration.
    std::fs::rename(&elsewhere, &config).unwrap();
    home.run(&["verify"]).exits(0);
    let memory = home.path("state/portcullis/launch").join(format!("{run}.json"));
    set_permissions(&memory, Permissions::from_mode(0o666)).unwrap();
    broken("memory", "others could have written it");
}

#[test]
fn a_key_that_one_configuration_revokes_counts_in_none() {
    let home = people();
    let config = asks(&home, "release.toml", "operator", "bob");
    approved(&home, &config, "bob", &[]);
    home.run(&["verify"]).exits(0);
    // The key folder still knows it, and so did the configuration.
    let rules = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{rules}revoked = true\n")).unwrap();
    let out = home.run(&["verify"]).exits(1).out;
    assert!(out.contains("1 USED WITHOUT LEAVE"), "{out}");
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
    assert!(sentence.contains("verify --write-head"), "{sentence}");
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
