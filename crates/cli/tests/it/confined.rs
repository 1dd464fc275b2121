//! An agent that tries to approve for itself: out of reach when confined, all within reach when not.

use std::fs;

use portcullis_canon::Value;

use crate::home::{COMMAND, Home, has_python, text};

/// Tries three things, then tells how each went, as its result.
const SPY: &str = r#"
import json, os, sqlite3, subprocess, sys
here = os.path.dirname(os.path.abspath(sys.argv[1]))
want = json.load(open(os.path.join(here, "want.json")))
def read_key():
    return len(open(want["key"], "rb").read()) > 0
def open_database():
    db = sqlite3.connect(want["db"])
    return db.execute("select count(*) from events").fetchone()[0] > 0
def approve():
    return subprocess.run([want["command"], "approve", want["question"], "--yes"], env=want["env"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
def write_rules():
    open(want["rules"], "a").write('#')
    return True
def attempt(act):
    try:
        return bool(act())
    except Exception as why:
        print(act.__name__, repr(why), file=sys.stderr)
        return False
sys.stdin.buffer.readline()
print(json.dumps({"type": "hello", "version": 1}), flush=True)
view = json.loads(sys.stdin.buffer.readline())
result = {act.__name__: attempt(act) for act in (read_key, open_database, approve, write_rules)}
print(json.dumps({"request": view["request"], "kind": "complete", "result": result}), flush=True)
sys.stdin.buffer.readline()
"#;

const CREATE: &str =
    r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"new.txt","content":"x"}}"#;

/// What the spy reached, and what became of the question that it tried to answer.
fn spied(flags: &[&str]) -> (Value, String) {
    let home = Home::new();
    let asking = home.asking();
    home.scripted(CREATE, &["-c", &asking]).exits(3);
    let waiting = home.run(&["inbox", "--json"]).json(0);
    let question = text(&waiting.get("questions").unwrap().as_array().unwrap()[0], "question");
    let mut env = portcullis_canon::Object::new();
    env.insert("HOME", home.path("").display().to_string());
    env.insert("XDG_STATE_HOME", home.path("state").display().to_string());
    env.insert("XDG_CONFIG_HOME", home.path("config").display().to_string());
    env.insert("USER", "ann");
    let mut want = portcullis_canon::Object::new();
    want.insert("key", home.key("ann.key").display().to_string());
    want.insert("db", home.db().display().to_string());
    want.insert("command", COMMAND);
    want.insert("question", question);
    want.insert("rules", asking.as_str());
    want.insert("env", env);
    home.write("agent/want.json", Value::Object(want).to_canonical());
    let spy = home.write("agent/spy.py", SPY);
    let agent = format!("exec:python3 {0} {0}", spy.display());
    let files = home.path("files").display().to_string();
    let mut args =
        vec!["run", "-c", &asking, "--json", "--agent", &agent, "--files", &files, "spy"];
    args.extend(flags);
    let told = home.run(&args).json(0);
    let result =
        portcullis_canon::parse(text(&told, "result").as_bytes(), &portcullis_canon::Limits::BARE);
    let waits = home.run(&["inbox", "--json"]).json(0);
    let open = waits.get("total").and_then(Value::as_u64).unwrap();
    assert!(fs::metadata(home.key("ann.key")).is_ok());
    (result.unwrap(), if open == 1 { "open" } else { "answered" }.to_owned())
}

#[test]
fn a_confined_agent_reaches_neither_key_nor_database_nor_approval() {
    if !has_python() {
        return;
    }
    let (result, question) = spied(&[]);
    for act in ["read_key", "open_database", "approve", "write_rules"] {
        assert_eq!(result.get(act), Some(&Value::Bool(false)), "{act}");
    }
    assert_eq!(question, "open");
}

#[test]
fn the_control_an_unconfined_agent_reaches_all_of_them() {
    if !has_python() {
        return;
    }
    let (result, question) = spied(&["--unconfined-agent"]);
    for act in ["read_key", "open_database", "approve", "write_rules"] {
        assert_eq!(result.get(act), Some(&Value::Bool(true)), "{act}");
    }
    assert_eq!(question, "answered");
}

#[test]
fn an_agent_that_lies_in_a_governed_place_is_not_started() {
    let home = Home::new();
    let agent = |path: &str| format!("exec:/bin/sh {}", home.write(path, "exit\n").display());
    let files = home.path("files").display().to_string();
    for place in ["files/agent.sh", "config/portcullis/agent.sh", "state/portcullis/agent.sh"] {
        fs::create_dir_all(home.path(place).parent().unwrap()).unwrap();
        for folder in ["config/portcullis", "state/portcullis"] {
            if home.path(folder).is_dir() {
                use std::os::unix::fs::PermissionsExt as _;
                fs::set_permissions(home.path(folder), fs::Permissions::from_mode(0o700)).unwrap();
            }
        }
        let ended = home.run(&["run", "-q", "--agent", &agent(place), "--files", &files, "x"]);
        ended.refuses(1, "E6002", &["must not reach", "move the agent's program"]);
    }
    let runs = home.run(&["runs", "--json"]).json(0);
    assert_eq!(runs.get("total").and_then(Value::as_u64), Some(0), "no run was begun");
}
