//! Bodies that come in pieces: server-sent events, or one JSON object a line.

/// Cuts a body into events, however it is cut into pieces. Bounded by whoever pushes.
#[derive(Debug)]
pub(super) struct Lines {
    sse: bool,
    waiting: Vec<u8>,
    /// How many bytes of `waiting` were taken.
    at: usize,
    /// Up to where no end of a line stands behind them, so that a line without an end is looked through once.
    looked: usize,
    data: Vec<u8>,
    has_data: bool,
}

impl Lines {
    /// `sse` for server-sent events, else lines of JSON.
    pub(super) fn new(sse: bool) -> Self {
        Self { sse, waiting: Vec::new(), at: 0, looked: 0, data: Vec::new(), has_data: false }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.waiting.drain(..self.at);
        self.looked = self.looked.saturating_sub(self.at);
        self.at = 0;
        self.waiting.extend_from_slice(piece);
    }

    /// The data of the next whole event.
    pub(super) fn next_event(&mut self) -> Option<Vec<u8>> {
        loop {
            let from = self.looked.max(self.at);
            let found = self.waiting.get(from..)?.iter().position(|byte| *byte == b'\n');
            let Some(found) = found else {
                self.looked = self.waiting.len();
                return None;
            };
            let end = from.saturating_add(found);
            let line = self.waiting.get(self.at..end)?.to_vec();
            self.at = end.saturating_add(1);
            if let Some(event) = self.line(&line) {
                return Some(event);
            }
        }
    }

    /// What stands in a last line without an end; in events, what no blank line followed.
    pub(super) fn last_event(&mut self) -> Option<Vec<u8>> {
        let rest = self.waiting.get(self.at..).unwrap_or_default().to_vec();
        self.at = self.waiting.len();
        if self.sse {
            let _ = self.line(&rest);
            return self.line(b"");
        }
        self.line(&rest)
    }

    fn line(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !self.sse {
            let line = line.trim_ascii();
            return (!line.is_empty()).then(|| line.to_vec());
        }
        if line.is_empty() {
            let had = std::mem::take(&mut self.has_data);
            let data = std::mem::take(&mut self.data);
            return had.then_some(data);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(sse: bool, pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(sse);
        let mut all = Vec::new();
        for piece in pieces {
            lines.push(piece);
            all.extend(std::iter::from_fn(|| lines.next_event()));
        }
        all.extend(lines.last_event());
        all.iter().map(|event| String::from_utf8_lossy(event).into_owned()).collect()
    }

    #[test]
    fn events_are_what_stands_between_blank_lines() {
        let body =
            b": hello\r\nevent: x\r\ndata: {\"a\":1}\r\n\r\ndata:one\ndata: two\n\n\n\ndata: last";
        assert_eq!(events(true, &[body]), ["{\"a\":1}", "one\ntwo", "last"]);
        assert_eq!(events(false, &[b"{}\n\n {\"a\":1} \r\n7"]), ["{}", "{\"a\":1}", "7"]);
        assert!(events(true, &[b"", b"\n\n"]).is_empty());
    }

    proptest! {
        #[test]
        fn how_a_body_is_cut_changes_nothing(
            body in "(data: [ab]{0,3}\r?\n|\n|x: y\n|[a\r]){0,12}", cuts in prop::collection::vec(0_usize..60, 0..6), sse: bool,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.sort_unstable();
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([body.len()]) {
                pieces.push(&body.as_bytes()[from..cut]);
                from = cut;
            }
            prop_assert_eq!(events(sse, &pieces), events(sse, &[body.as_bytes()]));
        }
    }
}
