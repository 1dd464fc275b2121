//! `run` and `resume`: exit codes, what is told, waiting and going on, signals, two processes on one run.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use portcullis_canon::Value;

use crate::home::{COMMAND, Ended, Home, example, has_python, text};

const LIST: &str = r#"{"kind":"tool_call","tool":"files.list","arguments":{"path":"."}}"#;
const CREATE: &str = r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"new.txt","content":"hello"}}"#;
const DONE: &str = r#"{"kind":"complete","result":{"ok":true}}"#;

fn script(lines: &[&str]) -> String {
    lines.join("\n")
}

#[test]
fn a_run_that_completes_exits_0_and_says_where_to_look() {
    let home = Home::new();
    let ended = home.scripted(&script(&[LIST, CREATE, DONE]), &[]).exits(0);
    assert!(ended.out.contains("completed (goal_completed)"), "{ended:#?}");
    assert!(ended.out.contains(r#"result  {"ok":true}"#), "{ended:#?}");
    assert!(ended.out.contains(&format!("portcullis show {}", home.only_run())), "{ended:#?}");
    assert!(ended.err.contains("step 1: files.create allowed"), "{ended:#?}");
    assert_eq!(fs::read_to_string(home.path("files/new.txt")).unwrap(), "hello");
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_run_that_fails_or_is_refused_exits_1() {
    let home = Home::new();
    let fail = r#"{"kind":"fail","message":"I cannot"}"#;
    let ended = home.scripted(fail, &[]).exits(1);
    assert!(ended.out.contains("failed (goal_failed)"), "{ended:#?}");
    assert!(ended.out.contains("note    I cannot"), "{ended:#?}");
    let ended = home.scripted(LIST, &[]).exits(1);
    assert!(ended.out.contains("agent_exited"), "{ended:#?}");
    let two = script(&[LIST, CREATE, DONE]);
    let ended = home.scripted(&two, &["--max-steps", "1", "--quiet"]).exits(1);
    assert!(ended.out.contains("limit_steps") && ended.err.is_empty(), "{ended:#?}");
    assert!(!home.path("files/new.txt").exists());
    let fails = r#"{"kind":"tool_call","tool":"files.read","arguments":{"path":"absent"}}"#;
    let ended = home.scripted(&script(&[fails, fails, fails, DONE]), &[]).exits(1);
    assert!(ended.out.contains("failed (repeated_tool_failures); `show` tells why"), "{ended:#?}");
}

#[test]
fn a_user_whom_the_environment_does_not_name_has_the_name_of_their_id() {
    let home = Home::new();
    let ended = home.command(&["init", "--json", "--no-config"]).env_remove("USER").output();
    let made = Ended::of(&ended.unwrap()).json(0);
    let key = text(made.pointer("/places/2").unwrap(), "path");
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    let name = named.map_or("operator", |line| line.split(':').next().unwrap());
    assert!(key.ends_with(&format!("/keys/{name}.key")), "{key}");
}

#[test]
fn json_is_one_object_with_the_next_commands() {
    let home = Home::new();
    let asking = home.asking();
    let waiting = home.scripted(&script(&[CREATE, DONE]), &["-c", &asking, "--json"]);
    let note =
        "{\"note\":\"made the key `ann`, which answers questions: `portcullis key list`\"}\n";
    assert_eq!(waiting.err, note);
    let waiting = waiting.json(3);
    assert_eq!(text(&waiting, "status"), "waiting");
    let next = waiting.get("next").unwrap().as_array().unwrap();
    let question = text(&waiting, "question");
    assert!(next[1].as_str().unwrap().ends_with(&format!("approve {question}")), "{next:?}");
    let run = text(&waiting, "run");
    home.run(&["approve", &question, "--yes"]).exits(0);
    let done = home.run(&["resume", &run, "--json"]).json(0);
    assert_eq!(
        (text(&done, "status"), text(&done, "reason")),
        ("completed".into(), "goal_completed".into())
    );
    assert_eq!(text(&done, "result"), r#"{"ok":true}"#);
}

#[test]
fn waiting_is_exit_3_until_a_person_answers() {
    let home = Home::new();
    let asking = home.asking();
    home.scripted(&script(&[CREATE, DONE]), &["-c", &asking]).exits(3);
    let run = home.only_run();
    let again = home.run(&["resume", &run]).exits(3);
    assert!(again.out.contains("a person has to answer q_"), "{again:#?}");
    assert!(!home.path("files/new.txt").exists());
    home.run(&["approve", &run, "--yes"]).exits(0);
    assert!(!home.path("files/new.txt").exists(), "a yes alone changes nothing");
    // A beginning of the id is enough, and the agent, the folder and the rules are remembered.
    home.run(&["resume", &run[..16]]).exits(0);
    assert_eq!(fs::read_to_string(home.path("files/new.txt")).unwrap(), "hello");
    let ended = home.run(&["resume", &run]).exits(0);
    assert!(ended.out.contains("completed (goal_completed)"), "{ended:#?}");
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_refused_proposal_is_told_with_its_place_and_rule() {
    let home = Home::new();
    let odd = r#"{"kind":"tool_call","tool":"files.read","arguments":{"path":7}}"#;
    let ended = home.scripted(&script(&[odd, DONE]), &[]).exits(0);
    let line = "step 0: invalid proposal (arguments_invalid) at /path: type\n";
    assert!(ended.err.contains(line), "{ended:#?}");
    let shown = home.run(&["show", &home.only_run()]).exits(0);
    assert!(
        shown.out.contains("invalid_proposal: arguments_invalid  at /path: type"),
        "{shown:#?}"
    );
}

#[test]
fn a_resumed_run_tells_its_steps_by_their_numbers() {
    let home = Home::new();
    let asking = home.asking();
    home.scripted(&script(&[LIST, CREATE, DONE]), &["-c", &asking]).exits(3);
    let run = home.only_run();
    home.run(&["approve", &run, "--yes"]).exits(0);
    let ended = home.run(&["resume", &run]).exits(0);
    for line in ["step 1: the approval is used", "step 1: tool result", "step 2: done"] {
        assert!(ended.err.contains(line), "no {line:?}: {ended:#?}");
    }
    assert!(!ended.err.contains("step:"), "{ended:#?}");
}

#[test]
fn a_yes_that_counts_no_more_is_said_to_and_why() {
    let home = Home::new();
    let reviewers: Vec<String> = ["ann", "bob"]
        .iter()
        .map(|name| {
            let key = text(&home.run(&["key", "new", name, "--json"]).json(0), "key");
            format!("[[reviewers]]\nperson = '{name}'\nroles = ['operator']\nkey = '{key}'\n")
        })
        .collect();
    let rules = |count: u32, more: &str| {
        let asks = format!("[classes]\nlocal_mutation = {{ ask = 'operator', count = {count} }}\n");
        let text = format!("{asks}{}{more}", reviewers.concat());
        home.write("rules.toml", text).display().to_string()
    };
    let config = rules(1, "");
    home.scripted(&script(&[CREATE, DONE]), &["-c", &config, "--owner", "team"]).exits(3);
    let run = home.only_run();
    let asked_again = |why: &str| {
        let told = home.run(&["resume", &run]).exits(3);
        assert!(told.err.contains(&format!("step 0: asks again, {why}")), "{told:#?}");
        let shown = home.run(&["show", &run]).exits(0).out;
        assert!(shown.contains(&format!("  asked again     {why}")), "{shown}");
        let inbox = home.run(&["inbox", "--json"]).json(0);
        let again = inbox.pointer("/questions/0/asked_again").and_then(Value::as_str);
        assert_eq!(again, Some(why));
    };
    let first = home.run(&["inbox", "--json"]).json(0);
    assert_eq!(first.pointer("/questions/0/asked_again"), Some(&Value::Null));
    home.run(&["approve", &run, "--yes", "--key", "bob"]).exits(0);
    rules(1, "revoked = true\n");
    asked_again("an answer counts no more: its key, its person's role or its term has changed");
    home.run(&["approve", &run, "--yes", "--key", "ann"]).exits(0);
    rules(2, "");
    asked_again("the rules ask other people now");
    assert!(!home.path("files/new.txt").exists());
}

#[test]
fn the_rules_that_a_run_began_with_hold_when_it_goes_on() {
    let home = Home::new();
    let asking = home.asking();
    let other = CREATE.replace("new.txt", "other.txt");
    home.scripted(&script(&[CREATE, &other, DONE]), &["-c", &asking]).exits(3);
    let run = home.only_run();
    home.run(&["approve", &run, "--yes"]).exits(0);
    // Without the memory of -c the second change would simply be allowed.
    home.run(&["resume", &run]).exits(3);
    assert!(home.path("files/new.txt").exists() && !home.path("files/other.txt").exists());
    // Without any memory nothing is guessed.
    fs::remove_file(home.path("state/portcullis/launch").join(format!("{run}.json"))).unwrap();
    home.run(&["resume", &run]).refuses(1, "E9006", &["--agent", "--files", "-c"]);
    let (agent, files) = (
        format!("scripted:{}", home.path("agent.jsonl").display()),
        home.path("files").display().to_string(),
    );
    let again = ["resume", &run, "-q", "--agent", &agent, "--files", &files];
    home.run(&again).refuses(1, "E9006", &["the usual rules are not those", "-c"]);
    home.run(&[&again[..], &["-c", &asking]].concat()).exits(3);
    // The usual rules are taken when they are the very ones.
    fs::create_dir_all(home.path("config/portcullis")).unwrap();
    fs::copy(&asking, home.path("config/portcullis/portcullis.toml")).unwrap();
    home.run(&again).exits(3);
}

#[test]
fn a_configuration_of_the_current_folder_is_said_not_to_be_used_only_where_it_is_not() {
    let home = Home::new();
    let note = "./portcullis.toml is not used";
    home.write("portcullis.toml", "[classes]\nlocal_mutation = 'ask'\n");
    let unnamed = home.scripted(DONE, &[]).exits(0);
    assert!(unnamed.err.contains(note), "the control: {unnamed:#?}");
    let named = home.scripted(&script(&[CREATE, DONE]), &["-c", "portcullis.toml"]).exits(3);
    let waits = named.out.lines().find_map(|line| line.strip_prefix("run     ")).unwrap();
    home.run(&["approve", waits, "--yes"]).exits(0);
    let resumed = home.run(&["resume", waits]).exits(0);
    let other = home.scripted(&script(&[CREATE, DONE]), &["-c", &home.asking()]).exits(3);
    let all = home.run(&["resume", "--all"]).exits(3);
    // The usual configuration may lie in the current folder.
    let usual = Home::new();
    usual.write("config/portcullis/portcullis.toml", "");
    let agent = format!("scripted:{}", usual.write("agent.jsonl", DONE).display());
    let mut begun = usual.command(&["run", "--agent", &agent, "x"]);
    let begun = begun.current_dir(usual.path("config/portcullis")).output().unwrap();
    for ended in [named, resumed, other, all, Ended::of(&begun).exits(0)] {
        assert!(!ended.err.contains(note), "{ended:#?}");
    }
}

#[test]
fn an_answer_by_another_configuration_is_told_which_one_the_run_was_begun_with() {
    let home = Home::new();
    home.run(&["key", "new", "ann"]).exits(0);
    let key = home.run(&["key", "public"]).exits(0).out;
    let rules = |role: &str| {
        let text = format!(
            "[classes]\nlocal_mutation = {{ ask = '{role}' }}\n\
             [[reviewers]]\nperson = 'ann'\nroles = ['{role}']\nkey = '{}'\n",
            key.trim()
        );
        home.write(&format!("{role}.toml"), text).display().to_string()
    };
    let (own, other) = (rules("release"), rules("review"));
    home.scripted(&script(&[CREATE, DONE]), &["-c", &own]).exits(3);
    let run = home.only_run();
    let refused = home.run(&["approve", &run, "--yes", "-c", &other]).exits(1);
    let told =
        format!("the run was begun with the configuration `{own}`, which counts: answer with");
    assert!(refused.err.contains("E5004") && refused.err.contains(&told), "{refused:#?}");
    assert!(!refused.err.contains("cancel"), "{refused:#?}");
    // The control: by its own, named or not, it is their word.
    let explained = |args: &[&str]| home.run(&[&["explain", &run], args].concat()).exits(0).out;
    home.run(&["approve", &run, "--yes", "-c", &own]).exits(0);
    assert!(explained(&[]).contains("signature     valid\n"), "{}", explained(&[]));
    home.run(&["resume", &run]).exits(0);
}

#[test]
fn another_agent_or_one_that_is_given_more_does_not_go_on() {
    let home = Home::new();
    let asking = home.asking();
    home.scripted(&script(&[CREATE, DONE]), &["-c", &asking]).exits(3);
    let run = home.only_run();
    let before = home.run(&["events", "--all", "--json"]).exits(0).out;
    let other = format!("scripted:{}", home.write("other.jsonl", DONE).display());
    home.run(&["resume", &run, "-q", "--agent", &other]).refuses(
        1,
        "E5003",
        &["was begun with the agent", "another one", "portcullis run"],
    );
    for more in [&["--agent-network"][..], &["--agent-env", "TOKEN"], &["--agent-reads", "x"]] {
        let ended = home.run(&[&["resume", &run, "-q"], more].concat());
        ended.refuses(1, "E5003", &["begun without this", more[0]]);
    }
    assert_eq!(
        home.run(&["events", "--all", "--json"]).exits(0).out,
        before,
        "nothing is recorded"
    );
    // The control: named again, it is the same one.
    let same = format!("scripted:{}", home.path("agent.jsonl").display());
    home.run(&["approve", &run, "--yes"]).exits(0);
    home.run(&["resume", &run, "--agent", &same]).exits(0);
}

#[test]
fn an_answer_counts_by_the_reviewers_that_the_run_began_with() {
    let home = Home::new();
    for name in ["ann", "bob"] {
        home.run(&["key", "new", name]).exits(0);
    }
    let key = home.run(&["key", "public", "bob"]).exits(0).out;
    let rules = format!(
        "[classes]\nlocal_mutation = 'ask'\n[[reviewers]]\nperson = 'bob'\nroles = ['operator']\nkey = '{}'\n",
        key.trim()
    );
    let rules = home.write("bob.toml", rules).display().to_string();
    home.scripted(&script(&[CREATE, DONE]), &["-c", &rules]).exits(3);
    let run = home.only_run();
    // Ann's key lies in the key folder, and the rules of this run do not know it.
    let ann = home.run(&["approve", &run, "--yes"]).exits(1);
    for part in ["E5004: the key `ann` is not among the reviewers", "who can answer: `bob`"] {
        assert!(ann.err.contains(part), "{ann:#?}");
    }
    home.run(&["approve", &run, "--yes", "--key", "bob"]).exits(0);
    home.run(&["resume", &run]).exits(0);
    assert!(home.path("files/new.txt").exists());
}

#[test]
fn an_answer_that_does_not_count_says_why_and_who_can_answer() {
    let home = Home::new();
    let mut rules = "[classes]\nlocal_mutation = { ask = 'release', count = 1 }\n".to_owned();
    for (name, role, more) in
        [("ann", "operator", ""), ("bob", "release", ""), ("eve", "release", "revoked = true\n")]
    {
        let made = home.run(&["key", "new", name, "--json"]).json(0);
        let key = text(&made, "key");
        rules.push_str(&format!(
            "[[reviewers]]\nperson = '{name}'\nroles = ['{role}']\nkey = '{key}'\n{more}"
        ));
    }
    let rules = home.write("release.toml", rules).display().to_string();
    home.scripted(&script(&[CREATE, DONE]), &["-c", &rules]).exits(3);
    let run = home.only_run();
    for (name, why) in [
        ("ann", "E5004: the role `release` is asked, and `ann` has `operator`"),
        ("eve", "E5004: the key `eve` is revoked or outside its term"),
    ] {
        let told = home.run(&["approve", &run, "--yes", "--key", name]).exits(1).err;
        assert!(told.contains(why) && told.contains("who can answer: `bob`"), "{told}");
    }
    home.run(&["approve", &run, "--yes", "--key", "bob"]).exits(0);
}

#[test]
fn a_run_belongs_to_the_person_of_the_key() {
    let home = Home::new();
    home.run(&["key", "new", "ann"]).exits(0);
    let key = home.run(&["key", "public", "ann"]).exits(0).out;
    let rules = format!(
        "[[reviewers]]\nperson = 'Ann Example'\nroles = ['operator']\nkey = '{}'\n",
        key.trim()
    );
    let rules = home.write("ann.toml", rules).display().to_string();
    let owner = |home: &Home| {
        let runs = home.run(&["runs", "--json"]).json(0);
        text(&runs.get("runs").unwrap().as_array().unwrap()[0], "owner")
    };
    home.scripted(DONE, &["-c", &rules]).exits(0);
    assert_eq!(owner(&home), "Ann Example");
    home.scripted(DONE, &["-c", &rules, "--owner", "team"]).exits(0);
    assert_eq!(owner(&home), "team");
    home.scripted(DONE, &[]).exits(0);
    assert_eq!(owner(&home), "ann", "the person by the key folder");
}

#[test]
fn what_waited_too_long_is_marked_and_closed_by_the_next_run() {
    let home = Home::new();
    let asking = home.asking();
    let limits = ["--question-ttl-ms", "1", "--grant-ttl-ms", "90500"];
    home.scripted(&script(&[CREATE, DONE]), &[&["-c", &asking][..], &limits].concat()).exits(3);
    let run = home.only_run();
    let shown = home.run(&["show", &run]).exits(0).out;
    assert!(shown.contains("usable          for 90.500 s after the last yes"), "{shown}");
    let inbox = home.run(&["inbox", "--json"]).json(0);
    let question = &inbox.get("questions").unwrap().as_array().unwrap()[0];
    assert_eq!(question.get("overdue"), Some(&Value::Bool(true)));
    let table = home.run(&["inbox"]).exits(0).out;
    assert!(table.contains("Z overdue"), "{table}");
    let next = home.scripted(&script(&[CREATE, DONE]), &["-c", &asking]).exits(3);
    assert!(next.err.contains("one run had waited longer than it may"), "{next:#?}");
    let shown = home.run(&["show", &run, "--json"]).json(0);
    assert_eq!(text(shown.get("run").unwrap(), "status"), "cancelled", "{shown:?}");
    let inbox = home.run(&["inbox", "--json"]).json(0);
    let [waits] = inbox.get("questions").unwrap().as_array().unwrap() else { panic!("{inbox:?}") };
    assert_eq!(waits.get("overdue"), Some(&Value::Bool(false)), "control: the second one is not");
}

#[test]
fn a_run_whose_start_cannot_be_remembered_is_named() {
    let home = Home::new();
    home.scripted(DONE, &[]).exits(0);
    fs::remove_dir_all(home.path("state/portcullis/launch")).unwrap();
    home.write("state/portcullis/launch", "in the way");
    let ended = home.scripted(&script(&[CREATE, DONE]), &["-q"]).exits(1);
    let runs = home.run(&["runs", "--json"]).json(0);
    let begun = text(&runs.get("runs").unwrap().as_array().unwrap()[0], "run");
    assert!(ended.err.contains(&format!("{begun} is begun")), "{ended:#?}");
    assert!(!home.path("files/new.txt").exists(), "nothing was done");
    home.run(&["cancel", &begun]).exits(0);
}

#[test]
fn an_agent_that_fails_to_start_ends_its_run_on_record() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let program = home.write("agent/broken", "#!/no/such/interpreter\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = format!("exec:{}", program.display());
    let ended = home.run(&["run", "-q", "--agent", &agent, "x"]);
    let run = home.only_run();
    ended.refuses(1, "E6002", &["cannot be started", &run, "agent_error"]);
    let shown = home.run(&["show", &run, "--json"]).json(0);
    assert_eq!(text(shown.get("run").unwrap(), "reason"), "agent_error", "{shown:?}");
    home.run(&["verify"]).exits(0);
}

#[test]
fn resume_all_goes_on_with_each_and_reports_the_worst() {
    let home = Home::new();
    let asking = home.asking();
    home.scripted(&script(&[CREATE, DONE]), &["-c", &asking]).exits(3);
    let first = home.only_run();
    let other = CREATE.replace("new.txt", "other.txt");
    let agent =
        format!("scripted:{}", home.write("second.jsonl", script(&[&other, DONE])).display());
    let files = home.path("files").display().to_string();
    home.run(&["run", "-c", &asking, "--agent", &agent, "--files", &files, "again"]).exits(3);
    home.run(&["approve", &first, "--yes"]).exits(0);
    home.run(&["resume", "--all", "-q"]).exits(3);
    assert!(home.path("files/new.txt").exists() && !home.path("files/other.txt").exists());
}

#[test]
fn an_external_program_tidies_a_folder_with_a_persons_leave() {
    if !has_python() {
        return;
    }
    let home = Home::new();
    for name in ["a.txt", "b.png", "c.csv"] {
        home.write(&format!("files/{name}"), name);
    }
    let (rules, script) = (example("ask-local.toml"), example("agents/tidy.py"));
    let (agent, files) =
        (format!("exec:python3 {script}"), home.path("files").display().to_string());
    let started =
        home.run(&["run", "-c", &rules, "--agent", &agent, "--files", &files, "tidy this folder"]);
    started.exits(3);
    let run = home.only_run();
    let mut answered = 0;
    loop {
        home.run(&["approve", &run, "--yes"]).exits(0);
        answered += 1;
        match home.run(&["resume", &run]).code {
            Some(3) => {}
            Some(0) => break,
            other => panic!("exit {other:?} after {answered} answers"),
        }
    }
    assert_eq!(answered, 6, "three folders and three moves");
    for (path, content) in
        [("notes/a.txt", "a.txt"), ("images/b.png", "b.png"), ("tables/c.csv", "c.csv")]
    {
        assert_eq!(fs::read_to_string(home.path("files").join(path)).unwrap(), content);
    }
    assert_eq!(fs::read_dir(home.path("files")).unwrap().count(), 3, "each file is there once");
    // The program was started seven times, and its result tells of all that was done.
    let shown = home.run(&["show", &run, "--json"]).json(0);
    let result = format!("{:?}", shown.get("result"));
    for moved in ["notes/a.txt", "images/b.png", "tables/c.csv"] {
        assert!(result.contains(moved), "{moved} in {result}");
    }
    home.run(&["verify"]).exits(0);
}

/// A shell agent that answers the hello and then nothing more.
fn silent(home: &Home) -> String {
    let hello =
        "read -r hello; echo '{\"type\":\"hello\",\"version\":1}'; while read -r x; do :; done\n";
    format!("exec:/bin/sh {}", home.write("agent/silent.sh", hello).display())
}

/// What a shell agent that completes at once does.
const COMPLETING: &str = "read -r h; echo '{\"type\":\"hello\",\"version\":1}'; read -r v; echo '{\"request\":0,\"kind\":\"complete\",\"result\":1}'; read -r e\n";

/// A shell agent that completes with what this shell expression says.
fn telling(home: &Home, expression: &str) -> String {
    let script = format!(
        "read -r h; echo '{{\"type\":\"hello\",\"version\":1}}'; read -r v\n\
         echo \"{{\\\"request\\\":0,\\\"kind\\\":\\\"complete\\\",\\\"result\\\":\\\"{expression}\\\"}}\"; read -r e\n"
    );
    format!("exec:/bin/sh {}", home.write("agent/telling.sh", script).display())
}

#[test]
fn an_agent_is_given_the_variables_that_were_named_and_a_scratch_folder_that_goes() {
    let home = Home::new();
    let tmp = home.path("tmp");
    fs::create_dir(&tmp).unwrap();
    let result = |flags: &[&str]| {
        let agent = telling(&home, "$TOKEN in $HOME");
        let args: Vec<&str> =
            ["run", "--json", "--agent", &agent, "x"].iter().chain(flags).copied().collect();
        let output = home.command(&args).env("TOKEN", "t-1").env("TMPDIR", &tmp).output().unwrap();
        text(&Ended::of(&output).json(0), "result")
    };
    let scratch = format!("{}/portcullis-", tmp.display());
    assert!(result(&[]).starts_with(&format!("\" in {scratch}")));
    assert!(result(&["--agent-env", "TOKEN"]).starts_with(&format!("\"t-1 in {scratch}")));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "the scratch folders are gone");
    let agent = telling(&home, "$TOKEN");
    let named = home.run(&["run", "--agent", &agent, "--agent-env", "TOKEN", "x"]).exits(0);
    assert!(named.err.contains("note: the variable TOKEN is not set"), "{named:#?}");
    let unnamed = home.run(&["run", "--agent", &agent, "x"]).exits(0);
    assert!(!unnamed.err.contains("TOKEN"), "{unnamed:#?}");
    let json = home.run(&["run", "--json", "--agent", &agent, "--agent-env", "TOKEN", "x"]);
    let note = r#"{"note":"the variable TOKEN is not set, so the agent does not get it"}"#;
    assert_eq!((json.code, json.err.trim_end()), (Some(0), note), "{json:#?}");
    let quiet = home.run(&["run", "--json", "-q", "--agent", &agent, "--agent-env", "TOKEN", "x"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""), "{quiet:#?}");
}

#[test]
fn a_database_that_is_taken_away_during_a_run_is_said_to_be_gone_and_nothing_runs() {
    let home = Home::new();
    home.run(&["init", "--no-config"]).exits(0);
    let (db, away) = (home.db().display().to_string(), home.path("away.db").display().to_string());
    let create = CREATE.replacen('{', r#"{"request":0,"#, 1);
    let script = format!(
        "read -r h; echo '{{\"type\":\"hello\",\"version\":1}}'; read -r v\n\
         mv '{db}' '{away}'; echo '{create}'; read -r e\n"
    );
    let agent = format!("exec:/bin/sh {}", home.write("agent/taking.sh", script).display());
    let files = home.path("files").display().to_string();
    let run = ["run", "-q", "--unconfined-agent", "--agent", &agent, "--files", &files, "x"];
    home.run(&run).refuses(1, "E3011", &["moved, removed or replaced", "put it back"]);
    assert!(!home.path("files/new.txt").exists());
    assert!(fs::exists(&away).unwrap() && !fs::exists(&db).unwrap(), "none is made in its place");
    fs::rename(&away, &db).unwrap();
    let run = home.only_run();
    let shown = home.run(&["events", &run]).exits(0).out;
    assert!(shown.contains("run.created") && !shown.contains("step.started"), "{shown}");
    home.run(&["verify"]).exits(0);
}

#[test]
fn two_people_decide_where_the_rules_want_two_and_the_owner_is_none_of_them() {
    let home = Home::new();
    for name in ["ann", "bob", "eve"] {
        home.run(&["key", "new", name]).exits(0);
    }
    let four_eyes = example("four-eyes.toml");
    home.scripted(&script(&[CREATE, DONE]), &["-c", &four_eyes]).exits(3);
    let run = home.only_run();
    let approve = |name: &str| home.run(&["approve", &run, "--yes", "--key", name]);
    let own = approve("ann").exits(1).err;
    for part in ["E5004: `ann` asked for this run", "owner is none of them", "answer: `bob`, `eve`"]
    {
        assert!(own.contains(part), "{own}");
    }
    approve("bob").exits(0);
    home.run(&["resume", &run]).exits(3);
    let twice = approve("bob").exits(1);
    assert!(
        twice.err.contains("E5003") && twice.err.contains("who can answer: `eve`"),
        "one person counts once: {twice:#?}"
    );
    assert!(!home.path("files/new.txt").exists());
    approve("eve").exits(0);
    home.run(&["resume", &run]).exits(0);
    assert_eq!(fs::read_to_string(home.path("files/new.txt")).unwrap(), "hello");
    home.run(&["verify"]).exits(0);
}

/// Starts a run of a silent agent and waits until it is under way.
fn under_way(home: &Home) -> Child {
    let (agent, files) = (silent(home), home.path("files").display().to_string());
    told(home.command(&["run", "--agent", &agent, "--files", &files, "wait"]), " begins")
}

/// Starts a command and waits until it tells a line that ends so.
fn told(mut command: Command, end: &str) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with(end)), "{command:?}");
    child
}

fn signal(child: &Child, name: &str) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let signal = match name {
        "INT" => rustix::process::Signal::INT,
        "HUP" => rustix::process::Signal::HUP,
        "QUIT" => rustix::process::Signal::QUIT,
        "KILL" => rustix::process::Signal::KILL,
        _ => rustix::process::Signal::TERM,
    };
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_signal_stops_at_the_next_record_and_leaves_the_run_free() {
    let released = |home: &Home| {
        let events = home.run(&["events", "--all", "--json"]).exits(0).out;
        events.matches("\"lease.released\"").count()
    };
    for name in ["INT", "TERM", "HUP", "QUIT"] {
        let home = Home::new();
        let child = under_way(&home);
        signal(&child, name);
        let ended = Ended::of(&child.wait_with_output().unwrap()).exits(130);
        assert!(ended.out.contains("stopped: it can be taken up again"), "{name} {ended:#?}");
        let run = home.only_run();
        assert_eq!(released(&home), 1, "{name}");
        // At once: the lease was released. The same agent has learned to answer meanwhile.
        fs::write(home.path("agent/silent.sh"), COMPLETING).unwrap();
        home.run(&["resume", &run]).exits(0);
    }
}

#[test]
fn a_signal_stops_a_resumed_run_too() {
    for name in ["TERM", "HUP", "QUIT"] {
        let home = Home::new();
        let mut first = under_way(&home);
        signal(&first, "KILL");
        first.wait().unwrap();
        let run = home.only_run();
        // Named again: how it was started may not have been remembered yet.
        let (agent, files) = (silent(&home), home.path("files").display().to_string());
        let again = ["resume", &run, "--agent", &agent, "--files", &files];
        let resumed = told(home.command(&again), "the last driver is dead");
        signal(&resumed, name);
        Ended::of(&resumed.wait_with_output().unwrap()).exits(130);
        fs::write(home.path("agent/silent.sh"), COMPLETING).unwrap();
        let ended = home.run(&again).exits(0);
        assert!(!ended.err.contains("taken up"), "its lease was released: {ended:#?}");
    }
}

#[test]
fn a_hangup_that_the_operator_had_ignored_stays_ignored() {
    let home = Home::new();
    let agent = silent(&home);
    let line = format!("trap '' HUP; exec '{COMMAND}' run --agent '{agent}' wait");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &line]).env("HOME", home.path(""));
    for (name, folder) in [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")] {
        shell.env(name, home.path(folder));
    }
    let child = told(shell, " begins");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{status}");
    signal(&child, "TERM");
    Ended::of(&child.wait_with_output().unwrap()).exits(130);
}

#[test]
fn one_run_is_driven_by_one_process() {
    let home = Home::new();
    let child = under_way(&home);
    let run = home.only_run();
    home.run(&["resume", &run, "-q"]).refuses(1, "E5002", &["another driver holds this run"]);
    signal(&child, "TERM");
    Ended::of(&child.wait_with_output().unwrap()).exits(130);
}

#[test]
fn a_head_is_kept_after_each_run_and_an_old_copy_put_back_is_noticed() {
    let home = Home::new();
    let heads = home.path("elsewhere");
    fs::create_dir(&heads).unwrap();
    let config = format!("[head]\nfile = '{}'\n", heads.join("heads").display());
    let config = home.write("heads.toml", config).display().to_string();
    home.scripted(&script(&[LIST, DONE]), &["-c", &config]).exits(0);
    home.sql("");
    let copy = fs::read(home.db()).unwrap();
    let kept = fs::read_to_string(heads.join("heads")).unwrap();
    home.scripted(&script(&[LIST, DONE]), &["-c", &config]).exits(0);
    assert_ne!(fs::read_to_string(heads.join("heads")).unwrap(), kept, "the head moved on");

    home.sql("");
    fs::write(home.db(), &copy).unwrap();
    let again = home.scripted(&script(&[LIST, DONE]), &["-c", &config, "-q"]);
    again.refuses(1, "E4002", &["does not reach event", "an old copy was put back"]);
    let run = home.only_run();
    home.run(&["resume", &run, "-q"]).refuses(1, "E4002", &["an old copy was put back"]);
    // The control: without the head nothing speaks against the copy.
    home.scripted(&script(&[LIST, DONE]), &[]).exits(0);
}

#[test]
fn an_old_copy_put_back_is_noticed_where_nothing_is_configured() {
    let home = Home::new();
    home.scripted(&script(&[LIST, DONE]), &[]).exits(0);
    home.sql("");
    let copy = fs::read(home.db()).unwrap();
    home.scripted(&script(&[LIST, DONE]), &[]).exits(0);
    let verified = home.run(&["verify"]).exits(0).out;
    assert!(verified.contains("1 of 1 kept heads found"), "{verified}");
    home.sql("");
    fs::write(home.db(), &copy).unwrap();
    let again = home.scripted(&script(&[LIST, DONE]), &["-q"]);
    again.refuses(1, "E4002", &["does not reach event", "move `"]);
    assert!(home.run(&["verify"]).exits(1).out.contains("its tail was cut"));
    // Who accepts the loss moves the file away.
    fs::rename(home.path("config/portcullis/host/heads"), home.path("evidence")).unwrap();
    home.scripted(&script(&[LIST, DONE]), &[]).exits(0);
}

#[test]
fn a_configured_file_of_heads_has_to_stay() {
    let home = Home::new();
    fs::create_dir(home.path("elsewhere")).unwrap();
    let heads = home.path("elsewhere/heads");
    let config = home.write("heads.toml", format!("[head]\nfile = '{}'\n", heads.display()));
    let config = config.display().to_string();
    home.scripted(&script(&[LIST, DONE]), &["-c", &config]).exits(0);
    fs::remove_file(&heads).unwrap();
    let words = ["holds no head or is not there", "verify --write-head"];
    home.scripted(DONE, &["-c", &config, "-q"]).refuses(1, "E4002", &words);
    home.run(&["resume", &home.only_run(), "-q"]).refuses(1, "E4002", &words);
    home.run(&["verify", "-c", &config]).refuses(1, "E4002", &words);
    assert!(!heads.exists(), "nothing begins it by itself");
    let name = heads.display().to_string();
    home.run(&["verify", "-c", &config, "--write-head", &name]).exits(0);
    home.scripted(DONE, &["-c", &config]).exits(0);
    // Heads that nobody can check are not said to be found.
    fs::remove_file(home.path("config/portcullis/host/host.pub")).unwrap();
    let out = home.run(&["verify", "-c", &config]).exits(0).out;
    assert!(out.contains("1 of 1 fit, signature unchecked"), "{out}");
}

#[test]
fn a_head_of_another_key_or_another_database_proves_nothing() {
    let home = Home::new();
    let heads = home.path("elsewhere/heads");
    fs::create_dir(home.path("elsewhere")).unwrap();
    let config = home.write("heads.toml", format!("[head]\nfile = '{}'\n", heads.display()));
    let config = config.display().to_string();
    home.scripted(&script(&[LIST, DONE]), &["-c", &config]).exits(0);
    let other = home.path("other.db").display().to_string();
    home.scripted(DONE, &["-c", &config, "-q", "--db", &other]).refuses(
        1,
        "E4002",
        &["another database"],
    );
    for half in ["host.key", "host.pub"] {
        fs::remove_file(home.path("config/portcullis/host").join(half)).unwrap();
    }
    home.scripted(DONE, &["-c", &config, "-q"]).refuses(1, "E4003", &["proves nothing"]);
}

#[test]
fn the_record_says_which_agent_and_whether_it_was_confined() {
    let home = Home::new();
    let agent = format!("exec:/bin/sh {}", home.write("agent/done.sh", COMPLETING).display());
    home.run(&["run", "--agent", &agent, "one"]).exits(0);
    let ended = home.run(&["run", "--agent", &agent, "--unconfined-agent", "two"]).exits(0);
    assert!(ended.err.contains("without confinement"), "{ended:#?}");
    let runs = home.run(&["runs", "--json"]).json(0);
    let shown: Vec<_> = runs.get("runs").unwrap().as_array().unwrap().iter().collect();
    let unconfined: Vec<_> =
        shown.iter().map(|run| run.get("unconfined_agent").and_then(Value::as_bool)).collect();
    assert_eq!(unconfined, [Some(true), Some(false)], "newest first");
    assert!(shown.iter().all(|run| text(run, "agent") == agent));
}
