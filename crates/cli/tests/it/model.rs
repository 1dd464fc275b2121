//! `run --model`: a model of a provider and of a recording, from its words to what the record says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use portcullis_canon::Value;
use rustix::process::{Pid, Signal, kill_process};

use crate::home::{Ended, Home, example, text};
use crate::provider::{Act, Provider, header, whole};
use crate::scene::assert_safe;

/// How long a test waits for what another process does.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Who reads a recording knows the secret of the fences, and who writes it puts words into a replay.
#[test]
fn a_recording_beneath_the_governed_folder_is_refused() {
    let home = Home::new();
    let provider = Provider::new([Act::Say("Done."), Act::Say("Done.")]);
    let config = provider.config(&home, "");
    let files = notes(&home);
    std::os::unix::fs::symlink(home.path("files"), home.path("link")).unwrap();
    let run = |folder: &str| {
        let folder = home.path(folder).display().to_string();
        let args = ["run", "-c", &config, "--model", "example:clerk", "--files", &files];
        keyed(&home, &[&args[..], &["--record", &folder, "x"]].concat())
    };
    run("files/inside").refuses(1, "E7001", &["inside"]);
    run("link/inside").refuses(1, "E7001", &["inside"]);
    assert!(provider.received().is_empty());
    run("beside").exits(0);
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

/// Everything that a provider can answer wrongly: each has a name that the command tells, and is charged as the table says.
#[test]
fn what_a_provider_answers_wrongly_ends_the_run_with_its_name() {
    let body = |text: &str| Act::Body(text.to_owned());
    let status =
        |status, headers| Act::Status(status, headers, r#"{"error":{"message":"no"}}"#.to_owned());
    let usage = |usage: &str| {
        body(
            &whole("Hm.", None)
                .replace(r#""prompt_tokens":400"#, &format!(r#""prompt_tokens":{usage}"#)),
        )
    };
    let twice = whole("", Some(("files__list", "{}")));
    let (before, call) = twice.split_once(r#""tool_calls":["#).unwrap();
    let end = call.find("]}").unwrap();
    let twice =
        format!(r#"{before}"tool_calls":[{},{}{}"#, &call[..end], &call[..end], &call[end..]);
    // What it answers, the fault, and the attempts that are made at most.
    let cases: Vec<(Act, &str, usize)> = vec![
        (status("401 Unauthorized", ""), "key_refused", 1),
        (status("402 Payment Required", ""), "out_of_credit", 1),
        (status("404 Not Found", ""), "unknown_model", 1),
        (status("400 Bad Request", ""), "request_refused", 1),
        (status("302 Found", "location: http://127.0.0.1:1/\r\n"), "redirected", 1),
        (status("429 Slow Down", "retry-after: 31536000\r\n"), "throttled_too_long", 1),
        (body("<html>a proxy</html>"), "not_json", 1),
        (body(r#"{"choices":[{"index":0,"mess"#), "not_json", 1),
        (body(r#"{"hello":1}"#), "wrong_shape", 1),
        (Act::Status("200 OK", "content-encoding: gzip\r\n", "bomb".to_owned()), "bad_encoding", 1),
        (
            Act::Endless("                                                                "),
            "too_large",
            1,
        ),
        (usage("-5"), "usage_implausible", 1),
        (usage("99000000000"), "usage_implausible", 1),
        (body(&whole("Hm.", None).replace(r#""stop""#, r#""tired""#)), "unknown_stop", 1),
    ];
    let misspoken: Vec<(Act, &str)> = vec![
        (body(&whole("", Some(("files__list", "[1]")))), "arguments_not_object"),
        (body(&twice), "repeated_id"),
    ];
    for (act, fault, attempts) in cases {
        let home = Home::new();
        let provider = Provider::new([act]);
        let config = provider.config(&home, "");
        let ended = keyed(&home, &["run", "-q", "-c", &config, "--model", "example:clerk", "x"]);
        let ended = ended.exits(1);
        assert!(ended.out.contains("failed (model_unavailable)"), "{fault}: {ended:#?}");
        assert!(ended.out.contains(&format!("({fault})")), "{fault}: {ended:#?}");
        assert_eq!(provider.received().len(), attempts, "{fault}");
        let spend = home.run(&["spend", &home.only_run(), "--json"]).json(0);
        let spent = spend.pointer("/spent/cost_micros").and_then(Value::as_u64).unwrap();
        let fault = portcullis_domain::ports::ModelFault::ALL
            .iter()
            .find(|known| known.as_str() == fault)
            .unwrap();
        let free = fault.charge() == portcullis_domain::ports::Charge::Nothing;
        assert_eq!(spent == 0, free, "{fault:?}: {spend:?}");
        assert_eq!(spend.pointer("/held/calls").and_then(Value::as_u64), Some(0), "{fault:?}");
    }
    // What the model itself misspoke costs a step, and it is told.
    for (act, fault) in misspoken {
        let home = Home::new();
        let provider = Provider::new([act, Act::Say("Well.")]);
        let config = provider.config(&home, "");
        keyed(&home, &["run", "-q", "-c", &config, "--model", "example:clerk", "x"]).exits(0);
        let told = String::from_utf8(provider.received()[1].body.clone()).unwrap();
        assert!(told.contains(&format!("[{fault}]")), "{fault}: {told}");
    }
}

#[test]
fn a_reply_that_is_cut_off_is_tried_again_and_each_attempt_is_charged() {
    let home = Home::new();
    let provider = Provider::new([Act::Cut("{"), Act::Say("Done.")]);
    let config = provider.config(&home, "");
    keyed(&home, &["run", "-q", "-c", &config, "--model", "example:clerk", "x"]).exits(0);
    assert_eq!(provider.received().len(), 2);
    let spend = home.run(&["spend", &home.only_run(), "--json"]).json(0);
    assert_eq!(spend.pointer("/spent/calls").and_then(Value::as_u64), Some(2), "{spend:?}");
    let spent = spend.pointer("/spent/cost_micros").and_then(Value::as_u64).unwrap();
    assert!(spent > 8_192 * 4, "the first one is charged the projection: {spent}");
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let home = Home::new();
    let config = {
        let gone = Provider::new([]);
        gone.config(&home, "")
    };
    let ended =
        keyed(&home, &["run", "-q", "-c", &config, "--model", "example:clerk", "x"]).exits(1);
    assert!(ended.out.contains("(unreachable)"), "{ended:#?}");
    let spend = home.run(&["spend", &home.only_run(), "--json"]).json(0);
    assert_eq!(spend.pointer("/spent/cost_micros").and_then(Value::as_u64), Some(0), "{spend:?}");
}

/// A signal in the middle of a call: the run stops in order, says how to go on, and goes on with the same model.
#[test]
fn a_signal_stops_in_the_middle_of_a_call_and_resume_goes_on() {
    let home = Home::new();
    let files = notes(&home);
    let provider = Provider::new([session().remove(0), Act::Silent]);
    let config = provider.config(&home, "");
    let args = ["run", "-c", &config, "--model", "example:clerk", "--files", &files, "x"];
    let mut command = home.command(&args);
    command.env("EXAMPLE_KEY", KEY).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let begun = Instant::now();
    while provider.received().len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it asks nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = Ended::of(&child.wait_with_output().unwrap()).exits(130);
    let run = home.only_run();
    assert!(ended.out.contains("stopped: it can be taken up again"), "{ended:#?}");
    assert!(ended.out.contains(&format!("resume {run}")), "{ended:#?}");
    let spend = home.run(&["spend", &run, "--json"]).json(0);
    assert_eq!(spend.pointer("/held/calls").and_then(Value::as_u64), Some(0), "{spend:?}");
    assert_eq!(spend.pointer("/spent/calls").and_then(Value::as_u64), Some(2), "{spend:?}");

    // Without its key it cannot go on, and is not spoilt by trying.
    home.run(&["resume", &run]).refuses(1, "E6501", &["EXAMPLE_KEY"]);
    provider.then(Act::Say("All seen."));
    let done = keyed(&home, &["resume", &run]).exits(0);
    assert!(done.out.contains("All seen."), "{done:#?}");
    let told = String::from_utf8(provider.received()[2].body.clone()).unwrap();
    assert!(told.contains("shop.txt"), "what was seen before is told again: {told}");
    home.run(&["-c", &config, "verify"]).exits(0);
}

#[test]
fn a_run_goes_on_with_the_model_that_it_was_begun_with() {
    let home = Home::new();
    let files = notes(&home);
    let provider = Provider::new(session());
    let config = provider.config(&home, "[classes]\nlocal_mutation = 'ask'\n");
    keyed(&home, &["run", "-c", &config, "-q", "--model", "example:clerk", "--files", &files, "x"])
        .exits(3);
    let run = home.only_run();
    keyed(&home, &["resume", "-q", &run, "--model", "example:other"]).refuses(
        1,
        "E5003",
        &["model:example:clerk", "model:example:other"],
    );
}

/// Only reading is said yes to, with the person's signature, and what changes something still waits for them.
#[test]
fn a_yes_to_reading_is_signed_and_is_none_to_changing() {
    let home = Home::new();
    let provider = Provider::new(session());
    let config = provider.config(&home, "[classes]\nread_only = 'ask'\nlocal_mutation = 'ask'\n");
    let files = notes(&home);
    let args = [
        "run",
        "-c",
        &config,
        "--model",
        "example:clerk",
        "--files",
        &files,
        "--yes-to",
        "read_only",
        "x",
    ];
    let ended = keyed(&home, &args).exits(3);
    assert!(ended.err.contains("you said yes beforehand"), "{ended:#?}");
    assert!(!home.path("files/all.txt").exists());
    let run = home.only_run();
    let events = home.run(&["events", &run, "--json"]).exits(0).out;
    let count = |kind: &str| events.lines().filter(|line| line.contains(kind)).count();
    let counts = [r#""question.asked""#, r#""question.answered""#, r#""approval.used""#].map(count);
    assert_eq!(counts, [4, 3, 3], "{events}");
    // The yes is the person's, and what is left to ask is the change.
    let answered = events.lines().find(|line| line.contains(r#""question.answered""#)).unwrap();
    assert!(answered.contains(r#""person":"ann""#), "{answered}");
    let waits = home.run(&["inbox", "--json"]).exits(0).out;
    assert!(waits.contains("files.create") && !waits.contains("files.read\""), "{waits}");
    home.run(&["-c", &config, "verify"]).exits(0);
    // Nothing else can be said yes to, and without the flag nothing is.
    let mut other = args;
    other[8] = "destructive";
    keyed(&home, &other).refuses(2, "E9010", &["destructive"]);
    let home = Home::new();
    let provider = Provider::new(session());
    let config = provider.config(&home, "[classes]\nread_only = 'ask'\n");
    let files = notes(&home);
    keyed(&home, &["run", "-c", &config, "--model", "example:clerk", "--files", &files, "x"])
        .exits(3);
    assert_eq!(provider.received().len(), 1, "the control: it asks about the first look");
}

#[test]
fn models_says_what_is_configured_what_answers_and_what_is_missing() {
    let home = Home::new();
    let provider = Provider::new([]);
    let config = provider.config(&home, "[models.broken]\ndialect = 'openai'\n");
    let listed = keyed(&home, &["-c", &config, "models", "--json"]).json(0);
    let find = |listed: &Value, name: &str| {
        let all = listed.get("providers").unwrap().as_array().unwrap();
        all.iter().find(|provider| text(provider, "provider") == name).unwrap().clone()
    };
    let own = find(&listed, "example");
    assert_eq!(
        (text(&own, "state"), text(&own, "key")),
        ("reachable".to_owned(), "EXAMPLE_KEY".to_owned())
    );
    let names: Vec<&str> =
        own.get("models").unwrap().as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(names, ["m", "n"]);
    assert_eq!(text(&find(&listed, "broken"), "state"), "unusable");
    let openai = find(&listed, "openai");
    assert_eq!(text(&openai, "state"), "no_key");
    assert!(text(&openai, "detail").contains("OPENAI_API_KEY"), "{openai:?}");
    let received = provider.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].head.starts_with("GET /v1/models ") && received[0].body.is_empty());

    let offline = keyed(&home, &["-c", &config, "models", "--offline", "--json"]).json(0);
    assert_eq!(text(&find(&offline, "example"), "state"), "not_asked");
    assert_eq!(provider.received().len(), 1, "nobody was asked");
    drop(provider);
    let gone = keyed(&home, &["-c", &config, "models"]).exits(0);
    assert_safe(&gone.out);
    let row = gone.out.lines().find(|line| line.starts_with("example ")).unwrap();
    assert!(row.contains("unreachable"), "{row}");
    assert!(!gone.out.contains(KEY));
}

#[test]
fn a_list_of_prices_comes_from_a_file_and_is_in_force_at_once() {
    let home = Home::new();
    let list = |dated: &str, rest: &str| {
        let text = format!("dated = \"{dated}\"\n[[model]]\nname = \"own:x\"\n{rest}\n");
        home.write("new.toml", text).display().to_string()
    };
    let put = |file: &str| home.run(&["models", "prices", "--from", file, "--json"]);
    let own =
        home.write("own.toml", "[models.own]\ndialect='openai'\naddress='http://127.0.0.1:9/v1'\n");
    let own = own.display().to_string();
    let run = ["run", "-q", "-c", &own, "--model", "own:x", "--max-cost", "$1", "x"];
    home.run(&run).refuses(2, "E9002", &["has no price"]);
    let shown = put(&list("2026-12-01", "input = 7\noutput = 9")).json(0);
    let models = shown.get("models").unwrap().as_array().unwrap();
    let found = models.iter().find(|model| text(model, "model") == "own:x").unwrap();
    assert_eq!(found.get("cache_read").and_then(Value::as_u64), Some(7), "{found:?}");
    assert!(models.len() > 5, "the built-in list stays beneath it");
    assert_eq!(text(&shown, "own_dated"), "2026-12-01");
    // It has a price now, so the run begins; nobody listens there.
    assert!(home.run(&run).exits(1).out.contains("(unreachable)"));

    put(&list("2026-11-01", "input = 1\noutput = 1")).exits(1);
    put(&list("2027-01-01", "input = 1.5\noutput = 1")).exits(1);
    put(&list("2027-01-01", "input = 1")).exits(1);
    put("/nowhere/prices.toml").exits(1);
    let kept = home.run(&["models", "prices"]).exits(0);
    assert!(kept.out.contains("0.000007") && kept.out.contains("2026-12-01"), "{kept:#?}");
}

#[test]
fn a_table_of_a_provider_that_does_not_fit_is_told_by_its_place_and_without_a_key() {
    let home = Home::new();
    for (config, words) in [
        (
            format!("[models.x]\ncredential = '{KEY}'\n"),
            "line 2, column 14: `credential` names a table",
        ),
        (format!("[models.x]\nkey = '{KEY}'\n"), "line 2, column 1: unknown field `key`"),
        (
            format!("[models.x]\nmay_see = '{KEY}'\n"),
            "line 2, column 11: invalid type: text, expected a sequence",
        ),
        (
            format!("[models.x]\naddress = 'https://u:{KEY}@h/v1'\n"),
            "line 2, column 11: `address` is",
        ),
        (
            format!("[credentials.x]\nenv = '{KEY}'\n"),
            "line 2, column 7: `env` is the name of a variable",
        ),
        (format!("[credentials.'{KEY} ']\nenv = 'A'\n"), "line 1, column 14: a name is"),
        ("[models.replay]\ndialect = 'openai'\n".to_owned(), "line 1, column 9: `replay` plays"),
        ("[models.x]\ndialect = 'other'\n".to_owned(), "line 2, column 11: `dialect` is"),
        ("[models.x.prices]\nm = { input = 1 }\n".to_owned(), "line 2, column 5: a price needs"),
        ("[models.x]\ntimeout_ms = 5\n".to_owned(), "line 2, column 14: `timeout_ms` is"),
        ("[day]\nmax_cost = '5 euros'\n".to_owned(), "line 2, column 12: write an amount"),
        (
            "[limits]\nmax_cost = '1'\nmax_estimated_cost_micros = 1\n".to_owned(),
            "line 2, column 12: `max_cost` and",
        ),
    ] {
        let path = home.write("odd.toml", &config).display().to_string();
        let ended = home.run(&["-c", &path, "models", "--offline"]);
        assert!(!ended.err.contains(KEY) && !ended.out.contains(KEY), "{ended:#?}");
        ended.refuses(1, "E9001", &[words]);
    }
}
