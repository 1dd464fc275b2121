//! Server-sent events, cut out of a body however it comes in pieces, each bounded before it is whole.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::MAX_LINE_BYTES;

/// The longest id of an event that is given back.
const MAX_ID_BYTES: usize = 1_024;

/// The longest wait that a server may ask for before its stream is taken up again.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// What begins some texts, and is no part of them.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One thing in a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The data of a message.
    Message(Vec<u8>),
    /// A comment, a field, or an event that is none of ours: so many bytes.
    Nothing(usize),
}

/// An event is longer than a message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The events of one stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    /// The event has another name than `message`.
    other: bool,
    /// The last byte ended a line, and a line feed after it belongs to it.
    returned: bool,
    begun: bool,
    items: VecDeque<Item>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Events {
    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), TooLong> {
        let mut rest = piece;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.returned) && *first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            let held = self.line.len().saturating_add(self.data.len());
            if held.saturating_add(part.len()) > MAX_LINE_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if let Some((end, after)) = after.split_first() {
                self.returned = *end == b'\r';
                self.end_line();
                rest = after;
            } else {
                rest = after;
            }
        }
        Ok(())
    }

    /// The next thing that is whole.
    pub(super) fn next(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// The id of the last event that had one, if it can be given back.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long the server asks to wait before the stream is taken up again.
    pub(super) const fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn end_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (line.get(..at), line.get(at.saturating_add(1)..)),
            None => (Some(line.as_slice()), None),
        };
        let value = value.unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if field == Some(b"data".as_slice()) {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
            if value.is_empty() {
                self.items.push_back(Item::Nothing(line.len()));
            }
            return;
        }
        match field.unwrap_or_default() {
            b"event" => self.other = !value.is_empty() && value != b"message",
            b"id" => self.last_id = usable_id(value),
            b"retry" => self.retry = millis(value).or(self.retry),
            _ => {}
        }
        self.items.push_back(Item::Nothing(line.len()));
    }

    fn end_event(&mut self) {
        let data = std::mem::take(&mut self.data);
        let other = std::mem::take(&mut self.other);
        self.items.push_back(if other || data.is_empty() {
            Item::Nothing(data.len())
        } else {
            Item::Message(data)
        });
    }
}

/// An id that fits into a header as it stands.
fn usable_id(value: &[u8]) -> Option<String> {
    let fits = (1..=MAX_ID_BYTES).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(value).ok()?;
    fits.then(|| text.to_owned())
}

fn millis(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // More digits than fit are a longer wait.
    digits.then(|| Duration::from_millis(text.parse().unwrap_or(u64::MAX)).min(MAX_RETRY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(events: &mut Events) -> Vec<String> {
        std::iter::from_fn(|| events.next())
            .filter_map(|item| match item {
                Item::Message(data) => Some(String::from_utf8(data).unwrap()),
                Item::Nothing(_) => None,
            })
            .collect()
    }

    #[test]
    fn a_body_is_cut_the_same_whatever_its_pieces_are() {
        let body = b"\xef\xbb\xbfdata: one\r\n\r\n: ping\n\nid: 7\nevent: message\ndata:two\ndata: \rdata:  three\r\r\
            event: other\ndata: no\n\nid:\ndata\n\nretry: 250\ndata: last\n\ndata: not ended";
        for size in 1..=body.len() {
            let mut events = Events::default();
            for piece in body.chunks(size) {
                events.push(piece).unwrap();
            }
            assert_eq!(messages(&mut events), ["one", "two\n\n three", "last"], "{size}");
            assert_eq!(events.retry(), Some(Duration::from_millis(250)), "{size}");
            assert_eq!(events.last_id(), None, "an empty one takes it back: {size}");
        }
    }

    #[test]
    fn an_event_is_bounded_before_it_is_whole() {
        let mut events = Events::default();
        events.push(b"data: ").unwrap();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..15 {
            events.push(&piece).unwrap();
        }
        assert_eq!(events.push(&piece), Err(TooLong));
        let mut events = Events::default();
        let line = [b"data:".as_slice(), &piece, b"\n"].concat();
        assert_eq!((0..20).find(|_| events.push(&line).is_err()), Some(15));
    }

    #[test]
    fn what_is_no_message_is_counted() {
        let mut events = Events::default();
        events.push(b": ping\n\nid: 1\ndata:\n\nretry: soon\n").unwrap();
        let items: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        assert_eq!(items, [6, 0, 5, 5, 0, 11].map(Item::Nothing));
        assert_eq!(events.last_id(), Some("1"));
        assert_eq!(events.retry(), None);
    }

    #[test]
    fn an_id_that_fits_into_no_header_is_none() {
        for (id, kept) in [("abc_1/=", true), ("a b", false), ("\u{e9}", false), ("\u{1}", false)] {
            let mut events = Events::default();
            events.push(format!("id: {id}\n").as_bytes()).unwrap();
            assert_eq!(events.last_id().is_some(), kept, "{id:?}");
        }
        let mut events = Events::default();
        events
            .push(format!("id: {}\nretry: 99999999999999999999\n", "x".repeat(1_025)).as_bytes())
            .unwrap();
        assert_eq!((events.last_id(), events.retry()), (None, Some(MAX_RETRY)));
    }
}
