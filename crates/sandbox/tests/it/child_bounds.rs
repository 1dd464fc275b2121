//! What a confined agent cannot reach. Every attempt works for the same agent unconfined.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;

use portcullis_sandbox::child::{Bounds, Confinement, Network, SpawnError, Stage};
use rustix::process::geteuid;

use crate::agents::{
    Bystander, Field, copy_program, example, lines, refused_only_when_confined, start,
};
use crate::bench_dir::skip;

#[test]
fn files_outside_the_allow_list_are_out_of_reach() {
    let f = Field::new();
    let other = f.base.join("other");
    fs::write(&other, "").unwrap();
    let reads = ["state/key", "other"].map(|path| format!("read:{}", f.base.join(path).display()));
    let rest = [
        format!("list:{}", f.base.join("state").display()),
        format!("write:{}", f.base.join("planted").display()),
        format!("truncate:{}", other.display()),
        "list:/".into(),
        "read:/proc/version".into(),
        "list:/tmp".into(),
    ];
    let attempts: Vec<_> = reads.iter().chain(&rest).map(String::as_str).collect();
    refused_only_when_confined(f.spec(&attempts));
    assert_eq!(fs::read(&f.key).unwrap(), b"secret", "the parent keeps its rights");
}

#[test]
fn permissions_of_files_of_the_same_user_stay() {
    // Landlock alone lets this happen, since nothing is opened.
    let f = Field::new();
    let attempts = [
        format!("chmod:{}", f.key.display()),
        format!("chown:{}", f.key.display()),
        format!("fchmod:{}", f.probe.display()),
    ];
    fs::set_permissions(&f.key, fs::Permissions::from_mode(0o600)).unwrap();
    let spec = f.spec(&attempts.each_ref().map(String::as_str));
    lines(&spec);
    assert_eq!(fs::metadata(&f.key).unwrap().permissions().mode() & 0o777, 0o600);
    refused_only_when_confined(spec);
    assert_eq!(fs::metadata(&f.key).unwrap().permissions().mode() & 0o777, 0o644, "control");
}

#[test]
fn other_processes_are_out_of_reach() {
    let f = Field::new();
    let bystander = Bystander::new();
    let pid = bystander.0.id();
    let attempts = [
        format!("signal:{pid}"),
        format!("trace:{pid}"),
        format!("limit:{pid}"),
        format!("read:/proc/{pid}/environ"),
        format!("read:/proc/{pid}/root/etc/passwd"),
        format!("read:/proc/{}/environ", std::process::id()),
        format!("signal:{}", std::process::id()),
    ];
    refused_only_when_confined(f.spec(&attempts.each_ref().map(String::as_str)));
}

#[test]
fn the_network_is_out_of_reach() {
    let f = Field::new();
    let tcp = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let path = f.base.join("agent/socket");
    let _unix = UnixListener::bind(&path).unwrap();
    let attempts = [format!("tcp:{port}"), "udp".into(), format!("unix:{}", path.display())];
    let mut spec = f.spec(&attempts.each_ref().map(String::as_str));
    refused_only_when_confined(spec.clone());

    spec.network = Network::Open;
    assert_eq!(lines(&spec), ["tcp ok", "udp ok", "unix PermissionDenied"]);
    let agent = start(&spec).unwrap();
    assert!(agent.confinement.fully_enforced && !agent.confinement.network_denied);
    // Pairs of sockets are how many programs talk to their own children.
    assert_eq!(lines(&f.spec(&["pair"])), ["pair ok"]);
}

#[test]
fn our_own_binary_is_out_of_reach_and_its_neighbours_are_not() {
    let f = Field::new();
    let bin = f.base.join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["portcullis", "neighbour"] {
        copy_program("/bin/true".as_ref(), &bin.join(name));
    }
    let attempts =
        ["exec", "read"].map(|verb| format!("{verb}:{}", bin.join("portcullis").display()));
    let mut spec = f.spec(&attempts.each_ref().map(String::as_str));
    spec.readable = vec![bin.clone()];
    spec.forbidden.push(bin.join("portcullis"));
    refused_only_when_confined(spec.clone());
    spec.args = vec![format!("exec:{}", bin.join("neighbour").display()).into()];
    assert_eq!(lines(&spec), ["exec ok"]);
}

#[test]
fn the_helper_itself_is_out_of_reach() {
    let f = Field::new();
    let helper = example("confine");
    let mut spec = f.spec(&[&format!("read:{}", helper.display())]);
    spec.readable = vec![helper.parent().unwrap().to_owned()];
    refused_only_when_confined(spec);
}

#[test]
fn what_was_written_is_not_run() {
    let f = Field::new();
    let planted = f.scratch.join("planted");
    copy_program("/bin/true".as_ref(), &planted);
    refused_only_when_confined(f.spec(&[&format!("exec:{}", planted.display())]));
}

#[test]
fn root_without_its_powers_mounts_nothing() {
    if !geteuid().is_root() {
        return skip("only root has powers to lose");
    }
    let f = Field::new();
    assert_eq!(lines(&f.spec(&["caps"])), ["caps ok 0"]);
    let mut spec = f.spec(&["caps"]);
    spec.confined = false;
    assert_ne!(lines(&spec), ["caps ok 0"], "control");
}

#[test]
fn what_an_agent_needs_works() {
    let f = Field::new();
    let note = f.scratch.join("note");
    let attempts = [
        format!("write:{}", note.display()),
        format!("read:{}", note.display()),
        format!("list:{}", f.scratch.display()),
        format!("read:{}", f.probe.display()),
        "read:/dev/urandom".into(),
        "write:/dev/null".into(),
        "read:/etc/passwd".into(),
        "exec:/bin/true".into(),
    ];
    for line in lines(&f.spec(&attempts.each_ref().map(String::as_str))) {
        assert_eq!(line.split(' ').nth(1), Some("ok"), "{line}");
    }
    assert_eq!(fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_child_reports_what_it_found() {
    let f = Field::new();
    let agent = start(&f.spec(&["sleep"])).unwrap();
    let found = agent.confinement;
    assert!(found.landlock_abi >= 3 && found.network_denied, "{found:?}");
    if found.landlock_abi < 6 {
        skip("this kernel does not scope signals");
    } else {
        assert!(found.fully_enforced && found.signals_scoped, "{found:?}");
    }
    let mut spec = f.spec(&["sleep"]);
    spec.confined = false;
    assert_eq!(start(&spec).unwrap().confinement, Confinement::default());
}

#[test]
fn without_landlock_nothing_of_the_program_runs() {
    let f = Field::new();
    let planted = f.scratch.join("ran");
    let confine = |more: &str| {
        format!(
            "without-landlock:{} --scratch {} {more} -- {} write:{}",
            example("confine").display(),
            f.scratch.display(),
            f.probe.display(),
            planted.display()
        )
    };
    let out = Command::new(&f.probe).arg(confine("")).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && stderr.contains("failed applying Landlock"), "{stderr}");
    assert!(!planted.exists());
    // Control: where it was said explicitly, the same program runs.
    assert!(Command::new(&f.probe).arg(confine("--unconfined")).output().unwrap().status.success());
    assert!(planted.exists());
}

#[test]
fn an_older_landlock_is_enough_or_nothing_is_started() {
    let f = Field::new();
    let planted = f.scratch.join("ran");
    let run = |version: u32| {
        let confine = format!(
            "old-landlock:{version} {} --scratch {} -- {} write:{} read:{}",
            example("confine").display(),
            f.scratch.display(),
            f.probe.display(),
            planted.display(),
            f.key.display(),
        );
        let out = Command::new(&f.probe).arg(confine).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(out.stdout), text(out.stderr))
    };
    // Linux 6.1 cannot keep a file from being truncated: the program never runs.
    let (told, errors) = run(2);
    if told.contains("PermissionDenied") || told.contains("InvalidInput") {
        return skip("the answers of the kernel cannot be replaced here");
    }
    assert!(errors.contains("failed applying Landlock") && !planted.exists(), "{told}{errors}");
    // Linux 6.2 keeps files; what it lacks is said.
    let (told, errors) = run(3);
    assert!(told.contains("landlock_abi: 3, fully_enforced: false"), "{told}{errors}");
    assert!(told.contains("network_denied: true, signals_scoped: false"), "{told}{errors}");
    assert!(told.contains("write ok\nread PermissionDenied\n"), "{told}{errors}");
    // Control: the version of this kernel.
    let (told, _) = run(6);
    assert!(told.contains("landlock_abi: 6, fully_enforced: true"), "{told}");
}

#[test]
fn a_confined_agent_cannot_use_up_memory_or_write_without_end() {
    let f = Field::new();
    let mut spec = f.spec(&["bounds"]);
    let usual = Bounds::default();
    let expected =
        [usual.memory, usual.memory * 4, usual.file_size, usual.processes, usual.open_files];
    let expected = expected.map(|bound| bound.to_string()).join(" ");
    assert_eq!(lines(&spec), [format!("bounds ok {expected}")]);

    spec.bounds.memory = 64 << 20;
    spec.bounds.file_size = 1 << 20;
    spec.args = ["grow:33554432", "fill:1048576", "grow:134217728"].map(Into::into).to_vec();
    assert_eq!(lines(&spec), ["grow ok 33554432", "fill ok", "grow OutOfMemory"]);
    spec.args = vec!["fill:1048577".into()];
    let mut agent = start(&spec).unwrap();
    // The kernel ends a program that goes on writing.
    assert!(!agent.wait().unwrap().success());
    assert_eq!(fs::metadata(f.scratch.join("filled")).unwrap().len(), 0);

    spec.confined = false;
    spec.args = ["grow:134217728", "fill:1048577"].map(Into::into).to_vec();
    assert_eq!(lines(&spec), ["grow ok 134217728", "fill ok"], "control");
}

#[test]
fn another_user_starts_only_so_many_processes() {
    let f = Field::new();
    for path in [&f.base, &f.base.join("agent"), &f.probe] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&f.scratch, fs::Permissions::from_mode(0o777)).unwrap();
    let confine = f.base.join("confine");
    copy_program(&example("confine"), &confine);
    let run = |processes: &str| {
        Command::new("setpriv")
            .args(["--reuid=65533", "--regid=65533", "--clear-groups", "--"])
            .arg(&confine)
            .args(["--processes", processes, "--scratch"])
            .arg(&f.scratch)
            .arg("--")
            .arg(&f.probe)
            .arg("exec:/bin/true")
            .current_dir("/")
            .output()
    };
    let Some(held) = run("1").ok().filter(|_| geteuid().is_root()) else {
        return skip("becoming another user needs root and setpriv");
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(text(&held.stdout).ends_with("exec WouldBlock\n"), "{held:?}");
    let control = run("1000").unwrap();
    assert!(text(&control.stdout).ends_with("exec ok\n"), "{control:?}");
}

#[test]
fn a_helper_whose_file_was_replaced_still_starts_the_agent() {
    let f = Field::new();
    let confine = f.base.join("confine");
    copy_program(&example("confine"), &confine);
    let out = Command::new(&confine)
        .args(["--gone", "--scratch"])
        .arg(&f.scratch)
        .arg("--")
        .args([f.probe.display().to_string(), "nnp".into(), format!("read:{}", f.key.display())])
        .output()
        .unwrap();
    assert!(!confine.exists(), "control: it is gone");
    let told = String::from_utf8_lossy(&out.stdout);
    assert!(told.ends_with("nnp ok true\nread PermissionDenied\n"), "{out:?}");
}

#[test]
fn what_cannot_be_kept_out_of_reach_refuses_the_start() {
    let f = Field::new();
    let planted = format!("write:{}", f.scratch.join("ran").display());
    let spec = f.spec(&[&planted]);

    let mut readable = spec.clone();
    readable.readable = vec![f.base.join("state")];
    assert!(matches!(start(&readable), Err(SpawnError::Forbidden { .. })));
    let mut program = spec.clone();
    program.forbidden = vec![f.base.join("agent")];
    assert!(matches!(start(&program), Err(SpawnError::Forbidden { .. })));
    let mut scratch = spec.clone();
    scratch.forbidden = vec![f.scratch.join("state")];
    assert!(matches!(start(&scratch), Err(SpawnError::Scratch { forbidden: Some(_), .. })));
    let mut missing = spec.clone();
    missing.scratch = f.base.join("none");
    assert!(matches!(start(&missing), Err(SpawnError::Scratch { forbidden: None, .. })));
    assert!(!f.scratch.join("ran").exists());
    assert_eq!(lines(&spec), ["write ok"], "control");
}

#[test]
fn a_program_that_cannot_start_is_named() {
    let f = Field::new();
    let mut spec = f.spec(&[]);
    spec.program = "no-such-agent".into();
    let error = start(&spec).unwrap_err();
    assert_eq!(error.to_string(), "there is no program \"no-such-agent\"");

    let broken = f.base.join("agent/broken");
    fs::write(&broken, "\0\0 no program").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    spec.program = broken.clone().into();
    match start(&spec) {
        Err(SpawnError::Exec { program, errno }) => {
            assert_eq!((program, errno), (broken, libc::ENOEXEC))
        }
        other => panic!("{other:?}"),
    }
    // One that only the system finds broken: no shell reads it, not even its confined line.
    let elf = f.base.join("agent/elf");
    let planted = f.scratch.join("ran");
    fs::write(&elf, format!("\x7fELF\necho ran > {}\n", planted.display())).unwrap();
    fs::set_permissions(&elf, fs::Permissions::from_mode(0o755)).unwrap();
    spec.program = elf.clone().into();
    match start(&spec) {
        Err(SpawnError::Exec { program, errno }) => {
            assert_eq!((program, errno), (elf, libc::ENOEXEC))
        }
        other => panic!("{other:?}"),
    }
    assert!(!planted.exists());
    let mut zero = f.spec(&["a\0b"]);
    assert!(matches!(start(&zero), Err(SpawnError::Arguments)));
    zero.args = vec!["x".repeat(3 << 20).into()];
    assert!(matches!(start(&zero), Err(SpawnError::Arguments)));
    zero.args.clear();
    zero.env = vec![("A=B".into(), "".into())];
    assert!(matches!(start(&zero), Err(SpawnError::Arguments)));
}

#[test]
fn a_helper_that_is_none_is_an_error_and_no_hang() {
    let f = Field::new();
    let error = portcullis_sandbox::child::spawn(&f.spec(&[]), "/bin/true".as_ref()).unwrap_err();
    assert!(matches!(error, SpawnError::Helper(_)), "{error}");
    let error =
        portcullis_sandbox::child::spawn(&f.spec(&[]), "/no/such/helper".as_ref()).unwrap_err();
    assert!(matches!(error, SpawnError::Helper(_)), "{error}");
}

#[test]
fn another_user_is_confined_the_same() {
    let f = Field::new();
    for path in [&f.base, &f.base.join("state"), &f.base.join("agent"), &f.probe] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&f.scratch, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&f.key, fs::Permissions::from_mode(0o644)).unwrap();
    let confine = f.base.join("confine");
    copy_program(&example("confine"), &confine);
    let run = |more: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&confine)
            .arg("--scratch")
            .arg(&f.scratch)
            .arg("--forbid")
            .arg(f.base.join("state"))
            .args(more)
            .arg("--")
            .arg(&f.probe)
            .arg(format!("read:{}", f.key.display()))
            .arg(format!("write:{}", f.scratch.join("x").display()))
            .current_dir("/")
            .output()
    };
    let Some(confined) = run(&[]).ok().filter(|_| geteuid().is_root()) else {
        return skip("becoming another user needs root and setpriv");
    };
    let text = String::from_utf8_lossy(&confined.stdout).into_owned();
    assert!(text.ends_with("read PermissionDenied\nwrite ok\n"), "{text}{confined:?}");
    let control = run(&["--unconfined"]).unwrap();
    assert!(
        String::from_utf8_lossy(&control.stdout).ends_with("read ok\nwrite ok\n"),
        "{control:?}"
    );
}

#[test]
fn python_runs_confined() {
    let f = Field::new();
    let script = f.base.join("agent/tidy.py");
    fs::write(
        &script,
        format!(
            "import json, sys, os, tempfile, subprocess\n\
             open('note', 'w').write('x')\n\
             try:\n    open({:?})\nexcept PermissionError:\n    print(json.dumps(sys.stdin.readline().strip()))\n",
            f.key.display().to_string()
        ),
    )
    .unwrap();
    let mut spec = f.spec(&[script.to_str().unwrap()]);
    spec.program = "python3".into();
    spec.readable = vec![f.base.join("agent")];
    // Both the system's interpreter and the one of this environment, if there are two.
    for path in [spec.search_path.clone(), std::env::var_os("PATH").unwrap_or_default()] {
        spec.search_path = path;
        let mut agent = match start(&spec) {
            Err(SpawnError::ProgramNotFound { .. }) => {
                skip("there is no python3 here");
                continue;
            }
            other => other.unwrap(),
        };
        use std::io::{Read, Write};
        agent.stdin.take().unwrap().write_all(b"hello\n").unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        agent.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        agent.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((out.as_str(), err.as_str()), ("\"hello\"\n", ""));
        assert!(agent.wait().unwrap().success());
    }
}

#[test]
fn every_stage_has_a_sentence() {
    assert_eq!(
        SpawnError::NotEnforced { stage: Stage::Landlock, errno: 38 }.to_string(),
        "this machine cannot confine the agent: it failed applying Landlock (system error 38)"
    );
}
