//! Folders in which people keep everything: never opened whole for the sake of one file in them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Folders of the whole machine that hold what belongs to many.
const SHARED: [&str; 14] = [
    "/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
    "/srv", "/sys", "/var",
];

/// Hidden folders of a home which in turn are shared by many programs.
const SHARED_AT_HOME: [&str; 3] = [".local/share", ".local/state", ".config"];

/// True for a folder that many keep things in: the top of the tree, its shared folders, folders that everybody may
/// write to such as `/tmp`, homes and what is above them, and the hidden folders of a home such as `~/.config`.
/// `home` is the operator's own, wherever it lies.
#[must_use]
pub fn is_catch_all(folder: &Path, home: Option<&Path>) -> bool {
    let folder = real(folder);
    let sticky = std::fs::metadata(&folder).is_ok_and(|meta| meta.mode() & 0o1000 != 0);
    if sticky || SHARED.iter().any(|shared| folder == Path::new(shared)) {
        return true;
    }
    if home.is_some_and(|home| real(home).starts_with(&folder)) {
        return true;
    }
    let Some(rest) = beneath_home(&folder, home) else { return false };
    let mut names = rest.components();
    match (names.next(), names.next()) {
        // A home itself.
        (None, _) => true,
        (Some(first), None) => first.as_os_str().as_encoded_bytes().starts_with(b"."),
        _ => SHARED_AT_HOME.iter().any(|shared| rest == Path::new(shared)),
    }
}

/// True for a folder in a home.
pub(super) fn is_at_home(folder: &Path, home: Option<&Path>) -> bool {
    beneath_home(&real(folder), home).is_some()
}

/// The path from the home that contains it, if one does.
fn beneath_home(folder: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let own = home.map(real);
    if let Some(rest) = own.and_then(|own| folder.strip_prefix(own).ok().map(Path::to_owned)) {
        return Some(rest);
    }
    if let Ok(rest) = folder.strip_prefix("/root") {
        return Some(rest.to_owned());
    }
    let mut names = folder.strip_prefix("/home").ok()?.components();
    names.next()?;
    Some(names.as_path().to_owned())
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_many_is_told_from_what_belongs_to_one() {
        let at =
            |path: &str, home: Option<&str>| is_catch_all(Path::new(path), home.map(Path::new));
        for shared in ["/", "/tmp", "/home", "/root", "/etc", "/var", "/home/someone", "/opt"] {
            assert!(at(shared, None), "{shared}");
        }
        for hidden in [".config", ".ssh", ".local", ".local/share", ".local/state"] {
            assert!(at(&format!("/home/someone/{hidden}"), None), "{hidden}");
            assert!(at(&format!("/data/me/{hidden}"), Some("/data/me")), "{hidden}");
        }
        for own in ["/usr/bin", "/home/someone/agent", "/root/.local/bin", "/opt/agent", "/data/me"]
        {
            assert!(!at(own, None), "{own}");
        }
        // The operator's home and what is above it, wherever it lies.
        for above in ["/data/me", "/data"] {
            assert!(at(above, Some("/data/me")), "{above}");
        }
        assert!(!at("/data/me/agent", Some("/data/me")) && !at("/data/other", Some("/data/me")));
    }
}
