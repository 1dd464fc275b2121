//! Words that name nothing: they are kept out of file names and type names.

use super::SourceFile;
use super::source::{is_rust, without_comment};

/// Kept out of file and folder names, and of the names of types.
const EMPTY_WORDS: &[&str] = &[
    "manager",
    "managers",
    "helper",
    "helpers",
    "util",
    "utils",
    "utility",
    "utilities",
    "legacy",
];

/// Kept out of file and folder names only.
const EMPTY_FILE_WORDS: &[&str] = &["common", "misc", "stuff"];

/// Finds files and types with an empty word in their name.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_rust(file)) {
        let name = file.path.strip_suffix(".rs").unwrap_or(&file.path);
        let mut parts = name.split(['/', '_', '-', '.']);
        if let Some(word) =
            parts.find(|part| EMPTY_WORDS.contains(part) || EMPTY_FILE_WORDS.contains(part))
        {
            findings
                .push(format!("{}: `{word}` names nothing: say what the file holds", file.path));
        }
        for (at, line) in file.text.lines().enumerate() {
            let Some(name) = type_name(without_comment(line)) else { continue };
            if let Some(word) = camel_words(name).find(|word| EMPTY_WORDS.contains(&word.as_str()))
            {
                findings.push(format!(
                    "{}:{}: the type {name} says `{word}`: name what it is",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    findings
}

/// The name that a line declares as a type or trait.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| {
        *word == "unsafe" || *word == "pub" || word.starts_with("pub(") || word.ends_with(')')
    });
    let keyword = words.next()?;
    if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|character: char| !(character.is_alphanumeric() || character == '_'));
    name.get(..end.unwrap_or(name.len())).filter(|name| !name.is_empty())
}

/// `LeaseManager` gives `lease`, `manager`.
fn camel_words(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    for character in name.chars() {
        if character.is_uppercase() || words.is_empty() {
            words.push(String::new());
        }
        if let Some(last) = words.last_mut() {
            last.extend(character.to_lowercase());
        }
    }
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn empty_words_in_file_names_are_found() {
        let files = [
            file("src/path_utils.rs", ""),
            file("tests/it/common/mod.rs", ""),
            file("src/lease.rs", ""),
            file("src/utilisation.rs", ""),
        ];
        let findings = check(&files);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].contains("`utils`") && findings[1].contains("`common`"));
    }

    #[test]
    fn empty_words_in_type_names_are_found() {
        let text = "pub struct LeaseManager<T> {\nstruct Managed;\npub(crate) trait HelperOf {}\n// struct UtilA;\n";
        let findings = check(&[file("src/a.rs", text)]);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].starts_with("src/a.rs:1: the type LeaseManager"));
        assert!(findings[1].starts_with("src/a.rs:3: the type HelperOf"));
    }
}
