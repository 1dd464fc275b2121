//! All pages of a listing, within bounds: pages, entries, bytes, and no cursor twice.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_canon::{Value, sanitize};
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams,
};

use super::ledger::Reply;
use super::request::{Lost, Why};
use crate::listing::{ListingError, MAX_TOOLS};
use crate::offer::{MAX_OFFERS, OfferError, OfferKind};
use crate::session::SessionError;

/// The most pages of one listing.
pub const MAX_PAGES: usize = 100;

/// The most bytes of one listing, as canonical JSON.
pub const MAX_LISTING_BYTES: usize = 8 * 1024 * 1024;

/// The longest cursor that is given back.
const MAX_CURSOR_BYTES: usize = 4_096;

/// How much of a server's error goes into a sentence.
const QUOTED_BYTES: usize = 200;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Tools,
    Offers(OfferKind),
}

impl Listed {
    /// What it is called in sentences.
    const fn words(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Offers(kind) => kind.plural(),
        }
    }

    /// The stage at which it is listed, in sentences.
    pub(super) const fn stage(self) -> &'static str {
        match self {
            Self::Tools => "listing its tools",
            Self::Offers(OfferKind::Resource) => "listing its resources",
            Self::Offers(OfferKind::Template) => "listing its resource templates",
            Self::Offers(OfferKind::Prompt) => "listing its prompts",
        }
    }

    /// The member of a page that holds the entries.
    const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Offers(kind) => kind.member(),
        }
    }

    const fn most(self) -> usize {
        match self {
            Self::Tools => MAX_TOOLS,
            Self::Offers(_) => MAX_OFFERS,
        }
    }

    fn misshapen(self) -> SessionError {
        match self {
            Self::Tools => ListingError::Shape.into(),
            Self::Offers(kind) => OfferError::Shape(kind).into(),
        }
    }

    fn too_many(self) -> SessionError {
        match self {
            Self::Tools => ListingError::TooMany.into(),
            Self::Offers(kind) => OfferError::TooMany(kind).into(),
        }
    }

    /// The request of the page at `cursor`; of the first without one.
    pub(super) fn request(self, cursor: Option<String>) -> ClientRequest {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        match self {
            Self::Tools => ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page)),
            Self::Offers(OfferKind::Resource) => {
                ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(page))
            }
            Self::Offers(OfferKind::Template) => ClientRequest::ListResourceTemplatesRequest(
                ListResourceTemplatesRequest::with_param(page),
            ),
            Self::Offers(OfferKind::Prompt) => {
                ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(page))
            }
        }
    }
}

/// What was listed so far.
#[derive(Debug)]
pub(super) struct Pages {
    listed: Listed,
    count: usize,
    bytes: usize,
    entries: Vec<Value>,
    cursors: BTreeSet<String>,
}

impl Pages {
    pub(super) fn of(listed: Listed) -> Self {
        Self { listed, count: 0, bytes: 0, entries: Vec::new(), cursors: BTreeSet::new() }
    }

    /// Takes one page, and gives the cursor of the next one when there is one.
    pub(super) fn take(&mut self, reply: Reply) -> Result<Option<String>, SessionError> {
        let page = match reply {
            Reply::Result(page) => page,
            Reply::Needs(needs) => {
                return Err(SessionError::Protocol(format!(
                    "it refuses to list its {}: {needs}",
                    self.listed.words()
                )));
            }
            Reply::Error(code, message) => {
                let message = sanitize::clip(&sanitize::line(&message), QUOTED_BYTES);
                return Err(SessionError::Protocol(format!(
                    "it refuses to list its {} (error {code}: {message})",
                    self.listed.words()
                )));
            }
        };
        self.count = self.count.saturating_add(1);
        if self.count > MAX_PAGES {
            return Err(self.unbounded("more than 100 pages"));
        }
        let shape = || self.listed.misshapen();
        let entries = page.get(self.listed.member()).and_then(Value::as_array);
        for entry in entries.ok_or_else(shape)? {
            if self.entries.len() == self.listed.most() {
                return Err(self.listed.too_many());
            }
            self.bytes = self.bytes.saturating_add(entry.to_canonical().len());
            if self.bytes > MAX_LISTING_BYTES {
                return Err(self.unbounded("more than 8 MiB"));
            }
            self.entries.push(entry.clone());
        }
        match page.get("nextCursor") {
            None | Some(Value::Null) => Ok(None),
            Some(cursor) => {
                let cursor = cursor.as_str().ok_or_else(|| self.listed.misshapen())?;
                self.next(cursor).map(Some)
            }
        }
    }

    fn next(&mut self, cursor: &str) -> Result<String, SessionError> {
        if cursor.len() > MAX_CURSOR_BYTES {
            return Err(self.unbounded("a cursor of more than 4,096 bytes"));
        }
        if !self.cursors.insert(cursor.to_owned()) {
            return Err(self.unbounded("a cursor that it gave before"));
        }
        Ok(cursor.to_owned())
    }

    const fn unbounded(&self, why: &'static str) -> SessionError {
        SessionError::Unbounded(self.listed.words(), why)
    }

    /// All entries together.
    pub(super) fn finish(self) -> Vec<Value> {
        self.entries
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
        let mut pages = Pages::of(Listed::Tools);
        let next =
            pages.take(page(r#"{"tools":[{"name":"a","x":1.10}],"nextCursor":"2"}"#)).unwrap();
        assert_eq!(next.as_deref(), Some("2"));
        assert_eq!(
            pages.take(page(r#"{"tools":[{"name":"b","X":12345678901234567890123}]}"#)).unwrap(),
            None
        );
        let raw: Vec<_> = pages.finish().iter().map(Value::to_canonical_string).collect();
        assert_eq!(
            raw,
            [r#"{"name":"a","x":1.1}"#, r#"{"X":1.2345678901234567890123e+22,"name":"b"}"#]
        );
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let mut pages = Pages::of(Listed::Tools);
        for n in 0..MAX_PAGES {
            pages.take(page(&format!(r#"{{"tools":[],"nextCursor":"{n}"}}"#))).unwrap();
        }
        let over = pages.take(page(r#"{"tools":[]}"#));
        assert!(
            matches!(over, Err(SessionError::Unbounded("tools", "more than 100 pages"))),
            "{over:?}"
        );

        let mut pages = Pages::of(Listed::Tools);
        pages.take(page(r#"{"tools":[],"nextCursor":"same"}"#)).unwrap();
        let again = pages.take(page(r#"{"tools":[],"nextCursor":"same"}"#));
        assert!(matches!(
            again,
            Err(SessionError::Unbounded("tools", "a cursor that it gave before"))
        ));

        let mut pages = Pages::of(Listed::Tools);
        let long = format!(r#"{{"tools":[],"nextCursor":"{}"}}"#, "c".repeat(MAX_CURSOR_BYTES + 1));
        assert!(matches!(pages.take(page(&long)), Err(SessionError::Unbounded(..))));

        let mut pages = Pages::of(Listed::Tools);
        let big =
            format!(r#"{{"tools":[{{"name":"a","d":"{}"}}]}}"#, "x".repeat(MAX_LISTING_BYTES));
        assert!(matches!(
            pages.take(page(&big)),
            Err(SessionError::Unbounded("tools", "more than 8 MiB"))
        ));
    }

    #[test]
    fn a_page_of_another_shape_is_refused() {
        for odd in ["{}", r#"{"tools":{}}"#, r#"{"tools":[],"nextCursor":1}"#] {
            let taken = Pages::of(Listed::Tools).take(page(odd));
            assert!(matches!(taken, Err(SessionError::Listing(ListingError::Shape))), "{odd}");
        }
        let kind = OfferKind::Prompt;
        let taken = Pages::of(Listed::Offers(kind)).take(page(r#"{"tools":[]}"#));
        assert!(matches!(taken, Err(SessionError::Offers(OfferError::Shape(OfferKind::Prompt)))));
        let refused =
            Pages::of(Listed::Tools).take(Reply::Error(-1, "\u{1b}[2J no".to_owned())).unwrap_err();
        assert!(refused.to_string().ends_with("(error -1: \\x1B[2J no)"), "{refused}");
    }
}
