//! The Model Context Protocol: the tools of a server, as it advertises them and as it answers.
//!
//! The only crate that names `rmcp`; what it shows are our own types and boxed futures.
//!
//! ```
//! use portcullis_canon::{Limits, parse};
//! use portcullis_mcp::{AdvertisedTool, Listing};
//!
//! let raw = parse(br#"{"name": "pay", "inputSchema": {"type": "object"}}"#, &Limits::default())?;
//! let listing = Listing::new(vec![AdvertisedTool::read(raw)?])?;
//! assert_eq!(listing.tools()[0].name(), "pay");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It knows nothing of the gate, the record, policies or approvals.

#![forbid(unsafe_code)]

mod answer;
mod client;
mod listing;
mod login;
mod needs;
mod offer;
mod pin;
mod progress;
mod reopening;
mod serve;
mod session;
mod source;

pub use answer::outcome;
pub use client::{
    Http, HttpServer, MAX_LINE_BYTES, MAX_LISTING_BYTES, MAX_PAGES, Stdio, StdioServer,
};
pub use listing::{AdvertisedTool, Listing, ListingError, MAX_TOOLS};
pub use login::{
    AnswerError, Asked, Challenge, Challenges, LoginError, LoginTerms, WayOut, admit_endpoint,
    begin,
};
pub use needs::{Need, Needs};
pub use offer::{
    MAX_OFFERS, McpOffers, Offer, OfferError, OfferFate, OfferKind, OfferLine, OfferRules,
    OfferTerms, UriRule, UriRuleError, offered,
};
pub use pin::{
    Change, ChangeKind, Fate, FileFault, Likeness, LoadReport, Loaded, LoadedTool,
    MAX_MANIFEST_BYTES, MAX_PINNED_FILE_BYTES, MAX_PINNED_FILES, Manifest, ManifestError,
    OtherServer, Part, PinnedFiles, PinnedTool, Refused, ReportLine, ServerName, ServerNameError,
    Severity, ShapeError, Terms, ToolRule, diff, load, load_pinned,
};
pub use progress::{Board, Listening, Progress, Told};
pub use reopening::{Opening, Reopening};
pub use serve::{
    Hearing, HostAsk, HostBlock, HostBody, HostCall, HostCompletion, HostMessage, HostProgress,
    HostRefusal, HostReply, HostResource, HostSays, HttpAnswer, HttpDoor, HttpTerms,
    MAX_MESSAGE_BYTES, ServeError, Served, ServedKinds, ServedTool, serve,
};
pub use session::{
    Answer, Asks, Block, Body, CallFailure, Leave, Link, MAX_URI_BYTES, NO_SUCH_RESOURCE, Resource,
    Session, SessionError,
};
pub use source::{McpTools, OpenError, PinnedTools, listed};
