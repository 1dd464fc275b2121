//! Whether a server is told where our own files lie.
//!
//! Files are compared by which file they are, not by name, so that links, spellings and bind mounts are seen through.
//! It is a check of what the operator wrote, not a boundary: a program finds a file without being told.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use portcullis_canon::sanitize;
use portcullis_sandbox::child::Place;

use super::server::StdioServer;

/// The most readings of one text that are looked up; a text with more is refused.
const MAX_READINGS: usize = 4_096;

/// How much of a text goes into a sentence.
const QUOTED_BYTES: usize = 120;

/// What parts a path from what stands around it: of lists, options, mounts, shell lines and JSON.
const BETWEEN: &[u8] = b" \t\n\r\"'`=:,;|&()<>{}[]";

/// Looks at every argument and every named variable. The error is a sentence.
pub(super) fn check(server: &StdioServer, home: &Path) -> Result<(), String> {
    let ours = server.ours.iter().map(|path| Place::of(path).map_err(|error| (path, error)));
    let ours: Vec<Place> = ours.collect::<Result<_, _>>().map_err(|(path, error)| {
        format!("cannot look at {}: {error}", sanitize::line_bytes(path.as_os_str().as_bytes()))
    })?;
    let values = server.env.iter().map(|(_, value)| value);
    for text in std::iter::once(&server.program).chain(&server.args).chain(values) {
        let readings = readings(text, server.operators_home.as_deref());
        let Some(readings) = readings else {
            return Err(format!("`{}` is too long to look for our own files in it", quote(text)));
        };
        for reading in readings {
            if let Some(found) = names(&home.join(reading), &ours) {
                let found = sanitize::line_bytes(found.as_os_str().as_bytes());
                return Err(format!(
                    "`{}` names {found}, or a folder that it lies in: a server is not told where our own files are",
                    quote(text)
                ));
            }
        }
    }
    Ok(())
}

/// Which of our files `path` is, or contains.
fn names<'a>(path: &Path, ours: &'a [Place]) -> Option<&'a Path> {
    // What cannot be looked at cannot be opened under this name either.
    let place = Place::of(path).ok()?;
    ours.iter().map(Place::path).find(|own| place.covers(own))
}

/// Every path that a text may mean; `None` when there are too many.
fn readings(text: &OsStr, home: Option<&Path>) -> Option<Vec<PathBuf>> {
    let text = text.as_bytes();
    let mut parts = vec![text];
    parts.extend(text.split(|byte| BETWEEN.contains(byte)));
    // After an option's `=`, or a prefix and its `:`, the rest may be a path that holds such signs itself.
    for sign in [b'=', b':'] {
        if let Some(at) = text.iter().position(|byte| *byte == sign) {
            parts.push(text.get(at.saturating_add(1)..).unwrap_or_default());
        }
    }
    if parts.len() > MAX_READINGS {
        return None;
    }
    let mut paths = Vec::new();
    for part in parts {
        paths.extend(paths_of(part, home));
        // The value of a short option may follow its letter at once.
        if let [b'-', letter, rest @ ..] = part
            && letter.is_ascii_alphanumeric()
        {
            paths.extend(paths_of(rest, home));
        }
    }
    Some(paths)
}

/// The paths that one part may mean: as it stands, with its escapes read, and with the home that it begins with.
fn paths_of(part: &[u8], home: Option<&Path>) -> Vec<PathBuf> {
    let part = part.strip_prefix(b"file:").unwrap_or(part);
    // `//host/path` and `///path`: a host is not looked at. Two strokes alone are the middle of some address.
    let part = match part.strip_prefix(b"//") {
        Some(rest) => match rest.iter().position(|byte| *byte == b'/') {
            Some(at) => rest.get(at..).unwrap_or_default(),
            None => return Vec::new(),
        },
        None => part,
    };
    let mut paths = Vec::new();
    for text in [Some(part.to_vec()), decoded(part)].into_iter().flatten() {
        if text.is_empty() {
            continue;
        }
        if let (Some(home), Some(rest)) = (home, text.strip_prefix(b"~")) {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            paths.push(home.join(OsStr::from_bytes(rest)));
        }
        paths.push(PathBuf::from(OsString::from_vec(text)));
    }
    paths
}

/// The text with its percent escapes read; `None` when it has none.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut rest, mut found) = (text, false);
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.filter(|two| !two.starts_with('+'));
        let byte = byte.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
                found = true;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    found.then_some(out)
}

fn quote(text: &OsStr) -> String {
    sanitize::clip(&sanitize::line_bytes(text.as_bytes()), QUOTED_BYTES)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::room::furnish;
    use super::*;

    struct Scene {
        _folder: tempfile::TempDir,
        base: PathBuf,
        server: StdioServer,
        home: PathBuf,
    }

    fn scene() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for dir in ["state/deep", "elsewhere", "room"] {
            std::fs::create_dir_all(base.join(dir)).unwrap();
        }
        std::fs::set_permissions(base.join("room"), std::fs::Permissions::from_mode(0o700))
            .unwrap();
        for file in ["state/db", "state/my db", "elsewhere/notes"] {
            std::fs::write(base.join(file), "x").unwrap();
        }
        let mut server = StdioServer::new("server", base.join("room"));
        server.ours = ["state/db", "state/my db", "state/deep/later"].map(|p| base.join(p)).into();
        server.operators_home = Some(base.clone());
        let (home, _) = furnish(&server.room).unwrap();
        Scene { _folder: folder, base, server, home }
    }

    fn refuses(s: &Scene, argument: &str) -> bool {
        let mut server = s.server.clone();
        server.args =
            vec!["--verbose".into(), argument.replace("BASE", s.base.to_str().unwrap()).into()];
        check(&server, &s.home).is_err()
    }

    #[test]
    fn an_argument_that_names_our_files_is_refused_however_it_is_written() {
        let s = scene();
        symlink(s.base.join("state"), s.base.join("alias")).unwrap();
        std::fs::hard_link(s.base.join("state/db"), s.base.join("elsewhere/hard")).unwrap();
        for argument in [
            "BASE/state/db",
            "BASE/state",
            "BASE",
            "/",
            "--root=/",
            "BASE/elsewhere/../state/db",
            "BASE/alias/db",
            "BASE/alias",
            "BASE/elsewhere/hard",
            "--db=BASE/state/db",
            "db:BASE/state/db",
            "-dBASE/state/db",
            "src=BASE/state,dst=/x",
            "BASE/state:/mnt:ro",
            "file://BASE/state/db",
            "--db=file://localhostBASE/state/db",
            "file://BASE/state/my%20db",
            "--db=BASE/state/my db",
            "~/state/db",
            "--db=~/state",
            "../../state/db",
            "../..",
            "cat BASE/state/db | wc",
            "{\"path\": \"BASE/state\"}",
            "BASE/state/deep/later",
            "BASE/state/deep",
        ] {
            assert!(refuses(&s, argument), "{argument}");
        }
    }

    #[test]
    fn control_what_names_something_else_is_let_through() {
        let s = scene();
        for argument in [
            "BASE/elsewhere",
            "BASE/elsewhere/notes",
            "--root=BASE/elsewhere",
            "BASE/room",
            ".",
            "",
            "-",
            "-v",
            "https://example.org/state/db",
            "redis://",
            "state/db",
            "BASE/state/db2",
            "BASE/state/deep/later/than/that",
            "a=b:c,d",
        ] {
            assert!(!refuses(&s, argument), "{argument}");
        }
    }

    #[test]
    fn variables_and_the_program_are_looked_at_too() {
        let s = scene();
        let mut server = s.server.clone();
        server.env = vec![("DATA".into(), s.base.join("state").into())];
        assert!(check(&server, &s.home).unwrap_err().contains("names"), "variable");
        let mut server = s.server.clone();
        server.program = s.base.join("state/db").into();
        assert!(check(&server, &s.home).is_err(), "program");
        assert!(check(&s.server, &s.home).is_ok(), "control");
    }

    #[test]
    fn a_text_of_too_many_parts_is_refused() {
        let s = scene();
        assert!(refuses(&s, &"a,".repeat(MAX_READINGS)));
        assert!(!refuses(&s, &"a,".repeat(100)), "control");
    }
}
