//! Links, pipes, sockets, devices, full disks and strange names. Each case shows first that the plain standard
//! library is led astray where it is, so that none passes by doing nothing.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use portcullis_sandbox::confined::{Fault, Kind, RelPath, Root};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::bench_dir::{Bench, fault, p, skip};

const CAP: u64 = 1 << 20;

/// Runs every verb on `path`; all must refuse, with this fault for those that look at the file itself.
#[track_caller]
fn all_refuse(b: &Bench, path: &str, expected: Fault) {
    let path = p(path);
    assert_eq!(fault(b.root.read(&path, CAP)), expected, "read");
    assert_eq!(fault(b.root.replace(&path, CAP, |_| true, b"x")), expected, "replace");
    assert_eq!(fault(b.root.remove_file(&path)), expected, "remove");
    assert_eq!(fault(b.root.remove_file_if(&path, CAP, |_| true)), expected, "remove_if");
    assert_eq!(fault(b.root.rename(&path, &p("moved"))), expected, "rename");
    b.assert_clean();
}

#[test]
fn a_link_at_the_end_is_refused_by_every_verb() {
    let b = Bench::new();
    symlink(b.outside.join("secret"), b.inside.join("l")).unwrap();
    assert_eq!(fs::read(b.inside.join("l")).unwrap(), b"outside", "control: the link works");
    all_refuse(&b, "l", Fault::Link);
    assert_eq!(fault(b.root.create(&p("l"), b"x")), Fault::Exists);
    symlink(b.outside.join("absent"), b.inside.join("dangling")).unwrap();
    assert_eq!(fault(b.root.create(&p("dangling"), b"x")), Fault::Exists);
    assert_eq!(fault(b.root.create_dir(&p("dangling"))), Fault::Exists);
    assert!(!b.outside.join("absent").exists());
    symlink("l", b.inside.join("inner")).unwrap();
    assert_eq!(fault(b.root.read(&p("inner"), CAP)), Fault::Link);
    assert_eq!(fs::read(b.outside.join("secret")).unwrap(), b"outside");
}

#[test]
fn a_link_on_the_way_is_refused_by_every_verb() {
    let b = Bench::new();
    symlink(&b.outside, b.inside.join("d")).unwrap();
    assert_eq!(fs::read(b.inside.join("d/secret")).unwrap(), b"outside", "control: the link works");
    all_refuse(&b, "d/secret", Fault::Link);
    assert_eq!(fault(b.root.create(&p("d/new"), b"x")), Fault::Link);
    assert_eq!(fault(b.root.create_dir(&p("d/new"))), Fault::Link);
    assert_eq!(fault(b.root.list(&p("d"), 10)), Fault::Link);
    assert_eq!(fault(b.root.remove_dir(&p("d"))), Fault::Link);
    fs::write(b.inside.join("own"), "x").unwrap();
    assert_eq!(fault(b.root.rename(&p("own"), &p("d/own"))), Fault::Link);
    assert_eq!(fs::read_dir(&b.outside).unwrap().count(), 1);
}

#[test]
fn the_links_of_proc_are_refused() {
    let root = Root::open("/proc/self".as_ref()).unwrap();
    assert!(fs::read_dir("/proc/self/root").is_ok(), "control: the link works");
    assert_eq!(fault(root.list(&p("root"), 10)), Fault::Link);
    assert_eq!(fault(root.list(&p("cwd"), 10)), Fault::Link);
}

#[test]
fn a_hard_link_to_a_file_outside_is_refused_by_every_verb() {
    let b = Bench::new();
    fs::hard_link(b.outside.join("secret"), b.inside.join("h")).unwrap();
    assert_eq!(fs::read(b.inside.join("h")).unwrap(), b"outside", "control: the link works");
    all_refuse(&b, "h", Fault::HardLinked);
    assert_eq!(b.root.stat(&p("h")).unwrap().links, 2);
    assert_eq!(fs::read(b.outside.join("secret")).unwrap(), b"outside");
}

#[test]
fn a_pipe_neither_hangs_nor_is_opened() {
    let b = Bench::new();
    mknodat(CWD, b.inside.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let (done, finished) = mpsc::channel();
    // Control: opening it in the ordinary way waits for a writer.
    let path = b.inside.join("fifo");
    let waiting = std::thread::spawn(move || {
        let bytes = fs::read(path);
        done.send(()).unwrap();
        bytes
    });
    assert!(
        finished.recv_timeout(Duration::from_millis(200)).is_err(),
        "control: a plain read waits"
    );
    all_refuse(&b, "fifo", Fault::NotRegular(Kind::Fifo));
    fs::write(b.inside.join("fifo"), "let go").unwrap();
    assert_eq!(
        waiting.join().unwrap().unwrap(),
        b"let go",
        "and nobody had taken anything from it"
    );
}

#[test]
fn a_socket_is_never_touched() {
    let b = Bench::new();
    let listener = UnixListener::bind(b.inside.join("sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    all_refuse(&b, "sock", Fault::NotRegular(Kind::Socket));
    assert!(listener.accept().is_err(), "nobody connected");
    assert_eq!(b.root.list(&RelPath::root(), 9).unwrap().entries[0].stat.kind, Kind::Socket);
}

#[test]
fn a_device_is_never_touched() {
    let b = Bench::new();
    let device = rustix::fs::makedev(1, 5);
    let made = mknodat(
        CWD,
        b.inside.join("zero"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        device,
    );
    if made.is_err() {
        return skip("making a device node needs root");
    }
    all_refuse(&b, "zero", Fault::NotRegular(Kind::Device));
}

#[test]
fn another_file_system_on_the_way_is_refused() {
    let root = Root::open("/".as_ref()).unwrap();
    assert!(fs::read("/proc/version").is_ok(), "control: it can be read");
    assert_eq!(fault(root.read(&p("proc/version"), CAP)), Fault::CrossDevice);
    assert_eq!(fault(root.list(&p("proc"), 10)), Fault::CrossDevice);
}

#[test]
fn strange_names_are_listed_and_never_made() {
    let b = Bench::new();
    let names: [&[u8]; 4] = [b"line\nbreak", b"\x1b[2J", b"\xff\xfe", "\u{202e}gpj".as_bytes()];
    for name in names {
        fs::write(b.inside.join(std::ffi::OsString::from_vec(name.to_vec())), "content").unwrap();
    }
    let listing = b.root.list(&RelPath::root(), 10).unwrap();
    assert_eq!(listing.entries.len(), 4);
    assert_eq!(listing.entries.iter().filter(|e| e.name_lossy().1).count(), 1);
    assert_eq!(b.root.read(&p("line\nbreak"), CAP).unwrap(), b"content");
    for name in ["new\nline", "esc\u{1b}", "bidi\u{202e}", "tab\t", "c1\u{9b}"] {
        let error = b.root.create(&p(name), b"").unwrap_err();
        assert_eq!(error.fault, Fault::BadName);
        assert!(!error.to_string().chars().any(|c| c.is_control() || c == '\u{202e}'), "{error}");
        assert_eq!(fault(b.root.create_dir(&p(name))), Fault::BadName);
        assert_eq!(fault(b.root.rename(&p("\u{1b}[2J"), &p(name))), Fault::BadName);
    }
    // Away from a bad name is allowed: it is how a person repairs one.
    b.root.rename(&p("\u{1b}[2J"), &p("good")).unwrap();
    assert_eq!(
        fault(b.root.create(&p(&"é".repeat(127)), b"x").and(b.root.read(&p("no"), 1))),
        Fault::NotFound
    );
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let b = Bench::new();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k,mode=0777", "portcullis-test"])
        .arg(&b.inside)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("mounting a small file system needs root");
    }
    let _unmount = Unmount(b.inside.clone());
    let root = Root::open(&b.inside).unwrap();
    root.create(&p("small"), b"fits").unwrap();
    let big = vec![1_u8; 512 * 1024];
    assert_eq!(fault(root.create(&p("big"), &big)), Fault::Full);
    assert_eq!(fault(root.replace(&p("small"), CAP, |_| true, &big)), Fault::Full);
    assert_eq!(root.read(&p("small"), CAP).unwrap(), b"fits");
    b.assert_clean();
    root.replace(&p("small"), CAP, |_| true, b"again").unwrap();
    assert_eq!(root.read(&p("small"), CAP).unwrap(), b"again");
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn special_permission_bits_do_not_survive_a_replacement() {
    let b = Bench::new();
    let path = b.inside.join("suid");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    b.root.replace(&p("suid"), CAP, |_| true, b"new").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
}
