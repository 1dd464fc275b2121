//! Traces of one machine: its folders, its build caches, a registry that only it can reach.

use std::env;
use std::fs;
use std::path::Path;

use super::SourceFile;

/// The registry that a lock file may name, and nothing else.
const REGISTRY: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// What is a trace on any machine.
const ALWAYS: &[&str] =
    &["/.cargo/registry/src/", "/.cargo/git/checkouts/", "/.rustup/toolchains/"];

/// Folders that everyone has: what lies in them is no trace.
const SHARED_FOLDERS: &[&str] =
    &["/", "/tmp", "/var/tmp", "/home", "/root", "/usr", "/opt", "/srv", "/mnt"];

/// The absolute folders that must not appear: the checkout, what lies beside it, and cargo's home.
///
/// They are read from the machine that checks, so that the repository need not name any.
pub(super) fn places(root: &Path) -> Vec<String> {
    let mut places = vec![root.to_path_buf()];
    if let Some(parent) = root.parent()
        && !SHARED_FOLDERS.iter().any(|shared| Path::new(shared) == parent)
    {
        let beside = fs::read_dir(parent).into_iter().flatten().flatten();
        places.extend(beside.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    places.extend(env::var_os("CARGO_HOME").map(Into::into));
    let mut texts: Vec<String> = places
        .into_iter()
        // A checkout at `/app` or `/src` would make every example path a trace.
        .filter(|place: &std::path::PathBuf| place.components().count() > 2)
        .map(|place| place.to_string_lossy().into_owned())
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Finds the places, and registry settings and sources that are not the public one.
pub(super) fn check(places: &[String], files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let lock = file.path.ends_with("Cargo.lock");
        let cargo_settings = file.path.contains(".cargo/config");
        // The list of traces itself stands in this file.
        let own = file.path == "xtask/src/tidy/leaks.rs";
        for (at, line) in file.text.lines().enumerate() {
            let place = places.iter().map(String::as_str).find(|place| names(line, place));
            let always = ALWAYS.iter().copied().find(|trace| !own && line.contains(trace));
            if let Some(trace) = place.or(always) {
                findings.push(format!(
                    "{}:{}: names a folder of one machine: {trace}",
                    file.path,
                    at + 1
                ));
            }
            if lock && line.starts_with("source = ") && !line.contains(REGISTRY) {
                findings.push(format!(
                    "{}:{}: a source that is not the public registry",
                    file.path,
                    at + 1
                ));
            }
            let setting = line.trim_start();
            if cargo_settings
                && ["[source", "[registr", "replace-with"]
                    .iter()
                    .any(|key| setting.starts_with(key))
            {
                findings.push(format!(
                    "{}:{}: registry settings belong to the machine",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    findings
}

/// Whether the line holds the place as a whole path or the start of one.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + place.len()..).and_then(|text| text.chars().next());
        let part_of_name = |next: Option<char>| {
            next.is_some_and(|next| next.is_alphanumeric() || "_-.".contains(next))
        };
        !part_of_name(before) && !part_of_name(after)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn a_folder_of_the_machine_is_found() {
        let places = ["/builds/me/gate".to_owned()];
        let files = [
            file("a.md", "see /builds/me/gate/target\n"),
            file("b.md", "see x/builds/me/gate and /builds/me/gateway\n"),
            file("c.stderr", "fine\n --> /home/me/.cargo/registry/src/x/lib.rs\n"),
        ];
        let findings = check(&places, &files);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].starts_with("a.md:1:") && findings[1].starts_with("c.stderr:2:"));
    }

    #[test]
    fn a_private_registry_is_found() {
        let lock = format!(
            "source = \"{REGISTRY}\"\nsource = \"registry+https://mirror.example/index\"\n"
        );
        let files = [
            file("Cargo.lock", &lock),
            file(".cargo/config.toml", "[alias]\n[source.crates-io]\nreplace-with = \"mirror\"\n"),
        ];
        let findings = check(&[], &files);
        assert_eq!(findings.len(), 3);
        assert!(findings[0].starts_with("Cargo.lock:2:"));
    }

    #[test]
    fn short_roots_are_no_traces() {
        assert_eq!(places(Path::new("/app")), places(Path::new("/src")));
        assert!(places(Path::new("/builds/gate")).contains(&"/builds/gate".to_owned()));
    }
}
