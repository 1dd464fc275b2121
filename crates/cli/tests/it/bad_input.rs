//! Bad input gets one sentence that says what to do, and changes nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::home::{COMMAND, Ended, Home, text};

const DONE: &str = r#"{"kind":"complete","result":1}"#;
const LIST: &str = r#"{"kind":"tool_call","tool":"files.list","arguments":{"path":"."}}"#;

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

/// A home with one completed run.
fn used() -> Home {
    let home = Home::new();
    home.scripted(DONE, &[]).exits(0);
    home
}

#[test]
fn a_mistyped_database_is_not_created() {
    let home = Home::new();
    let absent = home.path("absent.db").display().to_string();
    let id = "run_00000000000000000000000000000001";
    for args in [
        &["runs"][..],
        &["show", id],
        &["events", "--all"],
        &["inbox"],
        &["explain", id],
        &["diff", id, id],
        &["recheck", id],
        &["recheck", "--all"],
        &["verify"],
        &["approve", id, "--yes"],
        &["reject", id, "--yes"],
        &["cancel", id],
        &["resume", id],
        &["resume", "--all"],
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["--db", &absent]).collect();
        home.run(&args).refuses(1, "E3001", &["there is no database at", "check the path"]);
        assert!(!Path::new(&absent).exists(), "{args:?}");
    }
}

#[test]
fn a_database_that_cannot_be_trusted_is_refused() {
    let home = used();
    mode(&home.db(), 0o666);
    for args in [&["runs"][..], &["verify"], &["cancel", "run_00000000000000000000000000000001"]] {
        home.run(args).refuses(1, "E3002", &["may be written by others", "0600"]);
    }
    mode(&home.db(), 0o600);
    let link = home.path("link.db");
    symlink(home.db(), &link).unwrap();
    let link = link.display().to_string();
    home.run(&["runs", "--db", &link]).refuses(1, "E3002", &["symbolic link"]);
    home.scripted(DONE, &["--db", &link, "-q"]).refuses(1, "E3002", &["symbolic link"]);
    let odd = home.path("files").display().to_string();
    home.run(&["runs", "--db", &odd]).refuses(1, "E3002", &["not a regular file"]);
}

#[test]
fn a_file_that_is_no_database_stays_as_it_is() {
    let home = used();
    let text = home.write("letter.txt", "Dear reader,\n".repeat(1000));
    let name = text.display().to_string();
    for args in [&["runs"][..], &["verify"]] {
        let args: Vec<&str> = args.iter().copied().chain(["--db", &name]).collect();
        home.run(&args).refuses(1, "E3003", &["not a database"]);
    }
    home.scripted(DONE, &["--db", &name, "-q"]).refuses(1, "E3003", &["not a database"]);
    assert_eq!(fs::read_to_string(&text).unwrap(), "Dear reader,\n".repeat(1000));

    home.sql("");
    let whole = fs::read(home.db()).unwrap();
    let cut = home.write("cut.db", &whole[..whole.len() / 2 + 100]);
    let ended = home.run(&["runs", "--db", &cut.display().to_string()]);
    ended.refuses(1, "E3003", &["damaged or cut short", "backup"]);
}

#[test]
fn a_database_whose_making_was_broken_off_is_said_to_hold_nothing_yet() {
    let home = Home::new();
    home.run(&["init", "--no-config"]).exits(0);
    let id = "run_00000000000000000000000000000001";
    let commands = [&["runs"][..], &["verify"], &["resume", "--all"], &["cancel", id]];
    let begun = "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL";
    for tables in ["", begun] {
        fs::remove_file(home.db()).unwrap();
        let db = home.write("state/portcullis/portcullis.db", "");
        rusqlite::Connection::open(&db).unwrap().execute_batch(tables).unwrap();
        for args in commands {
            home.run(args).refuses(1, "E3010", &["holds nothing yet", "-wal", "portcullis init"]);
        }
        // One that holds the lock is perhaps still at it.
        let maker = rusqlite::Connection::open(&db).unwrap();
        maker.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
        home.run(&["runs"]).refuses(1, "E3010", &["is not over"]);
        drop(maker);
        home.run(&["init", "--no-config"]).exits(0);
        home.run(&["verify"]).exits(0);
    }
}

#[test]
fn a_database_of_a_newer_program_is_left_alone() {
    let home = used();
    home.sql("PRAGMA user_version = 99");
    let db = fs::read(home.db()).unwrap();
    home.run(&["runs"]).refuses(1, "E3004", &["newer program"]);
    home.scripted(DONE, &["-q"]).refuses(1, "E3004", &["newer program"]);
    assert_eq!(fs::read(home.db()).unwrap(), db);
}

#[test]
fn a_folder_that_holds_what_governs_is_not_handed_out() {
    let home = used();
    let agent = format!("scripted:{}", home.path("agent.jsonl").display());
    let config = home.write("rules/portcullis.toml", "").display().to_string();
    for root in ["", "state", "state/portcullis", "config", "config/portcullis/keys", "rules"] {
        let root = home.path(root).display().to_string();
        let ended =
            home.run(&["run", "-q", "-c", &config, "--agent", &agent, "--files", &root, "x"]);
        ended.refuses(1, "E7001", &["which no tool may reach", "name another folder"]);
    }
    let missing = home.path("nowhere").display().to_string();
    home.run(&["run", "-q", "--agent", &agent, "--files", &missing, "x"]).refuses(
        1,
        "E7001",
        &["cannot open the folder"],
    );
    let alias = home.path("alias");
    symlink("/proc/self/fd", &alias).unwrap();
    let alias = alias.display().to_string();
    for root in ["/proc", "/proc/self", "/proc/sys/kernel", "/sys", "/dev", "/dev/pts", &alias] {
        let ended = home.run(&["run", "-q", "--agent", &agent, "--files", root, "x"]);
        ended.refuses(1, "E7001", &["which no tool may reach", "name another folder"]);
    }
    let program = Path::new(COMMAND).parent().unwrap().display().to_string();
    home.run(&["run", "-q", "--agent", &agent, "--files", &program, "x"]).refuses(
        1,
        "E7001",
        &["which no tool may reach"],
    );
}

#[test]
fn a_configuration_has_to_fit_and_to_be_ones_own() {
    let home = Home::new();
    let config = home.write("bad.toml", "[classes]\nlocal_mutation = \"maybe\"\n");
    let name = config.display().to_string();
    home.scripted(DONE, &["-c", &name, "-q"]).refuses(
        1,
        "E9001",
        &["line 2, column 18", "expected \"allow\""],
    );
    fs::write(&config, "[clases]\n").unwrap();
    home.scripted(DONE, &["-c", &name, "-q"]).refuses(1, "E9001", &["line 1", "clases"]);
    fs::write(&config, "").unwrap();
    mode(&config, 0o620);
    home.scripted(DONE, &["-c", &name, "-q"]).refuses(
        1,
        "E9001",
        &["can be written by others", "chmod go-w"],
    );
    mode(&config, 0o644);
    home.scripted(DONE, &["-c", &name, "-q"]).exits(0);
    let absent = home.path("absent.toml").display().to_string();
    home.scripted(DONE, &["-c", &absent, "-q"]).refuses(
        1,
        "E9005",
        &["cannot read the configuration"],
    );
    assert!(home.run(&["runs", "--json"]).json(0).get("total").unwrap().as_u64() == Some(1));
}

#[test]
fn arguments_are_read_before_anything_is_opened() {
    let home = Home::new();
    let done = format!("scripted:{}", home.write("agent.jsonl", DONE).display());
    home.run(&["run", "-q", "--agent", "tidy.py", "x"]).refuses(
        2,
        "E9002",
        &["scripted:FILE", "exec:COMMAND"],
    );
    home.run(&["run", "-q", "--agent", "exec:python3 'a", "x"]).refuses(2, "E9002", &["a quote"]);
    home.run(&["run", "-q", "x"]).refuses(2, "E9002", &["no agent is named"]);
    home.run(&["run", "-q", "--agent", &done, " "]).refuses(2, "E9002", &["the task has to be"]);
    home.run(&["run", "-q", "--agent", &done, "--max-steps", "0", "x"]).refuses(
        2,
        "E9002",
        &["max_steps"],
    );
    home.run(&["run", "-q", "--agent", &done, "--owner", "a\nb", "x"]).refuses(
        2,
        "E9002",
        &["owner"],
    );
    for args in [
        &["run"][..],
        &["resume"],
        &["resume", "run_x"],
        &["nonsense"],
        &["resume", "--all", "run_0123456789"],
    ] {
        assert_eq!(home.run(args).code, Some(2), "{args:?}");
    }
    assert!(!home.path("state").exists() && !home.path("config").exists(), "nothing was made");
    let no_home =
        home.command(&["runs"]).env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap();
    Ended::of(&no_home).refuses(1, "E9003", &["HOME is not set", "set HOME"]);
}

#[test]
fn a_command_line_that_cannot_be_read_is_one_sentence_or_one_object() {
    let home = Home::new();
    let hostile = format!("\u{1b}[2J\n\u{202e}{}", "x".repeat(100_000));
    for args in [&["nonsense"][..], &["runs", "--limit", "0"], &["show", &hostile], &[&hostile]] {
        home.run(args).refuses(2, "E9010", &["portcullis"]);
        let error = home.error(&[args, &["--json"]].concat(), 2);
        assert_eq!(text(&error, "code"), "E9010");
        assert!(text(&error, "error").len() < 500, "{error:?}");
    }
    // Nothing at all is met with help, for a program with an object too.
    let help = home.run(&[]).exits(2);
    assert!(help.out.is_empty() && help.err.contains("Usage: portcullis"), "{help:#?}");
    assert_eq!(text(&home.error(&["--json"], 2), "code"), "E9010");
    assert_eq!(text(&home.error(&["key", "--json"], 2), "code"), "E9010");
    assert!(home.run(&["--help"]).exits(0).out.contains("Exit codes"));
    assert!(home.run(&["--version"]).exits(0).out.starts_with("portcullis "));
}

#[test]
fn an_agent_that_cannot_be_had_begins_no_run() {
    let home = Home::new();
    home.run(&["run", "-q", "--agent", "exec:no-such-program-here", "x"]).refuses(
        1,
        "E6002",
        &["there is no program"],
    );
    home.run(&["run", "-q", "--agent", "scripted:absent.jsonl", "x"]).refuses(
        1,
        "E9005",
        &["cannot read the script"],
    );
    let gone = home.path("gone.py").display().to_string();
    for script in [gone.as_str(), "gone.py"] {
        let agent = format!("exec:sh {script} conf.toml");
        home.run(&["run", "-q", "--agent", &agent, "x"]).refuses(
            1,
            "E6002",
            &["there is no script", &gone, "check the path"],
        );
    }
    home.scripted("\n\n", &["-q"]).refuses(1, "E8001", &["the script holds no proposal"]);
    assert!(home.run(&["runs", "--json"]).json(0).get("total").unwrap().as_u64() == Some(0));
}

#[test]
fn a_program_that_cannot_be_run_is_told_from_one_that_is_not_there() {
    let home = Home::new();
    let script = home.write("my agent.py", "print()\n");
    let start = |command: &str| home.run(&["run", "-q", "--agent", command, "x"]);
    let shown = script.display().to_string();
    start("exec:'./my agent.py'").refuses(
        1,
        "E6002",
        &["is not executable", &format!("`chmod +x '{}", home.path("").display()), "python3 './my"],
    );
    mode(&script, 0o755);
    start(&format!("exec:'{shown}'")).refuses(
        1,
        "E6002",
        &["cannot be started", "first line has to name its interpreter"],
    );
    home.write("agent.py", "print()\n");
    start("exec:agent.py").refuses(1, "E6002", &["no program", "by its path: `./agent.py`"]);
    assert_eq!(home.run(&["runs"]).exits(0).out, "no runs\n");
}

#[test]
fn a_configuration_that_is_named_has_to_be_usable_whatever_the_command() {
    let home = used();
    let run = home.only_run();
    let absent = home.path("absent.toml").display().to_string();
    let odd = home.write("odd.toml", "[clases]\n").display().to_string();
    for args in [
        &["runs"][..],
        &["inbox"],
        &["explain", &run],
        &["diff", &run, &run],
        &["recheck", &run],
        &["show", &run],
        &["events", &run],
        &["resume", "--all"],
        &["resume", &run],
        &["approve", &run, "--yes"],
        &["cancel", &run],
        &["verify"],
        &["key", "list"],
    ] {
        let with = |config: &str| home.run(&[args, &["-c", config]].concat());
        with(&absent).refuses(1, "E9005", &["cannot read the configuration", "does not exist"]);
        with(&odd).refuses(1, "E9001", &["line 1", "clases"]);
    }
    // The control, and what one does before there is a configuration.
    let empty = home.write("empty.toml", "").display().to_string();
    home.run(&["runs", "-c", &empty]).exits(0);
    home.run(&["init", "-c", "portcullis.toml"]).exits(0);
}

#[test]
fn a_pipe_in_a_scripts_place_is_refused_and_not_waited_for() {
    let home = Home::new();
    home.write("files/a.txt", "a");
    let pipe = home.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let agent = format!("scripted:{}", pipe.display());
    let files = home.path("files").display().to_string();
    let ran = home.run(&["run", "--agent", &agent, "--files", &files, "tidy"]);
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    assert!(ran.err.contains("not a regular file"), "{ran:#?}");
}

#[test]
fn an_agents_nonsense_is_recorded_and_refused() {
    let home = Home::new();
    let huge = format!(
        r#"{{"kind":"tool_call","tool":"files.create","arguments":{{"path":"big","content":"{}"}}}}"#,
        "x".repeat(700_000)
    );
    let named = r#"{"kind":"tool_call","tool":"files.create","arguments":{"path":"a\u001b[2Jb","content":"x"}}"#;
    let script = ["{ not json", &huge, named, DONE].join("\n");
    let ended = home.scripted(&script, &["--max-consecutive-failures", "9"]).exits(0);
    assert!(!ended.err.contains('\u{1b}') && !ended.out.contains('\u{1b}'), "{ended:?}");
    assert!(ended.err.contains("step 0: invalid proposal"), "{ended:#?}");
    home.run(&["verify"]).exits(0);
    // 10 MiB is more than a line of a script or of a program may have.
    let line = format!(r#"{{"kind":"fail","message":"{}"}}"#, "x".repeat(10 << 20));
    home.scripted(&line, &["-q"]).refuses(1, "E8001", &["line 1 of the script", "bytes"]);
}

#[test]
fn output_that_nobody_reads_any_more_is_no_failure_to_speak_of() {
    let home = used();
    let shell = format!("exec '{COMMAND}' completions bash | head -c 1");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &shell]).env("HOME", home.path(""));
    let ended = Ended::of(&command.output().unwrap());
    assert_eq!((ended.out.len(), ended.err.as_str()), (1, ""));
}

#[test]
fn a_full_disk_is_one_sentence_and_the_record_stays_whole() {
    if !rustix::process::geteuid().is_root() {
        return portcullis_testkit::skip::skip("a small file system needs root");
    }
    let home = Home::new();
    let agent = format!("scripted:{}", home.write("agent.jsonl", DONE).display());
    let script = format!(
        "mount -t tmpfs -o size=1m,mode=700 none \"$1\" || exit 99\n\
         export XDG_STATE_HOME=\"$1\" XDG_CONFIG_HOME={config} HOME={home} USER=ann\n\
         '{COMMAND}' run -q --agent {agent} one || exit 98\n\
         dd if=/dev/zero of=\"$1/ballast\" bs=4096 2>/dev/null\n\
         '{COMMAND}' run -q --agent {agent} two 2>\"$2\"; echo \"full $?\"\n\
         rm \"$1/ballast\"\n\
         '{COMMAND}' run -q --agent {agent} three >/dev/null && '{COMMAND}' verify >/dev/null && echo whole\n",
        config = home.path("config").display(),
        home = home.path("").display(),
    );
    let (disk, told) = (home.path("disk"), home.path("told"));
    fs::create_dir(&disk).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "/bin/sh", "-c", &script, "sh"]).args([&disk, &told]);
    let ended = match command.output() {
        Ok(output) => Ended::of(&output),
        Err(_) => return portcullis_testkit::skip::skip("no unshare on this machine"),
    };
    if ended.code == Some(99) {
        return portcullis_testkit::skip::skip("no file system may be mounted here");
    }
    assert!(ended.out.contains("full 1") && ended.out.ends_with("whole\n"), "{ended:#?}");
    let told = fs::read_to_string(told).unwrap();
    assert!(told.starts_with("portcullis: E3005: ") && told.lines().count() == 1, "{told}");
}

#[test]
fn a_limit_on_the_size_of_files_is_one_sentence_and_the_record_stays_whole() {
    let home = used();
    let agent = format!("scripted:{}", home.write("agent.jsonl", DONE).display());
    let shell = format!("ulimit -f 32; exec '{COMMAND}' run -q --agent {agent} one");
    let command = home.command(&[]);
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", &shell]).env_clear().envs(
        command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    let ended = Ended::of(&limited.output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.err.starts_with("portcullis: E3"), "{ended:#?}");
    home.run(&["run", "-q", "--agent", &agent, "two"]).exits(0);
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_read_only_folder_is_one_sentence_to_another_user_than_root() {
    if !rustix::process::geteuid().is_root() {
        return portcullis_testkit::skip::skip("becoming another user needs root");
    }
    let home = Home::new();
    let script = home.write("shared/agent.jsonl", LIST);
    for path in ["", "shared", "shared/agent.jsonl"] {
        mode(&home.path(path), 0o755);
    }
    let state = home.path("locked");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65534), Some(65534)).unwrap();
    mode(&state, 0o500);
    let config = home.path("nobodys");
    fs::create_dir(&config).unwrap();
    std::os::unix::fs::chown(&config, Some(65534), Some(65534)).unwrap();
    mode(&config, 0o700);
    let agent = format!("scripted:{}", script.display());
    let copied = home.path("portcullis");
    fs::copy(COMMAND, &copied).unwrap();
    mode(&copied, 0o755);
    let db = state.join("p.db").display().to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&copied)
        .args(["run", "-q", "--db", &db, "--agent", &agent, "x"])
        .env("XDG_CONFIG_HOME", &config)
        .env("HOME", &state)
        .env_remove("PORTCULLIS_DB");
    match command.output() {
        Ok(output) => Ended::of(&output).refuses(1, "E3006", &["cannot be written", "writable"]),
        Err(_) => portcullis_testkit::skip::skip("no setpriv on this machine"),
    }
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "nothing half-written");
}
