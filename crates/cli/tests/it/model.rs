//! `run --model`: a model of a provider and of a recording, from its words to what the record says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use portcullis_canon::Value;

use crate::home::{Ended, Home, example, text};
use crate::provider::{Act, Provider, header};
use crate::scene::assert_safe;

/// The key of the fake provider.
pub(crate) const KEY: &str = "sk-canary-7f3a9c2b51d04e68";

/// `run`, `resume` and others, with the key in the environment.
pub(crate) fn keyed(home: &Home, args: &[&str]) -> Ended {
    Ended::of(&home.command(args).env("EXAMPLE_KEY", KEY).output().unwrap())
}

/// The goal of the shipped recording, which the README shows.
const GOAL: &str = "Put what the notes say into one file, all.txt";

/// What its model does.
fn session() -> Vec<Act> {
    vec![
        Act::Use("I look at what is there first.", "files__list", r#"{"path":"."}"#),
        Act::Use("Two notes. I read them.", "files__read", r#"{"path":"shop.txt"}"#),
        Act::Use("", "files__read", r#"{"path":"todo.txt"}"#),
        Act::Use(
            "I write both into one file.",
            "files__create",
            r#"{"path":"all.txt","content":"shop: milk, bread\ntodo: call Ann\n"}"#,
        ),
        Act::Say("all.txt has what both notes say."),
    ]
}

fn notes(home: &Home) -> String {
    home.write("files/shop.txt", "milk\nbread\n");
    home.write("files/todo.txt", "call Ann\n");
    home.path("files").display().to_string()
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/recordings/notes")
}

/// Files and their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

/// What each proposal of the only run was, byte for byte.
fn proposals(home: &Home) -> Vec<Vec<u8>> {
    let conn = rusqlite::Connection::open(home.db()).unwrap();
    let sql = "SELECT payload FROM events WHERE kind = 'step.proposed' ORDER BY journal_seq";
    let mut found = conn.prepare(sql).unwrap();
    let payloads: Vec<Vec<u8>> =
        found.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let contents = payloads.iter().map(|payload| {
        let payload =
            portcullis_canon::parse(payload, &portcullis_canon::Limits::ENVELOPE).unwrap();
        let digest =
            payload.pointer("/proposal/digest").and_then(Value::as_str).unwrap().to_owned();
        let digest: portcullis_canon::Digest = digest.parse().unwrap();
        let sql = "SELECT bytes FROM contents WHERE digest = ?1";
        conn.query_row(sql, [digest.as_bytes().as_slice()], |row| row.get(0)).unwrap()
    });
    contents.collect()
}

/// The session as a person has it: it stops at the change, they say yes, it goes on.
fn whole_session(home: &Home, config: &str, model: &str, more: &[&str]) -> [Ended; 2] {
    let files = notes(home);
    let mut args = vec!["run", "-c", config, "--model", model, "--files", &files, GOAL];
    args.extend(more);
    let asked = keyed(home, &args).exits(3);
    assert!(!home.path("files/all.txt").exists(), "nothing was written before the yes");
    let run = home.only_run();
    home.run(&["-c", config, "approve", &run, "--yes"]).exits(0);
    let done = keyed(home, &["resume", &run]).exits(0);
    let written = fs::read_to_string(home.path("files/all.txt")).unwrap();
    assert_eq!(written, "shop: milk, bread\ntodo: call Ann\n");
    assert!(done.out.contains("all.txt has what both notes say."), "{done:#?}");
    home.run(&["-c", config, "verify"]).exits(0);
    [asked, done]
}

/// A run of a live provider that is recorded replays byte for byte, with no provider there. With
/// `PORTCULLIS_WRITE_FIXTURES=1` it is the recording that is shipped.
#[test]
fn a_recorded_session_replays_byte_for_byte_without_a_provider() {
    let home = Home::new();
    let provider = Provider::new(session());
    let config = provider.config(&home, "[classes]\nlocal_mutation = 'ask'\n");
    let tape = home.path("tape");
    let [asked, done] =
        whole_session(&home, &config, "example:clerk", &["--record", tape.to_str().unwrap()]);
    let requests = provider.received();
    assert_eq!(requests.len(), 5);
    for request in &requests {
        assert_eq!(header(&request.head, "authorization"), Some(format!("Bearer {KEY}")));
        assert!(request.head.starts_with("POST /v1/chat/completions "), "{}", request.head);
    }
    for words in [
        "model: I look at what is there first.",
        r#"step 0: asks for files.list {"path":"."}"#,
        "step 0: files.list allowed",
        "step 3: files.create asks 1 of operator",
        "so far 4 calls, 1700 tokens, cost 0.002\n",
    ] {
        assert!(asked.err.contains(words), "{words}: {asked:#?}");
    }
    // What was spent before counts on.
    assert!(done.err.contains("so far 5 calls, 2125 tokens"), "{done:#?}");
    assert_safe(&asked.err);

    drop(provider);
    let again = Home::new();
    let asks = again.write("ask.toml", "[classes]\nlocal_mutation = 'ask'\n");
    let replay = format!("replay:{}", tape.display());
    whole_session(&again, asks.to_str().unwrap(), &replay, &[]);
    assert_eq!(proposals(&home), proposals(&again));
    assert_eq!(proposals(&home).len(), 5);
    if std::env::var_os("PORTCULLIS_WRITE_FIXTURES").is_some() {
        let shipped = shipped();
        let _old = fs::remove_dir_all(&shipped);
        fs::create_dir_all(&shipped).unwrap();
        for (name, bytes) in files(&tape) {
            fs::write(shipped.join(name), bytes).unwrap();
        }
    }
}

/// The lines of the README, as they stand there, on a copy of the recording that others may read and not write.
#[test]
fn the_shipped_recording_plays_as_the_readme_says() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    for line in [
        "mkdir -p /tmp/notes && printf 'milk\\nbread\\n' > /tmp/notes/shop.txt && printf 'call Ann\\n' > /tmp/notes/todo.txt",
        &format!("--model replay:examples/recordings/notes --files /tmp/notes \\\n    \"{GOAL}\""),
        "-c examples/ask-local.toml",
    ] {
        assert!(readme.contains(line), "the README does not say: {line}");
    }
    let home = Home::new();
    let tape = home.path("recording");
    fs::create_dir(&tape).unwrap();
    for (name, bytes) in files(&shipped()) {
        let path = home.write(&format!("recording/{name}"), bytes);
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(&tape, fs::Permissions::from_mode(0o755)).unwrap();
    let rules = home.write("ask.toml", fs::read(example("ask-local.toml")).unwrap());
    let replay = format!("replay:{}", tape.display());
    let [asked, _] = whole_session(&home, rules.to_str().unwrap(), &replay, &[]);
    assert!(asked.err.contains("so far 4 calls, 1700 tokens, cost 0.00\n"), "{asked:#?}");
}

#[test]
fn what_was_not_recorded_is_not_asked_of_anybody() {
    let home = Home::new();
    let files = notes(&home);
    let replay = format!("replay:{}", shipped().canonicalize().unwrap().display());
    let ended =
        home.run(&["run", "--model", &replay, "--files", &files, "Something else"]).exits(1);
    assert!(ended.out.contains("failed (model_unavailable)"), "{ended:#?}");
    assert!(ended.out.contains("not_recorded"), "{ended:#?}");
}

#[test]
fn a_recording_that_others_could_have_written_is_refused_before_anything_is_opened() {
    let home = Home::new();
    let tape = home.path("recording");
    fs::create_dir(&tape).unwrap();
    fs::set_permissions(&tape, fs::Permissions::from_mode(0o777)).unwrap();
    let replay = format!("replay:{}", tape.display());
    home.run(&["run", "--model", &replay, "do it"]).refuses(1, "E8502", &["chmod go-w"]);
    fs::set_permissions(&tape, fs::Permissions::from_mode(0o755)).unwrap();
    home.run(&["run", "--model", &replay, "do it"]).refuses(1, "E8502", &["no recording"]);
    assert!(!home.db().exists());
}

#[test]
fn json_tells_each_thing_as_a_line_with_what_was_spent() {
    let home = Home::new();
    let files = notes(&home);
    let provider = Provider::new(session().into_iter().take(1).chain([Act::Say("Done.")]));
    let config = provider.config(&home, "");
    let ended = keyed(
        &home,
        &["run", "-c", &config, "--json", "--model", "example:clerk", "--files", &files, "x"],
    );
    let rest = ended.exits(0);
    assert_eq!(rest.out.lines().count(), 1);
    let lines: Vec<Value> = rest
        .err
        .lines()
        .map(|line| {
            portcullis_canon::parse(line.as_bytes(), &portcullis_canon::Limits::BARE).unwrap()
        })
        .collect();
    let told: Vec<String> = lines.iter().map(|line| text(line, "progress")).collect();
    assert!(told.iter().any(|line| line == "model: Done."), "{told:?}");
    let spent = lines.last().unwrap().pointer("/spent/cost_micros").and_then(Value::as_u64);
    assert_eq!(spent, Some(2 * (400 + 4 * 25)), "{lines:?}");
}

#[test]
fn a_model_that_cannot_be_used_is_refused_before_a_run_is_begun() {
    let home = Home::new();
    let run = |args: &[&str]| {
        let mut all = vec!["run"];
        all.extend(args);
        all.push("do it");
        home.run(&all)
    };
    run(&["--model", "openai:gpt-5"]).refuses(
        1,
        "E6501",
        &["there is no key for the provider `openai`", "OPENAI_API_KEY", "credentials/openai"],
    );
    run(&["--model", "nobody:gpt-5"]).refuses(1, "E8501", &["`nobody`", "ollama"]);
    run(&["--model", "gpt-5"]).refuses(2, "E9002", &["PROVIDER:NAME"]);
    run(&["--model", "replay:"]).refuses(2, "E9002", &["PROVIDER:NAME"]);
    run(&["--model", "replay:gone"]).refuses(1, "E8502", &["gone"]);
    run(&["--model", "replay:x", "--record", "y"]).refuses(2, "E9002", &["recorded"]);
    run(&["--agent", "exec:true", "--record", "y"]).refuses(2, "E9002", &["recorded"]);
    run(&["--model", "ollama:x", "--max-cost", "five"]).refuses(2, "E9010", &["--max-cost"]);
    let unpriced = home
        .write("own.toml", "[models.own]\ndialect='openai'\naddress='https://own.example/v1'\n");
    let unpriced = unpriced.display().to_string();
    run(&["-c", &unpriced, "--model", "own:x", "--max-cost", "$1"]).refuses(
        2,
        "E9002",
        &["`own:x` has no price", "models prices"],
    );
    let odd = home.path("config/portcullis/credentials/openai");
    home.write("config/portcullis/credentials/openai", KEY);
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o644)).unwrap();
    run(&["--model", "openai:gpt-5"]).refuses(1, "E6501", &["chmod 600"]);
    assert!(!home.db().exists(), "nothing was begun");
}

#[test]
fn a_limit_on_cost_stops_before_the_call_that_would_cross_it() {
    let home = Home::new();
    let files = notes(&home);
    let provider = Provider::new(session());
    let config = provider.config(&home, "");
    let run = |more: &[&str]| {
        let mut args =
            vec!["run", "-c", &config, "-q", "--model", "example:clerk", "--files", &files];
        args.extend(more);
        args.push("x");
        keyed(&home, &args)
    };
    let ended = run(&["--max-cost", "$0.000001"]).exits(1);
    assert!(ended.out.contains("limit_cost"), "{ended:#?}");
    assert_eq!(provider.received().len(), 0, "not one call was made");
    let ended = run(&["--max-model-calls", "2"]).exits(1);
    assert!(ended.out.contains("limit_model_calls"), "{ended:#?}");
    assert_eq!(provider.received().len(), 2);
}

#[test]
fn a_days_cap_holds_over_runs() {
    let home = Home::new();
    let files = notes(&home);
    let provider = Provider::new([Act::Say("One."), Act::Say("Two.")]);
    let config = provider.config(&home, "[day]\nmax_model_calls = 1\n");
    let args = ["run", "-c", &config, "-q", "--model", "example:clerk", "--files", &files, "x"];
    keyed(&home, &args).exits(0);
    let ended = keyed(&home, &args).exits(1);
    assert!(ended.out.contains("limit_model_calls"), "{ended:#?}");
    assert_eq!(provider.received().len(), 1);
}
