//! What strangers put into a folder: links, second names, pipes, devices, odd names; and folders without rights.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;

use portcullis_canon::{Object, Value};
use portcullis_testkit::skip::skip;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::bench::{Bench, digest, names, nothing};

/// Every call that touches `path`, with a valid target for those that have one.
fn touching(path: &str) -> Vec<(&'static str, String)> {
    let expect = digest("outside");
    vec![
        ("files.read", format!(r#"{{"path":"{path}"}}"#)),
        ("files.replace", format!(r#"{{"path":"{path}","expect":"{expect}","content":"x"}}"#)),
        ("files.delete", format!(r#"{{"path":"{path}"}}"#)),
        ("files.delete", format!(r#"{{"path":"{path}","expect":"{expect}"}}"#)),
        ("files.move", format!(r#"{{"from":"{path}","to":"moved"}}"#)),
        ("files.create", format!(r#"{{"path":"{path}","content":"x"}}"#)),
    ]
}

#[test]
fn a_link_is_never_followed() {
    let bench = Bench::new();
    symlink(bench.outside.join("secret"), bench.inside.join("last")).unwrap();
    symlink(&bench.outside, bench.inside.join("way")).unwrap();
    symlink(bench.outside.join("new"), bench.inside.join("dangling")).unwrap();
    // Control: the links lead there.
    assert_eq!(bench.on_disk("way/secret"), b"outside");
    for path in ["last", "way/secret", "dangling"] {
        for (tool, arguments) in touching(path) {
            let said = bench.no(tool, &arguments);
            let link = said == format!("`{path}` is, or leads through, a symbolic link");
            let taken =
                tool == "files.create" && said.starts_with(&format!("`{path}` already exists"));
            assert!(link || taken, "{tool}: {said}");
        }
    }
    for tool in ["files.list", "files.search"] {
        let text = if tool == "files.search" { r#","text":"outside""# } else { "" };
        let said = bench.no(tool, &format!(r#"{{"path":"way"{text}}}"#));
        assert_eq!(said, "`way` is, or leads through, a symbolic link");
    }
    for (tool, arguments) in [
        ("files.make_folder", r#"{"path":"way/d"}"#),
        ("files.create", r#"{"path":"way/f","content":""}"#),
    ] {
        bench.no(tool, arguments);
    }
    let found = bench.ok("files.search", r#"{"text":"outside"}"#);
    assert_eq!(found.get("matches"), Some(&Value::Array(vec![])));
    assert_eq!(found.pointer("/skipped/not_plain"), Some(&Value::from(3_u64)));
    assert_eq!(fs::read(bench.outside.join("secret")).unwrap(), b"outside");
    assert_eq!(fs::read_dir(&bench.outside).unwrap().count(), 1);
}

#[test]
fn a_second_name_of_a_file_outside_gives_nothing_away() {
    let bench = Bench::new();
    fs::hard_link(bench.outside.join("secret"), bench.inside.join("twin")).unwrap();
    assert_eq!(bench.on_disk("twin"), b"outside");
    for (tool, arguments) in touching("twin") {
        let said = bench.no(tool, &arguments);
        assert!(
            said == "`twin` has more than one hard link" || tool == "files.create",
            "{tool}: {said}"
        );
    }
    let found = bench.ok("files.search", r#"{"text":"outside"}"#);
    assert_eq!(found.get("matches"), Some(&Value::Array(vec![])));
    let listed = bench.ok("files.list", "{}");
    assert_eq!(listed.pointer("/entries/0/hard_linked"), Some(&Value::from(true)));
    assert_eq!(fs::read(bench.outside.join("secret")).unwrap(), b"outside");
}

#[test]
fn pipes_sockets_and_devices_are_listed_and_left_alone() {
    let bench = Bench::new();
    let at = |name: &str| bench.inside.join(name);
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    let mut there = vec![("pipe", "fifo", "a named pipe"), ("socket", "socket", "a socket")];
    // /dev/zero: who reads it to its end never comes back.
    match mknodat(CWD, at("zero"), FileType::CharacterDevice, Mode::RWXU, makedev(1, 5)) {
        Ok(()) => there.push(("zero", "device", "a device")),
        Err(_) => skip("making a device needs root"),
    }
    let listed = bench.ok("files.list", "{}");
    for (index, (name, kind, said)) in there.iter().enumerate() {
        let entry = listed.pointer(&format!("/entries/{index}")).unwrap();
        assert_eq!(entry.get("name"), Some(&Value::from(*name)));
        assert_eq!(entry.get("kind"), Some(&Value::from(*kind)));
        for (tool, arguments) in touching(name) {
            let message = bench.no(tool, &arguments);
            let refused = message == format!("`{name}` is not a regular file but {said}");
            assert!(refused || tool == "files.create", "{tool}: {message}");
        }
    }
    let found = bench.ok("files.search", r#"{"text":"x"}"#);
    assert_eq!(found.pointer("/skipped/not_plain"), Some(&Value::from(there.len())));
}

#[test]
fn control_characters_are_named_but_not_made() {
    let bench = Bench::new();
    let name = "a\n\u{1b}[2J\u{202e}.txt";
    bench.put(name, "x\u{1b}[31m");
    assert_eq!(names(&bench.ok("files.list", "{}")), [name]);
    // Listed, it can be addressed, and brought into order.
    let call = |members: &[(&str, &str)]| members.iter().copied().collect::<Object>();
    let read = bench.unchecked("files.read", call(&[("path", name)])).unwrap();
    assert!(read.content.iter().all(|byte| *byte >= b' '));
    let said =
        nothing(bench.unchecked("files.delete", call(&[("path", name), ("expect", &digest(""))])));
    let escaped = "a\\n\\u{1b}[2J\\u{202e}.txt";
    assert_eq!(
        said,
        format!("`{escaped}` is not, or is no longer, what was expected; read it again")
    );
    for (tool, arguments) in [
        ("files.create", call(&[("path", "b\n"), ("content", "")])),
        ("files.create", call(&[("path", "b\u{202e}"), ("content", "")])),
        ("files.make_folder", call(&[("path", "b\u{1b}")])),
        ("files.move", call(&[("from", name), ("to", "b\u{7f}")])),
    ] {
        let said = nothing(bench.unchecked(tool, arguments));
        assert!(said.ends_with("is not a name that may be created"), "{tool}: {said}");
    }
    bench.unchecked("files.move", call(&[("from", name), ("to", "a.txt")])).unwrap();
    assert_eq!(names(&bench.ok("files.list", "{}")), ["a.txt"]);
}

#[test]
fn a_name_that_is_no_text_is_shown_and_marked() {
    let bench = Bench::new();
    fs::write(bench.inside.join(OsStr::from_bytes(b"a\xff.txt")), "needle").unwrap();
    let listed = bench.ok("files.list", "{}");
    let entry = listed.pointer("/entries/0").unwrap();
    assert_eq!(entry.get("name"), Some(&Value::from("a\\xff.txt")));
    assert_eq!(entry.get("unreadable_name"), Some(&Value::from(true)));
    let found = bench.ok("files.search", r#"{"text":"needle"}"#);
    assert_eq!(found.pointer("/skipped/unreadable"), Some(&Value::from(1_u64)));
    assert_eq!(bench.no("files.read", r#"{"path":"a\\xff.txt"}"#), "`a\\\\xff.txt` does not exist");
}

#[test]
fn the_longest_names_fit_into_one_listing() {
    let bench = Bench::new();
    for n in 0..1_000 {
        bench.put(&format!("{}{n:05}", "\u{1}".repeat(250)), "");
    }
    let output = bench.call("files.list", "{}").unwrap();
    assert!(output.content.len() > 1_000_000 && output.content.len() < 2 * 1024 * 1024);
    bench.put("d/controls", "\u{1}".repeat(1024 * 1024));
    let output = bench.call("files.read", r#"{"path":"d/controls"}"#).unwrap();
    assert!(output.content.len() > 6 * 1024 * 1024 && output.content.len() < 8 * 1024 * 1024);
}

const NOBODY: u32 = 65534;

#[test]
fn another_user_in_a_read_only_folder_changes_nothing_and_is_told() {
    if !geteuid().is_root() {
        return skip("becoming another user needs root");
    }
    let bench = Bench::new();
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(bench.inside.parent().unwrap(), 0o755);
    bench.put("a.txt", "kept");
    chown(bench.inside.join("a.txt"), Some(NOBODY), Some(NOBODY)).unwrap();
    open(&bench.inside, 0o555);
    let digest = digest("kept");
    let calls = [
        ("files.create", r#"{"path":"b","content":"x"}"#.to_owned()),
        ("files.replace", format!(r#"{{"path":"a.txt","expect":"{digest}","content":"x"}}"#)),
        ("files.move", r#"{"from":"a.txt","to":"b"}"#.to_owned()),
        ("files.make_folder", r#"{"path":"d"}"#.to_owned()),
        ("files.delete", r#"{"path":"a.txt"}"#.to_owned()),
    ];
    std::thread::scope(|scope| {
        let as_nobody = || {
            set_thread_groups(&[]).unwrap();
            let (gid, uid) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            bench.ok("files.read", r#"{"path":"a.txt"}"#);
            for (tool, arguments) in &calls {
                let said = bench.no(tool, arguments);
                assert!(
                    said.starts_with("the operating system denies access to `"),
                    "{tool}: {said}"
                );
            }
        };
        scope.spawn(as_nobody).join().unwrap();
    });
    // Control: with the right to write, the same calls succeed.
    open(&bench.inside, 0o755);
    for (tool, arguments) in calls.iter().take(2) {
        bench.ok(tool, arguments);
    }
}
