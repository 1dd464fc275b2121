//! The checks that no compiler makes: headers, sizes, error pages, reached files, words, leaked paths, crate documents.
//!
//! Every check is a function from the files to findings, so that each can be tested with a planted violation.

mod codes;
mod crates;
mod functions;
mod leaks;
mod reached;
mod source;
mod words;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::process;
use crate::workspace::Member;

pub(crate) use functions::largest;

/// The longest source file that is not a list.
const MAX_LINES: usize = 1_500;

/// What a longer file says in its header, for instance a table of vectors or of events.
const LIST_MARK: &str = "This file is a list";

/// One tracked file.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    /// Its text; empty when it is not UTF-8.
    pub(crate) text: String,
}

/// Reads the files that git tracks or would track; without git, every file outside `target` and `.git`.
pub(crate) fn files(root: &Path) -> Result<Vec<SourceFile>> {
    let mut paths = if root.join(".git").exists() {
        let mut command = std::process::Command::new("git");
        command.current_dir(root);
        command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::keep(&mut command)?;
        listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
    } else {
        let mut found = Vec::new();
        walk(root, "", &mut found)?;
        found
    };
    paths.sort();
    paths.dedup();
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let full = root.join(&path);
        // A path that is listed but gone was deleted and not committed yet.
        if !full.is_file() {
            continue;
        }
        let bytes = fs::read(&full).with_context(|| format!("{path} cannot be read"))?;
        files.push(SourceFile { path, text: String::from_utf8(bytes).unwrap_or_default() });
    }
    Ok(files)
}

fn walk(root: &Path, below: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if below.is_empty() && (name == "target" || name == ".git") {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            walk(root, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Runs all checks; gives one line per finding.
pub(crate) fn check(root: &Path, members: &[Member], files: &[SourceFile]) -> Vec<String> {
    let mut findings = headers(files);
    findings.extend(lengths(files));
    findings.extend(codes::check(files));
    findings.extend(reached::check(members, files));
    findings.extend(words::check(files));
    findings.extend(leaks::check(&leaks::places(root), files));
    findings.extend(crates::check(members, files));
    findings.sort();
    findings
}

fn headers(files: &[SourceFile]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.filter(|file| !file.text.starts_with("//! "))
        .map(|file| {
            format!("{}:1: does not open with a `//!` line that says its purpose", file.path)
        })
        .collect()
}

fn lengths(files: &[SourceFile]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.filter_map(|file| {
        let lines = file.text.lines().count();
        let mut header = file.text.lines().take_while(|line| line.starts_with("//!"));
        if lines <= MAX_LINES || header.any(|line| line.contains(LIST_MARK)) {
            return None;
        }
        Some(format!(
            "{}: {lines} lines, more than {MAX_LINES}: cut it, or say `{LIST_MARK}` in its header",
            file.path
        ))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    pub(super) fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_file_without_header_is_found() {
        let files = [
            file("a.rs", "//! Purpose.\n"),
            file("b.rs", "use std::fs;\n"),
            file("c.rs", "//!\n//! Late.\n"),
            file("d.md", "text"),
        ];
        let findings = headers(&files);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].starts_with("b.rs:1:") && findings[1].starts_with("c.rs:1:"));
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_a_list() {
        let long = "//! Purpose.\n".to_owned() + &"x\n".repeat(MAX_LINES);
        let fits = "//! Purpose.\n".to_owned() + &"x\n".repeat(MAX_LINES - 1);
        let list = format!("//! Vectors. {LIST_MARK}.\n{long}");
        let findings = lengths(&[file("a.rs", &long), file("b.rs", &fits), file("c.rs", &list)]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("a.rs: 1501 lines"));
    }

    #[test]
    fn without_git_the_folders_are_walked() {
        let tree = Scratch::new("walk");
        tree.write("a/b.rs", "//! B.\n");
        tree.write("target/c.rs", "built");
        let found = files(tree.path()).expect("files");
        let paths: Vec<&str> = found.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/b.rs"]);
    }

    #[test]
    fn this_crate_passes_its_own_checks() {
        let root = crate::workspace::root().expect("root");
        let members = crate::workspace::members(&root).expect("members");
        let mut files = files(&root).expect("files");
        files.retain(|file| file.path.starts_with("xtask/"));
        let members: Vec<Member> =
            members.into_iter().filter(|member| member.name == "xtask").collect();
        assert!(files.len() > 10, "the files were found");
        assert_eq!(check(&root, &members, &files), Vec::<String>::new());
    }
}
