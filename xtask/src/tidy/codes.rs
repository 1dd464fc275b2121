//! Error codes: each has a page and each page has a code; a code is raised in one place and never used again.

use std::collections::BTreeMap;

use super::SourceFile;
use super::source::{is_rust, is_test_file, product_lines, without_comment};

/// Where the pages are.
const FOLDER: &str = "docs/errors/";

/// What the page of a code that is no longer raised says, so that the number stays taken.
const RETIRED: &str = "Status: retired";

/// Finds codes without page, pages without code, codes raised twice and retired codes that came back.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let mut findings = Vec::new();
    let raised = raised(files);
    let pages = pages(files);
    for (code, places) in &raised {
        let first = places.first().map(String::as_str).unwrap_or_default();
        match pages.get(code.as_str()) {
            None => findings.push(format!("{first}: {code} has no page {FOLDER}{code}.md")),
            Some(page) if page.text.contains(RETIRED) => {
                findings.push(format!("{first}: {code} is retired: a code is never used again"));
            }
            Some(_) => {}
        }
        if places.len() > 1 {
            let others: Vec<&str> = places.iter().skip(1).map(String::as_str).collect();
            findings.push(format!(
                "{first}: {code} also stands at {}: one code, one place",
                others.join(", ")
            ));
        }
    }
    for (code, page) in pages {
        let title = format!("# {code}: ");
        if !page.text.starts_with(&title) {
            findings.push(format!("{}:1: does not open with `{title}` and a title", page.path));
        }
        if !raised.contains_key(code) && !page.text.contains(RETIRED) {
            findings.push(format!(
                "{}: no code raises {code}: say `{RETIRED}` or remove the page",
                page.path
            ));
        }
    }
    findings
}

/// The codes that product code raises, as string literals, with their places.
fn raised(files: &[SourceFile]) -> BTreeMap<String, Vec<String>> {
    let mut raised: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let product = files.iter().filter(|file| {
        is_rust(file) && !is_test_file(&file.path) && !file.path.starts_with("xtask/")
    });
    for file in product {
        for (number, line) in product_lines(&file.text) {
            for code in literals(without_comment(line)) {
                raised.entry(code.to_owned()).or_default().push(format!("{}:{number}", file.path));
            }
        }
    }
    raised
}

/// The codes right after an opening quote: `"E1001"` and `"E1001: the sentence"`.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2).filter_map(|literal| {
        let code = literal.get(..5)?;
        let ends =
            literal.get(5..)?.chars().next().is_none_or(|next| !next.is_ascii_alphanumeric());
        (ends && is_code(code)).then_some(code)
    })
}

fn is_code(text: &str) -> bool {
    text.len() == 5
        && text
            .strip_prefix('E')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn pages(files: &[SourceFile]) -> BTreeMap<&str, &SourceFile> {
    files
        .iter()
        .filter_map(|file| {
            let code = file.path.strip_prefix(FOLDER)?.strip_suffix(".md")?;
            is_code(code).then_some((code, file))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    const USE: &str = "//! X.\nfn code() -> &'static str {\n    \"E3001\"\n}\n";
    const PAGE: &str = "# E3001: the file is not a database\n";

    fn check_files(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = files.iter().map(|(path, text)| file(path, text)).collect();
        check(&files)
    }

    #[test]
    fn a_code_with_its_page_passes() {
        assert_eq!(
            check_files(&[("src/a.rs", USE), ("docs/errors/E3001.md", PAGE)]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_code_without_page_is_found() {
        assert_eq!(
            check_files(&[("src/a.rs", USE)]),
            ["src/a.rs:3: E3001 has no page docs/errors/E3001.md"]
        );
    }

    #[test]
    fn a_page_without_code_is_found_unless_retired() {
        assert_eq!(check_files(&[("docs/errors/E3001.md", PAGE)]).len(), 1);
        let retired = format!("{PAGE}\n{RETIRED}\n");
        assert_eq!(check_files(&[("docs/errors/E3001.md", &retired)]), Vec::<String>::new());
        let back = check_files(&[("src/a.rs", USE), ("docs/errors/E3001.md", &retired)]);
        assert!(back.len() == 1 && back[0].contains("never used again"));
    }

    #[test]
    fn a_code_in_two_places_is_found() {
        let findings =
            check_files(&[("src/a.rs", USE), ("src/b.rs", USE), ("docs/errors/E3001.md", PAGE)]);
        assert_eq!(findings, ["src/a.rs:3: E3001 also stands at src/b.rs:3: one code, one place"]);
    }

    #[test]
    fn a_page_opens_with_its_code() {
        let findings =
            check_files(&[("src/a.rs", USE), ("docs/errors/E3001.md", "# Not a database\n")]);
        assert!(findings.len() == 1 && findings[0].starts_with("docs/errors/E3001.md:1:"));
    }

    #[test]
    fn tests_comments_and_longer_words_are_not_codes() {
        let text =
            "//! X.\n// \"E3001\"\nlet a = \"E30011\";\n#[cfg(test)]\nmod tests {\n\"E3002\"\n}\n";
        assert_eq!(
            check_files(&[("src/a.rs", text), ("tests/it/main.rs", USE)]),
            Vec::<String>::new()
        );
    }
}
