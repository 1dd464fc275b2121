//! The end of what a program wrote to its standard error.

use portcullis_canon::sanitize;

/// How many bytes of standard error are kept: the last ones.
pub const STDERR_TAIL_BYTES: usize = 8 * 1024;

/// How much of it goes into a sentence for the operator.
const QUOTE_BYTES: usize = 512;

/// The last [`STDERR_TAIL_BYTES`] of what was pushed.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// Takes more of it.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let over = self.bytes.len().saturating_sub(STDERR_TAIL_BYTES);
        self.bytes.drain(..over);
    }

    /// The lines, safe to print.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let lines = self.bytes.trim_ascii().split(|byte| *byte == b'\n');
        lines
            .map(|line| sanitize::line_bytes(line.trim_ascii_end()))
            .filter(|line| !line.is_empty())
            .collect()
    }

    /// The last of it in one line, safe to print and short; `None` when nothing was written.
    #[must_use]
    pub fn quote(&self) -> Option<String> {
        let text = self.lines().join(" / ");
        let from = text.ceil_char_boundary(text.len().saturating_sub(QUOTE_BYTES));
        let end = text.get(from..).filter(|end| !end.is_empty())?;
        Some(if from == 0 { end.to_owned() } else { format!("{}{end}", sanitize::CLIP_MARKER) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_the_last_bytes_are_kept() {
        let mut tail = Tail::default();
        assert_eq!(tail.quote(), None);
        for round in 0..10_000 {
            tail.push(format!("line {round}\n").as_bytes());
        }
        assert!(tail.bytes.len() <= STDERR_TAIL_BYTES);
        assert_eq!(tail.lines().last().unwrap(), "line 9999");
        let quote = tail.quote().unwrap();
        assert!(quote.starts_with('…') && quote.ends_with("line 9999"), "{quote}");
        assert!(quote.len() <= QUOTE_BYTES + '…'.len_utf8());
    }

    #[test]
    fn what_could_move_a_cursor_is_written_out() {
        let mut tail = Tail::default();
        tail.push(b"\x1b[2Jred\xff\n\r\nTypeError\n");
        assert_eq!(tail.quote().unwrap(), "\\x1B[2Jred\u{fffd} / TypeError");
    }
}
