//! `docs/json-output.md` names the fields that the command writes, and no others.

use std::collections::BTreeSet;

use portcullis_canon::{Limits, Value, parse};

use crate::home::{Ended, Home, example};
use crate::scene::Scene;

const DOC: &str = include_str!("../../../../docs/json-output.md");

/// Where the checks are declared that the document lists the names of.
const BREAKS: &str = include_str!("../../../audit/src/verify/report.rs");

const SCRIPT: &str = r#"{"kind":"tool_call","tool":"files.list","arguments":{"path":"."}}
{"kind":"tool_call","tool":"files.read","arguments":{"path":7}}
{"kind":"tool_call","tool":"files.create","arguments":{"path":"new.txt","content":"x"}}
{"kind":"complete","result":1}"#;

/// What holds whatever an agent, a tool or an event puts there.
const OPEN: [&str; 5] = ["card", "payload", "detail", "one", "other"];

fn section(heading: &str) -> &'static str {
    let at = DOC.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rest = &DOC[at + 4..];
    rest.find("\n## ").map_or(rest, |end| &rest[..end])
}

/// The texts between two marks.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// The fields that a section says an object has: the first column of its table, and names in quotes.
fn promised(section: &str) -> BTreeSet<String> {
    let rows = section.lines().filter_map(|row| row.strip_prefix("| "));
    let columns = rows.flat_map(|row| between(row.split('|').next().unwrap(), '`'));
    let quoted = between(section, '`').flat_map(|code| between(code, '"'));
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    columns.chain(quoted).filter(plain).map(str::to_owned).collect()
}

fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter() {
                into.insert(key.to_owned());
                if !OPEN.contains(&key) {
                    fields(value, into);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, into)),
        _ => {}
    }
}

fn lines(ended: &Ended) -> Vec<Value> {
    assert!(!ended.out.is_empty(), "{ended:#?}");
    let lines = ended.out.lines();
    lines.map(|line| parse(line.as_bytes(), &Limits::ENVELOPE).unwrap()).collect()
}

/// Every name that a section mentions in code.
fn mentioned(section: &str) -> BTreeSet<String> {
    let words = between(section, '`')
        .flat_map(|code| code.split(|c: char| c != '_' && !c.is_ascii_lowercase()));
    words.map(str::to_owned).collect()
}

/// Every field that was written is named in the section, or in those that it points to, and every field that the
/// section promises was written.
#[track_caller]
fn check(heading: &str, written: &[Value], elsewhere: &[&str]) {
    let mut found = BTreeSet::new();
    written.iter().for_each(|value| fields(value, &mut found));
    let mut named: BTreeSet<String> = ["bytes", "text", "missing"].map(str::to_owned).into();
    for heading in elsewhere.iter().chain([&heading]) {
        named.extend(mentioned(section(heading)));
    }
    let promised = promised(section(heading));
    assert!(promised.len() > 3, "{heading}: {promised:?}");
    let unnamed: Vec<_> = found.difference(&named).collect();
    let absent: Vec<_> = promised.difference(&found).collect();
    assert!(unnamed.is_empty() && absent.is_empty(), "{heading}: {unnamed:?} {absent:?}");
}

#[test]
fn what_runs_questions_and_steps_write_is_what_the_document_lists() {
    let home = Home::new();
    let asking = home.asking();
    let json = |args: &[&str]| lines(&home.run(&[args, &["--json"]].concat()));
    let mut rests = lines(&home.scripted(SCRIPT, &["-c", &asking, "--json"]));
    let run = home.only_run();
    check("`inbox`", &json(&["inbox"]), &[]);
    let mut shown = json(&["show", &run]);
    let mut explained = json(&["explain", &run]);
    let stuck = json(&["runs", "--stuck"]);
    home.scripted(SCRIPT, &["-c", &asking]).exits(3);
    let decided = json(&["approve", &run, "--alike", "--yes"]);
    check("`approve`, `reject`, `answer`", &decided, &[]);
    rests.extend(json(&["resume", &run]));
    check("`run`, `resume`", &rests, &[]);
    check("`models`", &json(&["models", "--offline"]), &[]);
    check("`models prices`", &json(&["models", "prices"]), &[]);
    let recording = format!("replay:{}", example("recordings/notes"));
    let replay = ["run", "--model", &recording, "x"];
    let told = home.run(&[&replay[..], &["--json"]].concat()).exits(1);
    let told = Ended { out: told.err.clone(), ..told };
    check("`run --model`", &lines(&told), &[]);
    check("`runs`", &[&json(&["runs"])[..], &stuck].concat(), &["`explain RUN [STEP]`"]);
    shown.extend(json(&["show", &run]));
    check("`show RUN`", &shown, &["`runs`", "`inbox`", "`explain RUN [STEP]`"]);
    check("`events RUN`, `events --all`", &json(&["events", "--all"]), &[]);
    explained.extend(json(&["explain", &run]));
    check("`explain RUN [STEP]`", &explained, &[]);
    check("`verify`", &json(&["verify"]), &[]);
    let mut again = json(&["recheck", "--all"]);
    home.sql("UPDATE events SET version = 9 WHERE kind = 'step.judged'");
    again.extend(json(&["recheck", &run]));
    check("`recheck RUN`, `recheck --all`", &again, &["`show RUN`"]);
}

#[test]
fn what_two_runs_beside_each_other_write_is_what_the_document_lists() {
    let scene = Scene::new();
    let (one, other) = (scene.asking("a", "a").to_string(), scene.asking("b", "b").to_string());
    let diff = |args: &[&str]| {
        let out = scene.run(&[&["diff"], args, &["--json"]].concat()).out(1);
        let line = |line: &str| parse(line.as_bytes(), &Limits::ENVELOPE).unwrap();
        out.lines().map(line).collect::<Vec<_>>()
    };
    let mut found = diff(&[&one, &other]);
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    db.execute("UPDATE contents SET bytes = x'00' WHERE length(bytes) = 1", ()).unwrap();
    db.execute("UPDATE events SET version = 9 WHERE kind = 'question.asked'", ()).unwrap();
    found.extend(diff(&[&one, &other]));
    check("`diff ONE OTHER`", &found, &["`recheck RUN`, `recheck --all`"]);
}

#[test]
fn what_servers_write_is_what_the_document_lists() {
    let bank = crate::mcp::Bank::new();
    let json = |args: &[&str]| lines(&bank.run(&[args, &["--json"]].concat()));
    bank.pins_all();
    let mut pinned = json(&["pin", "bank"]);
    bank.changes();
    bank.prompt("Sends it away.");
    pinned.extend(json(&["pin", "bank", "--diff"]));
    check("`pin SERVER`", &pinned, &[]);
    check("`check`", &json(&["check"]), &[]);
}

#[test]
fn what_a_login_writes_is_what_the_document_lists() {
    let bank = crate::login::Bank::new("register = true");
    let asking = bank.login(&[]);
    let mut told = vec![asking.told.clone()];
    crate::login::browse(&crate::login::agreed(&asking.url));
    told.extend(lines(&asking.ends().exits(0)));
    check("`login SERVER`", &told, &[]);
}

#[test]
fn what_is_set_up_writes_is_what_the_document_lists() {
    let home = Home::new();
    let json = |args: &[&str]| lines(&home.run(&[args, &["--json"]].concat()));
    check("`init`", &json(&["init"]), &[]);
    let soon = Home::new();
    let rules = "[classes]\nlocal_mutation = 'ask'\n[limits]\nquestion_ttl_ms = 600000\n";
    let rules = soon.write("soon.toml", rules);
    soon.scripted(SCRIPT, &["-c", rules.to_str().unwrap()]).exits(3);
    check("`watch`", &lines(&soon.run(&["watch", "--once", "--json"])), &[]);
    let keys = "`key list`, `key show`, `key new`, `key public`";
    for args in
        [&["key", "list"][..], &["key", "show", "ann"], &["key", "new", "bob"], &["key", "public"]]
    {
        check(keys, &json(args), &[]);
    }
    let mut demo = home.command(&["demo", "--yes", "--json"]);
    let demo = Ended::of(&demo.env("TMPDIR", home.path("")).output().unwrap());
    check("`demo`", &lines(&demo), &[]);
    let scene = Scene::new();
    let run = scene.asking("send it", "a").to_string();
    check("`cancel RUN`", &[scene.run(&["cancel", &run, "--json"]).json(0)], &[]);
}

#[test]
fn every_break_is_listed_with_what_stands_beside_it() {
    let declared = BREAKS.split_once("pub enum Break {").unwrap().1.split_once("\n}\n").unwrap().0;
    let mut breaks: Vec<(String, BTreeSet<&str>)> = Vec::new();
    for line in declared.lines().filter(|line| !line.trim_start().starts_with(['/', '#'])) {
        if let Some(name) =
            line.strip_prefix("    ").filter(|name| name.starts_with(char::is_uppercase))
        {
            breaks.push((snake(name.trim_end_matches([' ', '{', ','])), BTreeSet::new()));
        } else if let Some((field, _)) = line.trim().split_once(": ")
            && field.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        {
            breaks.last_mut().unwrap().1.insert(field);
        }
    }
    assert!(breaks.len() > 20, "{breaks:?}");
    let mut rows = Vec::new();
    for row in section("Breaks").lines().filter_map(|row| row.strip_prefix("| ")) {
        let mut cells = row.split('|');
        let (kinds, beside) = (cells.next().unwrap(), cells.next().unwrap());
        let beside: BTreeSet<&str> = between(beside, '`').collect();
        rows.extend(between(kinds, '`').map(|kind| (kind.to_owned(), beside.clone())));
    }
    assert_eq!(rows.iter().collect::<BTreeSet<_>>(), breaks.iter().collect::<BTreeSet<_>>());
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}
