//! What each crate says about itself: its example, what it knows nothing of, whether it may use `unsafe`.

use crate::workspace::Member;

use super::SourceFile;

/// The only crate that may hold `unsafe`.
const UNSAFE_CRATE: &str = "portcullis-sandbox";

/// Finds crate roots that miss one of them.
pub(super) fn check(members: &[Member], files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for member in members {
        for name in ["src/lib.rs", "src/main.rs"] {
            let path = format!("{}/{name}", member.folder);
            let Some(file) = files.iter().find(|file| file.path == path) else { continue };
            if member.name != UNSAFE_CRATE && !file.text.contains("#![forbid(unsafe_code)]") {
                findings.push(format!("{path}: does not say #![forbid(unsafe_code)]"));
            }
        }
        let path = format!("{}/src/lib.rs", member.folder);
        let Some(file) = files.iter().find(|file| file.path == path) else { continue };
        let document: Vec<&str> =
            file.text.lines().filter_map(|line| line.strip_prefix("//!")).collect();
        if !has_example(&document) {
            findings.push(format!("{path}: its document has no example that compiles"));
        }
        let words = document.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        if !words.to_lowercase().contains("knows nothing of") {
            findings.push(format!("{path}: does not say what the crate knows nothing of"));
        }
    }
    findings
}

/// Whether a fenced block opens that rustdoc compiles as a passing example.
fn has_example(document: &[&str]) -> bool {
    let mut inside = false;
    for line in document {
        let Some(kind) = line.trim().strip_prefix("```") else { continue };
        if !inside {
            let words: Vec<&str> = kind.split(',').map(str::trim).collect();
            if words
                .iter()
                .all(|word| ["", "rust", "no_run", "should_panic", "edition2024"].contains(word))
            {
                return true;
            }
        }
        inside = !inside;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn check_lib(name: &str, text: &str) -> Vec<String> {
        let member = Member {
            name: name.to_owned(),
            folder: "crates/a".to_owned(),
            features: Vec::new(),
            benches: Vec::new(),
            declared_tests: Vec::new(),
            has_lib: true,
        };
        check(&[member], &[file("crates/a/src/lib.rs", text)])
    }

    const GOOD: &str =
        "//! A. Knows nothing\n//! of agents.\n//!\n//! ```\n//! let a = 1;\n//! ```\n";

    #[test]
    fn a_complete_root_passes() {
        assert_eq!(
            check_lib("p-a", &format!("{GOOD}#![forbid(unsafe_code)]\n")),
            Vec::<String>::new()
        );
        assert_eq!(check_lib(UNSAFE_CRATE, GOOD), Vec::<String>::new());
    }

    #[test]
    fn each_missing_part_is_found() {
        assert!(check_lib("p-a", GOOD)[0].ends_with("#![forbid(unsafe_code)]"));
        let findings = check_lib(UNSAFE_CRATE, "//! A.\n//! ```text\n//! x\n//! ```\n");
        assert_eq!(findings.len(), 2);
    }
}
