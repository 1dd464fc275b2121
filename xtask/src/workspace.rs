//! The workspace as its manifests state it: where it is, its members, the toolchain it asks for.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use toml::{Table, Value};

/// One package of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The package's name, for instance `portcullis-canon`.
    pub(crate) name: String,
    /// Its folder, relative to the root, with forward slashes.
    pub(crate) folder: String,
    /// The names of its features, sorted.
    pub(crate) features: Vec<String>,
    /// The names of its bench targets, sorted.
    pub(crate) benches: Vec<String>,
    /// The names of test targets that its manifest declares by hand.
    pub(crate) declared_tests: Vec<String>,
    /// Whether it has a `src/lib.rs`.
    pub(crate) has_lib: bool,
}

/// The build folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Finds the workspace root: the nearest folder upwards whose manifest has a `[workspace]` table.
pub(crate) fn root() -> Result<PathBuf> {
    let start = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => env::current_dir().context("the current folder cannot be read")?,
    };
    for folder in start.ancestors() {
        let manifest = folder.join("Cargo.toml");
        if manifest.is_file() && read_toml(&manifest)?.contains_key("workspace") {
            return Ok(folder.to_path_buf());
        }
    }
    bail!("no workspace manifest above {}: run this from a checkout", start.display())
}

/// Reads the members in manifest order, globs expanded and sorted.
pub(crate) fn members(root: &Path) -> Result<Vec<Member>> {
    let manifest = read_toml(&root.join("Cargo.toml"))?;
    let patterns = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("members"))
        .and_then(Value::as_array)
        .context("the root manifest lists no workspace members")?;
    let mut found = Vec::new();
    for pattern in patterns {
        let pattern = pattern.as_str().context("a workspace member is not a string")?;
        for folder in expand(root, pattern)? {
            found.push(member(root, &folder)?);
        }
    }
    Ok(found)
}

/// The oldest toolchain that the workspace accepts, as `major.minor` or `major.minor.patch`.
pub(crate) fn rust_version(root: &Path) -> Result<String> {
    let manifest = read_toml(&root.join("Cargo.toml"))?;
    manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package"))
        .and_then(|package| package.get("rust-version"))
        .and_then(Value::as_str)
        .map(str::to_owned)
        .context("the root manifest states no rust-version")
}

fn expand(root: &Path, pattern: &str) -> Result<Vec<String>> {
    let Some(parent) = pattern.strip_suffix("/*") else {
        return Ok(vec![pattern.to_owned()]);
    };
    let mut folders = Vec::new();
    let entries = fs::read_dir(root.join(parent))
        .with_context(|| format!("the folder {parent} cannot be listed"))?;
    for entry in entries {
        let entry = entry?;
        if entry.path().join("Cargo.toml").is_file() {
            folders.push(format!("{parent}/{}", entry.file_name().to_string_lossy()));
        }
    }
    folders.sort();
    Ok(folders)
}

fn member(root: &Path, folder: &str) -> Result<Member> {
    let path = root.join(folder);
    let manifest = read_toml(&path.join("Cargo.toml"))?;
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str)
        .with_context(|| format!("{folder}/Cargo.toml names no package"))?;
    let mut features: Vec<String> = manifest
        .get("features")
        .and_then(Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default();
    features.sort();
    let mut benches = target_names(&manifest, "bench");
    benches.extend(rust_files(&path.join("benches")));
    benches.sort();
    benches.dedup();
    Ok(Member {
        name: name.to_owned(),
        folder: folder.to_owned(),
        features,
        benches,
        declared_tests: target_names(&manifest, "test"),
        has_lib: path.join("src/lib.rs").is_file(),
    })
}

fn target_names(manifest: &Table, kind: &str) -> Vec<String> {
    let targets = manifest.get(kind).and_then(Value::as_array);
    targets
        .into_iter()
        .flatten()
        .filter_map(|target| target.get("name").and_then(Value::as_str).map(str::to_owned))
        .collect()
}

/// The stems of the `.rs` files right inside a folder; none when there is no such folder.
fn rust_files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .collect()
}

fn read_toml(path: &Path) -> Result<Table> {
    let text =
        fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    text.parse().with_context(|| format!("{} is not valid TOML", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn members_are_read_with_globs_features_and_targets() {
        let tree = Scratch::new("members");
        tree.write("Cargo.toml", "[workspace]\nmembers = [\"crates/*\", \"tool\"]\n");
        tree.write(
            "crates/b/Cargo.toml",
            "[package]\nname = \"p-b\"\n[features]\nz = []\na = []\n[[test]]\nname = \"own\"\n",
        );
        tree.write("crates/b/src/lib.rs", "");
        tree.write("crates/b/benches/speed.rs", "");
        tree.write("crates/a/Cargo.toml", "[package]\nname = \"p-a\"\n");
        tree.write("crates/notes/README.md", "no package here");
        tree.write("tool/Cargo.toml", "[package]\nname = \"tool\"\n");
        let members = members(tree.path()).expect("members");
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["p-a", "p-b", "tool"]);
        let b = &members[1];
        assert_eq!(b.features, ["a", "z"]);
        assert_eq!(b.benches, ["speed"]);
        assert_eq!(b.declared_tests, ["own"]);
        assert!(b.has_lib && !members[0].has_lib);
    }

    #[test]
    fn a_manifest_without_members_is_an_error() {
        let tree = Scratch::new("memberless");
        tree.write("Cargo.toml", "[workspace]\n");
        assert!(members(tree.path()).is_err());
        assert!(rust_version(tree.path()).is_err());
    }

    #[test]
    fn the_real_workspace_is_found_and_has_the_xtask() {
        let root = root().expect("root");
        let members = members(&root).expect("members");
        assert!(members.iter().any(|member| member.name == "xtask"));
        assert_eq!(rust_version(&root).expect("version"), "1.95");
    }
}
