//! Splitting a command into words as a shell does, without anything being expanded.

/// Why a command cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WordsError {
    /// A quote that does not end.
    #[error("a quote in the command does not end")]
    OpenQuote,
    /// A backslash with nothing behind it.
    #[error("the command ends in a backslash")]
    OpenEscape,
    /// No word at all.
    #[error("the command is empty")]
    Empty,
}

/// The words of a command. Blanks part them; `'…'` keeps everything, `"…"` everything but `\"` and `\\`, and
/// a backslash outside keeps the next character. Variables, patterns, pipes and the like mean nothing here.
pub(crate) fn split(command: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = command.chars();
    while let Some(next) = rest.next() {
        match next {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => quoted(&mut rest, '\'', word.get_or_insert_default())?,
            '"' => quoted(&mut rest, '"', word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().ok_or(WordsError::OpenEscape)?),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    if words.is_empty() { Err(WordsError::Empty) } else { Ok(words) }
}

fn quoted(rest: &mut std::str::Chars<'_>, end: char, word: &mut String) -> Result<(), WordsError> {
    loop {
        match rest.next().ok_or(WordsError::OpenQuote)? {
            next if next == end => return Ok(()),
            '\\' if end == '"' => match rest.next().ok_or(WordsError::OpenQuote)? {
                kept @ ('"' | '\\') => word.push(kept),
                other => word.extend(['\\', other]),
            },
            other => word.push(other),
        }
    }
}

/// A word as a shell reads it back: quoted unless it is plain.
pub(crate) fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, words: &[&str]) {
        assert_eq!(split(command).unwrap(), words, "{command}");
        let again: Vec<_> = words.iter().map(|word| quote(word)).collect();
        assert_eq!(split(&again.join(" ")).unwrap(), words, "{again:?}");
    }

    #[test]
    fn words_are_parted_by_blanks_and_kept_by_quotes() {
        check("python3 examples/agents/tidy.py", &["python3", "examples/agents/tidy.py"]);
        check("  a\t'b c'  \"d 'e\" f\\ g ", &["a", "b c", "d 'e", "f g"]);
        check(r#"x"y"'z' '' """#, &["xyz", "", ""]);
        check(r#""a\"b\\c\d" 'a\b'"#, &[r#"a"b\c\d"#, r"a\b"]);
        check("sh -c '$(rm) | `x` *'", &["sh", "-c", "$(rm) | `x` *"]);
    }

    #[test]
    fn what_does_not_end_is_refused() {
        assert_eq!(split("a 'b"), Err(WordsError::OpenQuote));
        assert_eq!(split("a \"b\\"), Err(WordsError::OpenQuote));
        assert_eq!(split("a \\"), Err(WordsError::OpenEscape));
        assert_eq!(split(" \t"), Err(WordsError::Empty));
    }
}
