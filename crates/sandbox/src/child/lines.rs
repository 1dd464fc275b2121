//! Bytes from a program, cut into lines.

/// Collects bytes until they hold a line. The reader stops pushing once [`Lines::is_full`] or [`Lines::is_too_long`],
/// so that no more is kept than the longest line and one piece.
#[derive(Debug)]
pub struct Lines {
    /// The longest line, without its line end.
    max_bytes: usize,
    bytes: Vec<u8>,
    /// No line end before this place.
    searched: usize,
    /// The place of the first line end.
    end: Option<usize>,
}

impl Lines {
    /// None yet, and none longer than `max_bytes` without its line end.
    #[must_use]
    pub const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: Vec::new(), searched: 0, end: None }
    }

    /// Takes more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.search();
    }

    /// Whether a whole line is there.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.end.is_some()
    }

    /// Whether nothing is there, not even the beginning of a line.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the first line is longer than a line may be, ended or not.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        self.end.unwrap_or(self.bytes.len()) > self.max_bytes
    }

    /// Takes the first line, without its line end.
    pub fn take(&mut self) -> Option<Vec<u8>> {
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
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const MAX: usize = 100;

    #[test]
    fn lines_come_out_whole_whatever_the_pieces() {
        let text = b"first\n\nthird\r\nrest";
        for size in 1..=text.len() {
            let (mut lines, mut out) = (Lines::new(MAX), Vec::new());
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
        let mut lines = Lines::new(MAX);
        lines.push(&[b'x'; MAX]);
        assert!(!lines.is_too_long());
        lines.push(b"\nnext");
        assert!(!lines.is_too_long());
        assert_eq!(lines.take().unwrap().len(), MAX);
        lines.push(&[b'x'; MAX]);
        assert!(lines.is_too_long());
    }
}
