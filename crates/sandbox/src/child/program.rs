//! Which file a program's name means, and which folders that program needs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::catch_all::{is_at_home, is_catch_all};

/// The longest `#!` line that Linux reads.
const MAX_INTERPRETER_LINE: u64 = 256;
/// What an installation prefix holds beside `bin`, for programs that look for it there.
const PREFIX_PARTS: [&str; 4] = ["lib", "lib64", "libexec", "pyvenv.cfg"];
/// What it holds too, and what in a home would be everybody's data (`~/.local/share`).
const SYSTEM_PARTS: [&str; 2] = ["share", "include"];

/// A program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Absolute, as it is to be started; may be a link, since interpreters look at their own name.
    pub(super) path: PathBuf,
    /// What must be readable for it, as far as it exists.
    pub(super) needs: Vec<PathBuf>,
}

/// Finds the program, and the interpreter that its first line names.
pub(super) fn resolve(name: &OsStr, search_path: &OsStr, home: Option<&Path>) -> Option<Program> {
    let path = find(name, search_path)?;
    let mut needs = needs_of(&path, home);
    if let Some(interpreter) = interpreter(&path, search_path) {
        needs.extend(needs_of(&interpreter, home));
    }
    Some(Program { path, needs })
}

/// The file that is started by this name: a path with a slash as it stands, else the first program of this name in the
/// folders of `search_path`, which are separated by colons.
#[must_use]
pub fn find(name: &OsStr, search_path: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = std::path::absolute(name).ok()?;
        return is_program(&path).then_some(path);
    }
    if name.is_empty() {
        return None;
    }
    std::env::split_paths(search_path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| is_program(path))
        .and_then(|path| behind_shim(&path).or(Some(path)))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Version switchers put a script in `shims` that looks around the machine for the real program. Here the
/// switcher's own `version` file is read instead, so that the child need not look around.
fn behind_shim(path: &Path) -> Option<PathBuf> {
    let dir = path.parent()?;
    if dir.file_name()? != "shims" {
        return None;
    }
    let switcher = dir.parent()?;
    let versions = first_bytes(&switcher.join("version"))?;
    String::from_utf8(versions)
        .ok()?
        .split_whitespace()
        .filter(|version| !version.contains('/') && *version != "..")
        .map(|version| {
            switcher
                .join("versions")
                .join(version)
                .join("bin")
                .join(path.file_name().unwrap_or_default())
        })
        .find(|path| is_program(path))
}

/// The program that the first line names, `env` seen through.
fn interpreter(path: &Path, search_path: &OsStr) -> Option<PathBuf> {
    let head = first_bytes(path)?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let mut words =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let first = Path::new(words.next()?);
    if first.file_name()? != "env" {
        return first.is_absolute().then(|| first.to_owned());
    }
    let name = words
        .find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='))?;
    find(name, search_path)
}

/// False of a file that is neither a binary nor names its interpreter. The C library would hand such a file to a
/// shell, which then reads whatever it is as commands. One that may be run but not read is left to the kernel.
pub(super) fn has_known_form(path: &Path) -> bool {
    first_bytes(path).is_none_or(|head| head.starts_with(b"\x7fELF") || head.starts_with(b"#!"))
}

fn first_bytes(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_INTERPRETER_LINE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The file's own folder, under its own name and under the name behind a link, and the parts of an installation
/// prefix; of a place that everybody or one person keeps everything in, the file alone.
fn needs_of(path: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut needs = Vec::new();
    for path in [Some(path.to_owned()), std::fs::canonicalize(path).ok()].into_iter().flatten() {
        let Some(dir) = path.parent() else { continue };
        if is_catch_all(dir, home) {
            needs.push(path);
            continue;
        }
        needs.push(dir.to_owned());
        let is_bin = dir.file_name().is_some_and(|name| name == "bin" || name == "sbin");
        if let (true, Some(prefix)) = (is_bin, dir.parent()) {
            let at_home = is_at_home(dir, home);
            let parts = PREFIX_PARTS.iter().chain(SYSTEM_PARTS.iter().filter(|_| !at_home));
            needs.extend(parts.map(|part| prefix.join(part)).filter(|part| part.exists()));
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
    use super::*;
    use std::fs;

    fn program(path: &Path, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_name_is_looked_for_in_order_and_only_among_programs() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        program(&two.join("tool"), "");
        fs::create_dir(&one).unwrap();
        fs::write(one.join("tool"), "no program").unwrap();
        let search = std::env::join_paths([&one, &two]).unwrap();
        assert_eq!(resolve("tool".as_ref(), &search, None).unwrap().path, two.join("tool"));
        assert_eq!(resolve("none".as_ref(), &search, None), None);
        assert_eq!(resolve("".as_ref(), &search, None), None);
        assert_eq!(resolve(one.join("tool").as_ref(), &search, None), None);
    }

    #[test]
    fn a_switchers_shim_leads_to_the_program_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        program(&root.join("shims/python3"), "#!/bin/sh\n");
        program(&root.join("versions/3.9/bin/python3"), "");
        fs::create_dir(root.join("versions/3.9/lib")).unwrap();
        fs::write(root.join("version"), "gone\n3.9\n").unwrap();
        let found = resolve("python3".as_ref(), root.join("shims").as_ref(), None).unwrap();
        assert_eq!(found.path, root.join("versions/3.9/bin/python3"));
        assert!(found.needs.contains(&root.join("versions/3.9/lib")), "{found:?}");
        assert!(!found.needs.contains(&root.to_owned()));
    }

    #[test]
    fn the_interpreter_of_a_script_is_needed_too() {
        let folder = tempfile::tempdir().unwrap();
        let (bin, script) = (folder.path().join("x/bin"), folder.path().join("agent/run"));
        program(&bin.join("speak"), "");
        program(&script, "#!/usr/bin/env -S speak --fast\n");
        let found = resolve(script.as_ref(), bin.as_ref(), None).unwrap();
        assert_eq!(found.path, script);
        assert!(found.needs.contains(&bin) && found.needs.contains(&folder.path().join("agent")));
    }

    #[test]
    fn of_a_program_in_a_home_neither_share_nor_include_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let prefix = home.join(".local");
        program(&prefix.join("bin/agent"), "");
        for part in ["lib", "share", "include"] {
            fs::create_dir(prefix.join(part)).unwrap();
        }
        let agent = prefix.join("bin/agent");
        let needs = |home| {
            let mut needs = resolve(agent.as_ref(), "".as_ref(), home).unwrap().needs;
            needs.sort();
            needs.dedup();
            needs
        };
        assert_eq!(needs(Some(&home)), [prefix.join("bin"), prefix.join("lib")]);
        let all = ["bin", "include", "lib", "share"].map(|part| prefix.join(part));
        assert_eq!(needs(None), all, "control: a prefix of the system");
        // Of a folder in which other programs keep their settings, the file alone.
        program(&home.join(".config/agent"), "");
        let found = resolve(home.join(".config/agent").as_ref(), "".as_ref(), Some(&home)).unwrap();
        assert!(found.needs.iter().all(|need| *need == home.join(".config/agent")), "{found:?}");
    }
}
