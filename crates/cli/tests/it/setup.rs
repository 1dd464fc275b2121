//! `demo`, `init`, `key`, completions and the manual page.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use portcullis_canon::Value;

use crate::home::{Ended, Home, text};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The folder that a demo made.
fn folder(out: &str) -> PathBuf {
    let line = out.lines().find_map(|line| line.strip_prefix("A folder for this demo: "));
    PathBuf::from(line.unwrap())
}

/// The steps of the story, in order.
fn assert_story(out: &str) {
    let mut rest = out;
    for part in [
        "asks what is in the folder",
        "The rules allow it: it was done.",
        "makes no sense",
        "before any rule is asked (arguments_invalid)",
        "asks to delete",
        "deny (class_denied)",
        "asks to write",
        "the run waits",
        "Nothing has changed yet",
        "A person approved exactly this call: it was done.",
        "says that it is done",
        "The change is there",
        "intact",
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in its place: {out}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn the_demo_answers_itself_and_ends_with_an_intact_record() {
    let home = Home::new();
    let tmp = home.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let ended =
        Ended::of(&home.command(&["demo", "--yes"]).env("TMPDIR", &tmp).output().unwrap()).exits(0);
    assert_story(&ended.out);
    let base = folder(&ended.out);
    assert_eq!(
        fs::read_to_string(base.join("files/summary.txt")).unwrap(),
        "The month costs 1290.\n"
    );
    assert!(base.join("files/budget.txt").exists(), "the delete was denied");
    let delete = ended.out.lines().last().unwrap();
    assert!(delete.ends_with(&format!("rm -r {}", base.display())), "{delete}");
    assert_eq!(mode(&base), 0o700);
    assert!(
        !home.path("state").exists() && !home.path("config").exists(),
        "the user's own is untouched"
    );
}

#[test]
fn the_demo_waits_for_a_person_in_another_terminal() {
    let home = Home::new();
    let tmp = home.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let mut child = home
        .command(&["demo"])
        .env("TMPDIR", &tmp)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let typed = loop {
        let line = lines.next().unwrap().unwrap();
        out.push_str(&line);
        out.push('\n');
        if line.contains(" approve q_") {
            break line.trim().to_owned();
        }
    };
    let answer = std::process::Command::new("/bin/sh")
        .args(["-c", &format!("{typed} --yes")])
        .output()
        .unwrap();
    Ended::of(&answer).exits(0);
    lines.for_each(|line| out.push_str(&(line.unwrap() + "\n")));
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{out}");
    assert_story(&out);
}

#[test]
fn init_makes_what_is_missing_and_changes_nothing_that_is_there() {
    let home = Home::new();
    let first = home.run(&["init"]).exits(0);
    assert_eq!(first.out.matches("made  ").count(), 5, "{first:#?}");
    for (path, bits) in [
        ("state/portcullis", 0o700),
        ("config/portcullis", 0o700),
        ("config/portcullis/keys", 0o700),
        ("config/portcullis/keys/ann.key", 0o600),
        ("state/portcullis/portcullis.db", 0o600),
        ("portcullis.toml", 0o600),
    ] {
        assert_eq!(mode(&home.path(path)), bits, "{path}");
    }
    let (key, rules) = (home.key("ann.key"), home.path("portcullis.toml"));
    let before = (fs::read(&key).unwrap(), fs::read(home.db()).unwrap());
    fs::write(&rules, "# mine\n").unwrap();
    let again = home.run(&["init"]).exits(0);
    assert_eq!(again.out.matches("kept  ").count(), 5, "{again:#?}");
    assert_eq!(fs::read_to_string(&rules).unwrap(), "# mine\n");
    assert_eq!((fs::read(&key).unwrap(), fs::read(home.db()).unwrap()), before);
    assert!(
        !again.out.contains(String::from_utf8_lossy(&before.0).trim()),
        "no private key is shown"
    );
}

#[test]
fn init_makes_the_public_half_that_a_killed_one_left_out() {
    let home = Home::new();
    home.run(&["init"]).exits(0);
    let public = home.key("ann.pub");
    let before = fs::read(&public).unwrap();
    fs::remove_file(&public).unwrap();
    let ended = home.run(&["init"]).exits(0);
    assert_eq!(ended.out.matches("kept  ").count(), 5, "{ended:#?}");
    assert_eq!(fs::read(&public).unwrap(), before);
}

#[test]
fn the_configuration_that_init_writes_and_the_examples_can_be_used() {
    let home = Home::new();
    for name in ["bob", "eve"] {
        home.run(&["key", "new", name]).exits(0);
    }
    home.run(&["init"]).exits(0);
    let written = home.path("portcullis.toml").display().to_string();
    let done = r#"{"kind":"complete","result":1}"#;
    for config in
        [written, crate::home::example("ask-local.toml"), crate::home::example("four-eyes.toml")]
    {
        home.scripted(done, &["-c", &config]).exits(0);
    }
}

#[test]
fn keys_are_made_once_and_only_their_public_halves_are_shown() {
    let home = Home::new();
    let empty = home.run(&["key", "list"]).exits(0);
    assert!(empty.out.contains("key new"), "{empty:#?}");
    let made = home.run(&["key", "new", "bob"]).exits(0);
    let public = home.run(&["key", "public", "bob"]).exits(0).out;
    assert!(public.starts_with("ed25519:") && public.lines().count() == 1);
    assert!(made.out.contains(public.trim()));
    home.run(&["key", "new", "bob"]).refuses(1, "E4001", &["exists already", "another name"]);
    home.run(&["key", "show", "eve"]).refuses(1, "E4005", &["no key `eve`", "key new eve"]);
    for name in ["", "../x", ".x", "a b"] {
        assert_eq!(home.run(&["key", "new", name]).code, Some(2), "{name}");
    }
    let listed = home.run(&["key", "list", "--json"]).json(0);
    assert_eq!(
        (text(&listed, "person"), text(&listed, "key")),
        ("bob".to_owned(), public.trim().to_owned())
    );
    let private = fs::read_to_string(home.key("bob.key")).unwrap();
    let secret = private.lines().last().unwrap();
    for args in [&["key", "list"][..], &["key", "show", "bob"], &["key", "list", "--json"]] {
        assert!(!home.run(args).exits(0).out.contains(secret), "{args:?}");
    }
}

#[test]
fn what_is_set_up_is_told_to_programs_as_json() {
    let home = Home::new();
    let init = home.run(&["init", "--json"]).json(0);
    let places = init.get("places").unwrap().as_array().unwrap();
    let told: Vec<_> = places.iter().map(|place| text(place, "what")).collect();
    assert_eq!(told, ["state", "configuration", "key", "database", "rules"]);
    for place in places {
        assert_eq!(place.get("made").unwrap().as_bool(), Some(true), "{place:?}");
        assert!(Path::new(&text(place, "path")).exists(), "{place:?}");
    }
    let again = home.run(&["init", "--json", "--no-config"]).json(0);
    assert_eq!(again.pointer("/places/3/made").and_then(Value::as_bool), Some(false));

    let key = home.run(&["key", "public"]).exits(0).out;
    for args in [&["key", "list"][..], &["key", "show", "ann"], &["key", "public"]] {
        let told = home.run(&[args, &["--json"]].concat()).json(0);
        assert_eq!((text(&told, "person"), text(&told, "key")), ("ann".into(), key.trim().into()));
    }
    assert_eq!(text(&home.run(&["key", "new", "bob", "--json"]).json(0), "person"), "bob");
    assert_eq!(text(&home.error(&["key", "show", "eve", "--json"], 1), "code"), "E4005");
}

#[test]
fn rules_that_the_reviewers_cannot_meet_begin_no_run() {
    let home = Home::new();
    let four_eyes = crate::home::example("four-eyes.toml");
    let done = r#"{"kind":"complete","result":1}"#;
    let short = &["2 people of the role `operator`", "owner `ann`", "key new NAME"];
    // The key that a first run would draw is the owner's own.
    home.scripted(done, &["-c", &four_eyes, "-q"]).refuses(1, "E9011", short);
    assert!(!home.path("state").exists() && !home.path("config").exists(), "nothing was made");
    home.run(&["key", "new", "ann"]).exits(0);
    home.run(&["key", "new", "bob"]).exits(0);
    home.scripted(done, &["-c", &four_eyes, "-q"]).refuses(1, "E9011", &["1 can answer: `bob`"]);
    home.scripted(done, &["-c", &four_eyes, "-q", "--owner", "team"]).exits(0);
    home.run(&["key", "new", "eve"]).exits(0);
    home.scripted(done, &["-c", &four_eyes, "-q"]).exits(0);

    let key = home.run(&["key", "public", "bob"]).exits(0).out;
    let rules = format!(
        "[classes]\nlocal_mutation = {{ ask = 'release' }}\n\
         [[reviewers]]\nperson = 'bob'\nroles = ['operator']\nkey = '{}'\n",
        key.trim()
    );
    let rules = home.write("portcullis.toml", rules).display().to_string();
    let short = &["somebody of the role `release`", "[[reviewers]]"];
    home.scripted(done, &["-c", &rules, "-q"]).refuses(1, "E9011", short);
    let init = home.run(&["init"]).exits(0);
    assert!(init.out.contains("note  the rules ask somebody of the role `release`"), "{init:#?}");
    let init = home.run(&["init", "--json"]).json(0);
    assert_eq!(init.get("notes").unwrap().as_array().unwrap().len(), 1, "{init:?}");
}

#[test]
fn the_demo_is_one_object_for_programs() {
    let home = Home::new();
    let tmp = home.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let demo = |args| Ended::of(&home.command(args).env("TMPDIR", &tmp).output().unwrap());
    assert!(demo(&["demo", "--json"]).exits(2).err.contains("E9009"));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "nothing was begun");
    let ended = demo(&["demo", "--yes", "--json"]);
    assert_eq!(ended.err, "");
    let told = ended.json(0);
    assert_eq!(told.get("intact").and_then(Value::as_bool), Some(true));
    assert_eq!(told.get("steps").unwrap().as_array().unwrap().len(), 5);
    assert!(Path::new(&text(&told, "change")).exists());
    assert!(text(&told, "next").contains(&text(&told, "run")));
}

#[test]
fn run_makes_a_key_only_where_nobody_could_answer_and_opens_none() {
    let done = r#"{"kind":"complete","result":1}"#;
    let home = Home::new();
    let first = home.scripted(done, &[]).exits(0);
    assert!(first.err.contains("made the key `ann`") && home.key("ann.key").exists(), "{first:#?}");
    // A private key that nobody can read, broken at that: run does not look at it.
    fs::write(home.key("ann.key"), "broken").unwrap();
    fs::set_permissions(home.key("ann.key"), fs::Permissions::from_mode(0o000)).unwrap();
    let again = home.scripted(done, &[]).exits(0);
    assert!(!again.err.contains("made the key"), "{again:#?}");
    fs::set_permissions(home.key("ann.key"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::read_to_string(home.key("ann.key")).unwrap(), "broken");

    let configured = Home::new();
    let key = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let config = format!("[[reviewers]]\nperson='bob'\nroles=['auditor']\nkey='{key}'\n");
    let config = configured.write("r.toml", config).display().to_string();
    let ended = configured.scripted(done, &["-c", &config]).exits(0);
    let note = "note: 1 of the role `operator` are asked and 0 can answer: such calls are denied";
    assert!(ended.err.contains(note) && !first.err.contains("can answer"), "{ended:#?}");
    let keys = configured.key("ann.key");
    assert!(!keys.parent().unwrap().exists(), "no key is made where reviewers are configured");
}

#[test]
fn a_name_without_a_key_makes_no_second_reviewer() {
    let home = Home::new();
    let asking = home.asking();
    let create = r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"new.txt","content":"x"}}"#;
    home.scripted(create, &["-c", &asking]).exits(3);
    let run = home.only_run();
    let other = home.command(&["approve", &run, "--yes"]).env("USER", "bob").output().unwrap();
    let other = Ended::of(&other).exits(1);
    assert!(other.err.contains("E4005: there is no key `bob`"), "{other:#?}");
    let named = home.run(&["approve", &run, "--yes", "--key", "eve"]).exits(1);
    assert!(named.err.contains("E4005: there is no key `eve`"), "{named:#?}");
    assert!(!home.key("bob.pub").exists() && !home.key("eve.pub").exists());
    home.run(&["approve", &run, "--yes"]).exits(0);
}

#[test]
fn completions_name_every_command_and_help_names_both() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.run(&["completions", shell]).exits(0).out;
        assert!(script.contains("portcullis") && script.contains("approve"), "{shell}");
    }
    let help = home.run(&["--help"]).exits(0).out;
    assert!(help.contains("  completions  ") && help.contains("  man  "), "{help}");
}

#[test]
fn each_command_has_a_manual_page_and_no_page_names_one_that_is_missing() {
    let home = Home::new();
    let folder = home.path("share/man/man1");
    let shown = folder.display().to_string();
    home.run(&["man", &shown]).exits(0);
    let page = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    for part in ["demo", "resume", "approve", "verify", "130"] {
        assert!(page("portcullis.1").contains(part), "{part}");
    }
    // In a page a hyphen is `\-`.
    for (name, option) in [
        ("portcullis-run.1", r"\-\-agent\-env"),
        ("portcullis-verify.1", r"\-\-write\-head"),
        ("portcullis-key-new.1", "NAME"),
    ] {
        assert!(page(name).contains(option), "{name}");
    }
    let mut named = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for words in text.split("(1)").collect::<Vec<_>>().split_last().unwrap().1 {
            let name = words.rsplit(char::is_whitespace).next().unwrap().replace('\\', "");
            assert!(folder.join(format!("{name}.1")).is_file(), "{name}");
            named += 1;
        }
    }
    assert!(named > 15, "{named}");
    let file = home.write("file", "").display().to_string();
    home.run(&["man", &file]).refuses(1, "E9005", &["cannot write the pages"]);
    home.run(&["man"]).refuses(2, "E9010", &["`<DIR>`"]);
}
