//! The largest functions, for information: a long function is a list or a knot, and knots are cut.

use super::SourceFile;
use super::source::{is_rust, is_test_file, product_lines};

/// One function: its lines, and where it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// From the line with `fn` to its closing brace.
    pub(crate) lines: usize,
    /// `path:line`.
    pub(crate) place: String,
    /// Its name.
    pub(crate) name: String,
}

/// The `count` largest functions of product code, largest first. Relies on rustfmt's indentation.
pub(crate) fn largest(files: &[SourceFile], count: usize) -> Vec<Function> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_rust(file) && !is_test_file(&file.path)) {
        let lines: Vec<(usize, &str)> = product_lines(&file.text).collect();
        for (at, (number, line)) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            let indent = line.len() - line.trim_start().len();
            let closing = " ".repeat(indent) + "}";
            // A declaration in a trait ends its signature without a body.
            let signature_end =
                lines.iter().skip(at).find(|(_, line)| line.ends_with(['{', ';', '}']));
            if signature_end.is_none_or(|(_, line)| line.ends_with(';')) {
                continue;
            }
            let mut after = lines.iter().skip(at);
            let on_one_line = line.ends_with('}');
            let Some((end, _)) = after.find(|(_, line)| *line == closing || on_one_line) else {
                continue;
            };
            found.push(Function {
                lines: end - number + 1,
                place: format!("{}:{number}", file.path),
                name: name.to_owned(),
            });
        }
    }
    found.sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| a.place.cmp(&b.place)));
    found.truncate(count);
    found
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let only_qualifiers = before.split_whitespace().all(|word| {
        ["pub", "const", "async", "unsafe", "extern"].contains(&word)
            || word.starts_with("pub(")
            || word == "\"C\""
    });
    if !only_qualifiers {
        return None;
    }
    let end = after.find(|character: char| !(character.is_alphanumeric() || character == '_'))?;
    after.get(..end).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn functions_are_measured_and_sorted() {
        let text = "//! X.\nfn short() {}\nimpl A {\n    pub(crate) fn long(\n        &self,\n    ) {\n        a();\n    }\n}\n\
                    trait T {\n    fn declared();\n    fn spread(\n        &self,\n    ) -> u8;\n    fn third() {\n    }\n}\nfn middle() {\n    b();\n}\n";
        let found = largest(&[file("src/a.rs", text)], 2);
        let sizes: Vec<(usize, &str)> =
            found.iter().map(|found| (found.lines, found.name.as_str())).collect();
        assert_eq!(sizes, [(5, "long"), (3, "middle")]);
        assert_eq!(found[0].place, "src/a.rs:4");
    }
}
