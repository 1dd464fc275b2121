//! Who a process is, and proof of death.

use std::process::{Command, Stdio};

use portcullis_domain::lease::ProcessIdentity;
use portcullis_domain::ports::Processes;
use portcullis_sandbox::identity::LinuxProcesses;

fn identity_of(pid: u32, like: &ProcessIdentity) -> ProcessIdentity {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    ProcessIdentity { pid, start_ticks: start, ..like.clone() }
}

#[test]
fn this_process_is_itself_and_alive() {
    let processes = LinuxProcesses::new().unwrap();
    let me = processes.current();
    assert_eq!(me, LinuxProcesses::new().unwrap().current());
    assert_eq!(me, identity_of(std::process::id(), &me));
    assert_eq!(me.boot_id.len(), 36);
    assert!(!processes.is_dead(&me));
}

#[test]
fn death_needs_proof() {
    let processes = LinuxProcesses::new().unwrap();
    let me = processes.current();
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let other = identity_of(child.id(), &me);
    assert!(!processes.is_dead(&other), "alive");
    // The same number with another start is another process: ours is gone.
    assert!(
        processes.is_dead(&ProcessIdentity { start_ticks: other.start_ticks - 1, ..other.clone() })
    );

    drop(child.stdin.take());
    let id = rustix::process::Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
    assert!(processes.is_dead(&other), "ended, not collected");
    child.wait().unwrap();
    assert!(processes.is_dead(&other), "gone");

    // The same dead process, seen from another boot or namespace, proves nothing.
    assert!(!processes.is_dead(&ProcessIdentity { boot_id: "other".into(), ..other.clone() }));
    assert!(!processes.is_dead(&ProcessIdentity { pid_namespace: 1, ..other.clone() }));
    for pid in [0, u32::MAX] {
        assert!(!processes.is_dead(&ProcessIdentity { pid, ..other.clone() }));
    }
}

#[test]
fn another_users_process_is_not_taken_for_dead() {
    let processes = LinuxProcesses::new().unwrap();
    assert!(!processes.is_dead(&identity_of(1, &processes.current())));
}
