//! Files that the compiler never sees: a test or a module that nobody declares, a test binary beside the one.

use std::collections::BTreeMap;

use crate::workspace::Member;

use super::SourceFile;
use super::source::{declares_module, is_rust};

/// Finds undeclared modules under `src` and `tests/it`, and undeclared test binaries.
pub(super) fn check(members: &[Member], files: &[SourceFile]) -> Vec<String> {
    let by_path: BTreeMap<&str, &SourceFile> =
        files.iter().filter(|file| is_rust(file)).map(|file| (file.path.as_str(), file)).collect();
    let mut findings = Vec::new();
    for path in by_path.keys() {
        for member in members {
            let Some(inside) = path.strip_prefix(&format!("{}/", member.folder)) else { continue };
            if let Some(finding) = judge(member, path, inside, &by_path) {
                findings.push(finding);
            }
        }
    }
    findings
}

fn judge(
    member: &Member,
    path: &str,
    inside: &str,
    by_path: &BTreeMap<&str, &SourceFile>,
) -> Option<String> {
    let (roots, below): (Vec<&str>, &str) = if let Some(below) = inside.strip_prefix("src/") {
        if below == "lib.rs" || below == "main.rs" || below.starts_with("bin/") {
            return None;
        }
        (vec!["src/lib.rs", "src/main.rs"], below)
    } else if let Some(below) = inside.strip_prefix("tests/it/") {
        if below == "main.rs" {
            return None;
        }
        (vec!["tests/it/main.rs"], below)
    } else if let Some(below) = inside.strip_prefix("tests/") {
        let stem = below.strip_suffix(".rs").unwrap_or(below);
        // Deeper files are inputs of a test (compile-fail cases); a file right here is a binary of its own.
        let own_binary =
            !below.contains('/') && !member.declared_tests.iter().any(|name| name == stem);
        return own_binary.then(|| {
            format!("{path}: a second test binary: move it under tests/it, or declare it")
        });
    } else {
        return None;
    };
    let folder = inside.strip_suffix(below).unwrap_or_default();
    let parents = parents(&member.folder, folder, below, &roots);
    let name = module_name(below);
    let declared = parents
        .iter()
        .filter_map(|parent| by_path.get(parent.as_str()))
        .any(|parent| declares_module(&parent.text, name) || names_path(&parent.text, below));
    (!declared).then(|| format!("{path}: no `mod {name};` in {}", parents.join(" or ")))
}

/// The name that a parent declares: the file's stem, or its folder's name for `mod.rs`.
fn module_name(below: &str) -> &str {
    let stem = below.strip_suffix(".rs").unwrap_or(below);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    stem.rsplit('/').next().unwrap_or(stem)
}

/// The files that may declare the module.
fn parents(member: &str, folder: &str, below: &str, roots: &[&str]) -> Vec<String> {
    let stem = below.strip_suffix(".rs").unwrap_or(below);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    match stem.rsplit_once('/') {
        None => roots.iter().map(|root| format!("{member}/{root}")).collect(),
        Some((parent, _)) => {
            vec![
                format!("{member}/{folder}{parent}.rs"),
                format!("{member}/{folder}{parent}/mod.rs"),
            ]
        }
    }
}

/// Whether a `#[path]` attribute names the file.
fn names_path(text: &str, below: &str) -> bool {
    let name = below.rsplit('/').next().unwrap_or(below);
    text.lines().any(|line| line.trim_start().starts_with("#[path") && line.contains(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn check_files(files: &[(&str, &str)], declared: &[&str]) -> Vec<String> {
        let member = Member {
            name: "p-a".to_owned(),
            folder: "crates/a".to_owned(),
            features: Vec::new(),
            benches: Vec::new(),
            declared_tests: declared.iter().map(|name| (*name).to_owned()).collect(),
            has_lib: true,
        };
        let files: Vec<SourceFile> = files.iter().map(|(path, text)| file(path, text)).collect();
        check(&[member], &files)
    }

    #[test]
    fn declared_files_pass() {
        let files = [
            ("crates/a/src/lib.rs", "pub mod x;\nmod y;\n"),
            ("crates/a/src/x.rs", "mod z;\n"),
            ("crates/a/src/x/z.rs", ""),
            ("crates/a/src/y/mod.rs", "mod w;\n"),
            ("crates/a/src/y/w.rs", ""),
            ("crates/a/src/bin/probe.rs", ""),
            ("crates/a/tests/it/main.rs", "mod open;\nmod deep;\n"),
            ("crates/a/tests/it/open.rs", ""),
            ("crates/a/tests/it/deep/mod.rs", ""),
            ("crates/a/tests/ui/forge.rs", ""),
        ];
        assert_eq!(check_files(&files, &[]), Vec::<String>::new());
    }

    #[test]
    fn an_undeclared_test_is_found() {
        let files =
            [("crates/a/tests/it/main.rs", "mod open;\n"), ("crates/a/tests/it/lost.rs", "")];
        assert_eq!(
            check_files(&files, &[]),
            ["crates/a/tests/it/lost.rs: no `mod lost;` in crates/a/tests/it/main.rs"]
        );
    }

    #[test]
    fn an_undeclared_nested_module_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod x;\n"),
            ("crates/a/src/x.rs", ""),
            ("crates/a/src/x/lost.rs", ""),
        ];
        let findings = check_files(&files, &[]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("crates/a/src/x/lost.rs: no `mod lost;`"));
    }

    #[test]
    fn a_second_test_binary_is_found_unless_declared() {
        let files = [("crates/a/tests/extra.rs", "")];
        assert_eq!(check_files(&files, &[]).len(), 1);
        assert_eq!(check_files(&files, &["extra"]), Vec::<String>::new());
    }
}
