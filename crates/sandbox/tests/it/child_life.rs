//! How an agent's process starts, what it inherits, and how it ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use portcullis_sandbox::child::SpawnError;

use crate::agents::{Field, alive, ends, example, lines, start};

/// What the program says when it is started without the re-exec; it must have ended well.
#[track_caller]
fn unheld(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {} {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn only_the_named_environment_arrives() {
    let f = Field::new();
    let mut spec = f.spec(&["env"]);
    assert_eq!(lines(&spec), ["env ok"]);
    spec.env = vec![("ONE".into(), "1".into()), ("TWO".into(), "a b".into())];
    assert_eq!(lines(&spec), ["env ok ONE=1 TWO=a b"]);
    let control = unheld(Command::new(&f.probe).arg("env"));
    assert!(control.len() > 20, "control: this process has an environment");
}

#[test]
fn the_child_has_its_own_session_folder_mask_and_no_way_up() {
    let f = Field::new();
    let attempts = ["leads", "cwd", "umask", "nnp", "parent"];
    let expected = [
        "leads ok true".to_owned(),
        format!("cwd ok {}", f.scratch.display()),
        format!("umask ok {}", 0o077),
        "nnp ok true".to_owned(),
        format!("parent ok {}", std::process::id()),
    ];
    let mut spec = f.spec(&attempts);
    assert_eq!(lines(&spec), expected);
    spec.confined = false;
    assert_eq!(lines(&spec), expected);
    let control = unheld(Command::new(&f.probe).args(["leads", "nnp"]));
    assert_eq!(control, "leads ok false\nnnp ok false\n");
}

#[test]
fn a_broken_pipe_ends_the_program_and_no_signal_is_blocked() {
    let f = Field::new();
    let mut spec = f.spec(&["-c", "grep -E '^Sig(Ign|Blk):' /proc/self/status"]);
    spec.program = "/bin/sh".into();
    // A confined program reads nothing of /proc; it is started by the same code.
    spec.confined = false;
    let masks: Vec<u64> = lines(&spec).iter().map(|line| mask(line)).collect();
    let [blocked, ignored] = masks[..] else { panic!("{masks:?}") };
    assert_eq!(blocked, 0);
    let broken_pipe = 1 << (libc::SIGPIPE - 1);
    assert_eq!(ignored & broken_pipe, 0);
    // The control: this process ignores it, as every Rust program does.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = mask(own.lines().find(|line| line.starts_with("SigIgn:")).unwrap());
    assert_eq!(own & broken_pipe, broken_pipe);
}

/// The signals that a line of `/proc/PID/status` names.
fn mask(line: &str) -> u64 {
    u64::from_str_radix(line.split_once(":\t").unwrap().1, 16).unwrap()
}

#[test]
fn no_descriptor_but_the_three_arrives() {
    let f = Field::new();
    // One that every child inherits, since it lacks the flag that closes it.
    let key = std::fs::File::open(&f.key).unwrap();
    let leak = rustix::io::dup(&key).unwrap();
    let control = unheld(Command::new(&f.probe).arg("fds"));
    assert_ne!(control, "fds ok 3\n", "control: it does leak");
    let mut spec = f.spec(&["fds"]);
    assert_eq!(lines(&spec), ["fds ok 3"]);
    spec.confined = false;
    assert_eq!(lines(&spec), ["fds ok 3"]);
    drop(leak);
}

#[test]
fn the_streams_are_the_agents_own() {
    let f = Field::new();
    let mut agent = start(&f.spec(&["echo", "echo"])).unwrap();
    let mut stdin = agent.stdin.take().unwrap();
    let mut stdout = BufReader::new(agent.stdout.take().unwrap());
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("echo ok {word}\n"));
    }
    assert_eq!(stdout.read(&mut [0; 8]).unwrap(), 0);
    assert!(agent.wait().unwrap().success());
    assert!(agent.try_wait().unwrap().unwrap().success());
}

#[test]
fn waiting_is_bounded_and_killing_ends_it() {
    let f = Field::new();
    let mut agent = start(&f.spec(&["sleep"])).unwrap();
    assert_eq!(agent.wait_timeout(Duration::from_millis(50)).unwrap(), None);
    assert_eq!(agent.try_wait().unwrap(), None);
    agent.kill();
    let status = agent.wait_timeout(Duration::from_secs(10)).unwrap().unwrap();
    assert!(!status.success());
    agent.kill();
}

#[test]
fn the_end_of_an_agent_is_the_end_of_its_family() {
    for how in ["kill", "drop", "exit"] {
        let f = Field::new();
        let attempts: &[&str] =
            if how == "exit" { &["family", "echo"] } else { &["family", "sleep"] };
        let mut agent = start(&f.spec(attempts)).unwrap();
        let mut stdout = BufReader::new(agent.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let family: Vec<u32> =
            line.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
        assert_eq!(family.len(), 2, "{line}");
        assert!(family.iter().all(|pid| alive(*pid)), "control");
        assert!(
            leads_a_session(family[1]),
            "control: the end of the agent's session is not its end"
        );
        match how {
            "kill" => {
                agent.kill();
                agent.wait().unwrap();
            }
            "drop" => drop(agent),
            _ => {
                // It ends by itself. The one in its session goes; the one that left it lost its parent just then,
                // which is the stated limit.
                drop(agent.stdin.take());
                agent.wait().unwrap();
                assert!(ends(family[0]), "{how}");
                let _ = Command::new("kill").arg("-9").arg(family[1].to_string()).status();
                continue;
            }
        }
        assert!(family.iter().all(|pid| ends(*pid)), "{how}");
    }
}

/// The number of a descendant that left its session and lost its parent.
fn orphan(stdout: &mut impl std::io::BufRead) -> u32 {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let pid = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(alive(pid) && leads_a_session(pid), "control: {line}");
    pid
}

#[test]
fn beneath_a_keeper_nobody_outlives_the_program() {
    for how in ["kill", "drop", "exit", "no keeper"] {
        let f = Field::new();
        let mut spec = f.spec(&["orphan", if how == "exit" { "echo" } else { "sleep" }]);
        (spec.kept, spec.confined) = (how != "no keeper", how == "kill");
        let mut agent = start(&spec).unwrap();
        let mut stdout = BufReader::new(agent.stdout.take().unwrap());
        let orphan = orphan(&mut stdout);
        match how {
            "kill" | "no keeper" => {
                agent.kill();
                agent.wait().unwrap();
            }
            "drop" => drop(agent),
            _ => {
                drop(agent.stdin.take());
                assert!(agent.wait().unwrap().success());
            }
        }
        if how == "no keeper" {
            assert!(alive(orphan), "control: without one it is not found");
            let _ = Command::new("kill").arg("-9").arg(orphan.to_string()).status();
        } else {
            assert!(ends(orphan), "{how}");
        }
    }
}

#[test]
fn beneath_a_keeper_nobody_outlives_the_parent() {
    let f = Field::new();
    let mut parent = Command::new(example("confine"))
        .args(["--kept", "--unconfined", "--scratch"])
        .args([f.scratch.as_os_str(), "--".as_ref(), f.probe.as_os_str()])
        .args(["orphan", "sleep"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(parent.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let keeper: u32 = line.split(' ').next().unwrap().parse().unwrap();
    let orphan = orphan(&mut stdout);
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(ends(orphan), "it outlived the parent");
    assert!(ends(keeper), "the keeper outlived the parent");
}

#[test]
fn a_keeper_passes_streams_status_and_refusals_on() {
    let f = Field::new();
    let mut spec = f.spec(&["leads", "fds", "env", "cwd", "echo"]);
    spec.kept = true;
    let mut agent = start(&spec).unwrap();
    agent.stdin.take().unwrap().write_all(b"word\n").unwrap();
    let mut text = String::new();
    agent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let cwd = f.scratch.display();
    assert_eq!(text, format!("leads ok true\nfds ok 3\nenv ok\ncwd ok {cwd}\necho ok word\n"));
    assert!(agent.wait().unwrap().success());

    (spec.program, spec.args) = ("/bin/sh".into(), vec!["-c".into(), "exit 7".into()]);
    assert_eq!(start(&spec).unwrap().wait().unwrap().code(), Some(7));
    spec.args = vec!["-c".into(), "kill -9 $$".into()];
    assert_eq!(start(&spec).unwrap().wait().unwrap().code(), Some(128 + 9));
    spec.scratch = f.base.join("none");
    assert!(matches!(start(&spec), Err(SpawnError::Scratch { .. })));
}

/// Whether the process leads a session of its own, which it may take a moment to do.
fn leads_a_session(pid: u32) -> bool {
    let own = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
    (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        rustix::process::getsid(own).ok() == own
    })
}

#[test]
fn an_agent_dies_with_its_parent() {
    let f = Field::new();
    let mut parent = Command::new(example("confine"))
        .arg("--scratch")
        .arg(&f.scratch)
        .arg("--")
        .arg(&f.probe)
        .arg("sleep")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let agent: u32 = line.split(' ').next().unwrap().parse().unwrap();
    assert!(alive(agent));
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(ends(agent), "it outlived its parent");
}

#[test]
fn an_agent_outlives_the_thread_that_started_it() {
    let f = Field::new();
    let mut agent = std::thread::scope(|scope| {
        scope.spawn(|| start(&f.spec(&["sleep"])).unwrap()).join().unwrap()
    });
    assert_eq!(
        agent.wait_timeout(Duration::from_millis(200)).unwrap(),
        None,
        "it died with a thread"
    );
    agent.kill();
    assert!(!agent.wait().unwrap().success());
}

#[test]
fn many_start_at_once() {
    let f = Field::new();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                assert_eq!(lines(&f.spec(&["fds", "leads"])), ["fds ok 3", "leads ok true"])
            });
        }
    });
}
