//! Reading Rust text by line, as far as the checks need it: comments, tests, declarations.

use super::SourceFile;

/// Whether a file is Rust.
pub(super) fn is_rust(file: &SourceFile) -> bool {
    file.path.ends_with(".rs")
}

/// Whether a file as a whole is test code: it lies in a `tests` or `benches` folder, or is named `tests.rs`.
pub(super) fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "benches" || part == "tests.rs")
}

/// The lines before the first `#[cfg(test)]` at column zero that opens a module, numbered from 1.
pub(super) fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let end = (0..lines.len())
        .find(|at| {
            lines.get(*at).is_some_and(|line| line.starts_with("#[cfg(test)]"))
                && lines
                    .iter()
                    .skip(at + 1)
                    .find(|line| !line.starts_with("#["))
                    .is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
        })
        .unwrap_or(lines.len());
    lines.into_iter().take(end).enumerate().map(|(at, line)| (at + 1, line))
}

/// A line without its comment; a `//` inside a string counts as a comment only when nothing quotes it.
pub(super) fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut previous = ' ';
    for (at, character) in line.char_indices() {
        match character {
            '"' if previous != '\\' && previous != '\'' => quoted = !quoted,
            '/' if previous == '/' && !quoted => return line.get(..at - 1).unwrap_or_default(),
            _ => {}
        }
        previous = character;
    }
    line
}

/// Whether the text declares the module `name` (`mod x;`, with any visibility).
pub(super) fn declares_module(text: &str, name: &str) -> bool {
    let plain = format!("mod {name};");
    let raw = format!("mod r#{name};");
    text.lines().map(|line| without_comment(line).trim()).any(|line| {
        [&plain, &raw].iter().any(|wanted| {
            line.strip_suffix(wanted.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with(' '))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_code_ends_at_the_test_module() {
        let text = "a\n#[cfg(test)]\nuse b;\nc\n#[cfg(test)]\n#[allow(x)]\nmod tests {\nd\n";
        let lines: Vec<&str> = product_lines(text).map(|(_, line)| line).collect();
        assert_eq!(lines, ["a", "#[cfg(test)]", "use b;", "c"]);
    }

    #[test]
    fn comments_are_cut_and_strings_are_not() {
        assert_eq!(without_comment("let a = 1; // why"), "let a = 1; ");
        assert_eq!(without_comment("let a = \"http://x\"; // y"), "let a = \"http://x\"; ");
        assert_eq!(without_comment("// all"), "");
    }

    #[test]
    fn module_declarations_are_seen_with_any_visibility() {
        let text = "mod a;\npub(crate) mod b;\n// mod c;\n    mod d;\nmod ee;\n";
        for name in ["a", "b", "d", "ee"] {
            assert!(declares_module(text, name), "{name}");
        }
        for name in ["c", "e", "f"] {
            assert!(!declares_module(text, name), "{name}");
        }
    }

    #[test]
    fn test_files_are_told_by_their_folder() {
        assert!(is_test_file("crates/a/tests/it/main.rs"));
        assert!(is_test_file("crates/a/src/fold/tests.rs"));
        assert!(!is_test_file("crates/testkit/src/lib.rs"));
    }
}
