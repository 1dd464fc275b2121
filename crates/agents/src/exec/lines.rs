//! Bytes from the agent, cut into lines.

use portcullis_domain::proposal::MAX_PROPOSAL_BYTES;

/// The longest line from an agent, in bytes, without the line end.
pub const MAX_LINE_BYTES: usize = MAX_PROPOSAL_BYTES;

/// Collects bytes until they hold a line. The reader stops pushing once [`Lines::is_full`].
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// No line end before this place.
    searched: usize,
    /// The place of the first line end.
    end: Option<usize>,
}

impl Lines {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.search();
    }

    /// Whether a whole line is there.
    pub(crate) const fn is_full(&self) -> bool {
        self.end.is_some()
    }

    /// Whether nothing is there, not even the beginning of a line.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the first line is longer than a line may be, ended or not.
    pub(crate) fn is_too_long(&self) -> bool {
        self.end.unwrap_or(self.bytes.len()) > MAX_LINE_BYTES
    }

    /// Takes the first line, without its line end.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let end = self.end.take()?;
        let rest = self.bytes.split_off(end.saturating_add(1).min(self.bytes.len()));
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.truncate(end);
        self.searched = 0;
        self.search();
        Some(line)
    }

    fn search(&mut self) {
        if self.end.is_none() {
            let unseen = self.bytes.get(self.searched..).unwrap_or_default();
            self.end = unseen.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
            self.searched = self.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_whatever_the_pieces() {
        let text = b"first\n\nthird\r\nrest";
        for size in 1..=text.len() {
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.take() {
                    out.push(String::from_utf8(line).unwrap());
                }
            }
            assert_eq!(out, ["first", "", "third\r"], "pieces of {size}");
            assert!(!lines.is_empty() && !lines.is_full());
        }
    }

    #[test]
    fn the_longest_line_fits_and_one_byte_more_does_not() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE_BYTES]);
        assert!(!lines.is_too_long());
        lines.push(b"\nnext");
        assert!(!lines.is_too_long());
        assert_eq!(lines.take().unwrap().len(), MAX_LINE_BYTES);
        lines.push(&vec![b'x'; MAX_LINE_BYTES]);
        assert!(lines.is_too_long());
    }
}
