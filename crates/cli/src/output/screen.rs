//! What is known of the terminal, if there is one.

use rustix::stdio;
use rustix::termios::{isatty, tcgetwinsize};

/// Columns where there is no terminal to ask.
const DEFAULT_COLUMNS: usize = 100;

/// The narrowest layout.
const MIN_COLUMNS: usize = 40;

/// Columns of standard output.
pub(crate) fn columns() -> usize {
    terminal_columns().unwrap_or(DEFAULT_COLUMNS)
}

/// Columns of the terminal on standard output; `None` when there is no terminal.
pub(crate) fn terminal_columns() -> Option<usize> {
    if !isatty(stdio::stdout()) {
        return None;
    }
    let columns = tcgetwinsize(stdio::stdout()).map_or(0, |size| usize::from(size.ws_col));
    Some(if columns == 0 { DEFAULT_COLUMNS } else { columns.max(MIN_COLUMNS) })
}

/// How a word of our own is set off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A heading.
    Strong,
    /// As it should be.
    Good,
    /// Not as it should be.
    Bad,
}

/// Our own words in a tone: colour on a terminal, unless the operator wants plain text.
pub(crate) fn toned(words: &str, tone: Tone, plain: bool) -> String {
    if !plain && isatty(stdio::stdout()) { painted(words, tone) } else { words.to_owned() }
}

fn painted(words: &str, tone: Tone) -> String {
    let code = match tone {
        Tone::Strong => 1,
        Tone::Good => 32,
        Tone::Bad => 31,
    };
    format!("\u{1b}[{code}m{words}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_ends_where_the_words_end() {
        assert_eq!(painted("intact", Tone::Good), "\u{1b}[32mintact\u{1b}[0m");
    }
}
