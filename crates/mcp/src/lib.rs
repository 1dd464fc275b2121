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
mod pin;
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
pub use pin::{
    Change, ChangeKind, Fate, Likeness, LoadReport, Loaded, LoadedTool, MAX_MANIFEST_BYTES,
    Manifest, ManifestError, OtherServer, Part, PinnedTool, Refused, ReportLine, ServerName,
    ServerNameError, Severity, ShapeError, Terms, ToolRule, diff, load, load_pinned,
};
pub use serve::{
    Hearing, HostBlob, HostCall, HostReply, HttpAnswer, HttpDoor, HttpTerms, MAX_MESSAGE_BYTES,
    ServeError, Served, ServedTool, serve,
};
pub use session::{Answer, Block, CallFailure, Session, SessionError};
pub use source::{McpTools, OpenError, PinnedTools, listed};
