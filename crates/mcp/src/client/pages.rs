//! All pages of `tools/list`, within bounds: pages, tools, bytes, and no cursor twice.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_canon::{Value, sanitize};
use rmcp::model::{ListToolsRequest, PaginatedRequestParams};

use super::ledger::Reply;
use super::request::{Lost, Why};
use crate::listing::{AdvertisedTool, Listing, ListingError, MAX_TOOLS};
use crate::session::SessionError;

/// The most pages of one listing.
pub const MAX_PAGES: usize = 100;

/// The most bytes of one listing, as canonical JSON.
pub const MAX_LISTING_BYTES: usize = 8 * 1024 * 1024;

/// The longest cursor that is given back.
const MAX_CURSOR_BYTES: usize = 4_096;

/// How much of a server's error goes into a sentence.
const QUOTED_BYTES: usize = 200;

/// What was listed so far.
#[derive(Debug, Default)]
pub(super) struct Pages {
    count: usize,
    bytes: usize,
    tools: Vec<AdvertisedTool>,
    cursors: BTreeSet<String>,
}

/// The request of the page at `cursor`; of the first without one.
pub(super) fn request(cursor: Option<String>) -> ListToolsRequest {
    ListToolsRequest::with_param(PaginatedRequestParams::default().with_cursor(cursor))
}

impl Pages {
    /// Takes one page, and gives the cursor of the next one when there is one.
    pub(super) fn take(&mut self, reply: Reply) -> Result<Option<String>, SessionError> {
        let page = match reply {
            Reply::Result(page) => page,
            Reply::Error(code, message) => {
                let message = sanitize::clip(&sanitize::line(&message), QUOTED_BYTES);
                return Err(SessionError::Protocol(format!(
                    "it refuses to list its tools (error {code}: {message})"
                )));
            }
        };
        self.count = self.count.saturating_add(1);
        if self.count > MAX_PAGES {
            return Err(SessionError::Unbounded("more than 100 pages"));
        }
        let shape = || SessionError::Listing(ListingError::Shape);
        for tool in page.get("tools").and_then(Value::as_array).ok_or_else(shape)? {
            if self.tools.len() == MAX_TOOLS {
                return Err(ListingError::TooMany.into());
            }
            self.bytes = self.bytes.saturating_add(tool.to_canonical().len());
            if self.bytes > MAX_LISTING_BYTES {
                return Err(SessionError::Unbounded("more than 8 MiB"));
            }
            self.tools.push(AdvertisedTool::read(tool.clone())?);
        }
        match page.get("nextCursor") {
            None | Some(Value::Null) => Ok(None),
            Some(cursor) => self.next(cursor.as_str().ok_or_else(shape)?).map(Some),
        }
    }

    fn next(&mut self, cursor: &str) -> Result<String, SessionError> {
        if cursor.len() > MAX_CURSOR_BYTES {
            return Err(SessionError::Unbounded("a cursor of more than 4,096 bytes"));
        }
        if !self.cursors.insert(cursor.to_owned()) {
            return Err(SessionError::Unbounded("a cursor that it gave before"));
        }
        Ok(cursor.to_owned())
    }

    /// Everything together; each name once.
    pub(super) fn finish(self) -> Result<Listing, SessionError> {
        Ok(Listing::new(self.tools)?)
    }
}

/// What a lost request says of the session.
pub(super) fn lost(lost: Lost, wait: Duration, during: &'static str) -> SessionError {
    use super::ledger::Fault;

    match lost.why {
        Why::Deadline => SessionError::Deadline(wait, during),
        Why::Over(Fault::Closed) => SessionError::Closed(during),
        Why::Over(fault) => SessionError::Protocol(fault.to_string()),
        Why::Broken(why) => SessionError::Unanswered(why, during),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn page(text: &str) -> Reply {
        Reply::Result(parse(text.as_bytes(), &Limits::default()).unwrap())
    }

    #[test]
    fn pages_come_together_with_their_digits() {
        let mut pages = Pages::default();
        let next =
            pages.take(page(r#"{"tools":[{"name":"a","x":1.10}],"nextCursor":"2"}"#)).unwrap();
        assert_eq!(next.as_deref(), Some("2"));
        assert_eq!(
            pages.take(page(r#"{"tools":[{"name":"b","X":12345678901234567890123}]}"#)).unwrap(),
            None
        );
        let listing = pages.finish().unwrap();
        let raw: Vec<_> =
            listing.tools().iter().map(|tool| tool.raw().to_canonical_string()).collect();
        assert_eq!(
            raw,
            [r#"{"name":"a","x":1.1}"#, r#"{"X":1.2345678901234567890123e+22,"name":"b"}"#]
        );
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let mut pages = Pages::default();
        for n in 0..MAX_PAGES {
            pages.take(page(&format!(r#"{{"tools":[],"nextCursor":"{n}"}}"#))).unwrap();
        }
        let over = pages.take(page(r#"{"tools":[]}"#));
        assert!(matches!(over, Err(SessionError::Unbounded("more than 100 pages"))), "{over:?}");

        let mut pages = Pages::default();
        pages.take(page(r#"{"tools":[],"nextCursor":"same"}"#)).unwrap();
        let again = pages.take(page(r#"{"tools":[],"nextCursor":"same"}"#));
        assert!(matches!(again, Err(SessionError::Unbounded("a cursor that it gave before"))));

        let mut pages = Pages::default();
        let long = format!(r#"{{"tools":[],"nextCursor":"{}"}}"#, "c".repeat(MAX_CURSOR_BYTES + 1));
        assert!(matches!(pages.take(page(&long)), Err(SessionError::Unbounded(_))));

        let mut pages = Pages::default();
        let big =
            format!(r#"{{"tools":[{{"name":"a","d":"{}"}}]}}"#, "x".repeat(MAX_LISTING_BYTES));
        assert!(matches!(pages.take(page(&big)), Err(SessionError::Unbounded("more than 8 MiB"))));
    }

    #[test]
    fn a_page_of_another_shape_is_refused() {
        for odd in ["{}", r#"{"tools":{}}"#, r#"{"tools":[1]}"#, r#"{"tools":[],"nextCursor":1}"#] {
            let taken = Pages::default().take(page(odd));
            assert!(matches!(taken, Err(SessionError::Listing(ListingError::Shape))), "{odd}");
        }
        let refused =
            Pages::default().take(Reply::Error(-1, "\u{1b}[2J no".to_owned())).unwrap_err();
        assert!(refused.to_string().ends_with("(error -1: \\x1B[2J no)"), "{refused}");
    }
}
