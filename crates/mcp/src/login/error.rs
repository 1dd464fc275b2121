//! Why a login came to nothing.

use portcullis_canon::sanitize;
use portcullis_egress::{EgressError, OAuthFault, RulesFault};

/// The most bytes of a stranger's text in a sentence.
const SHOWN_BYTES: usize = 200;

/// Why a login came to nothing. Every message is safe to print, and holds no token, code or secret.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// A document could not be asked for.
    #[error("{0} could not be read: {1}")]
    Unread(&'static str, Box<EgressError>),
    /// It is none, or is not one of the standard.
    #[error("{0} is not as the standard has it: {1}")]
    Odd(&'static str, &'static str),
    /// A document is at none of its places.
    #[error("{0} is at none of its places")]
    Absent(&'static str),
    /// An address in a document cannot be used.
    #[error("{0} names an address that is not gone to: {1}")]
    Place(&'static str, String),
    /// The metadata is of something else than the server.
    #[error(
        "the server calls itself `{0}`, which is not its address; if that is right, say so with `resource` in the configuration"
    )]
    OtherResource(String),
    /// The scopes that would be asked for are none.
    #[error(
        "the scopes that are asked for are not up to 64 words of RFC 6749, section 3.3, in 2,048 bytes; name those that you want with `scope` in the configuration"
    )]
    Scopes,
    /// Nobody said yet whose tokens count.
    #[error("nobody said yet whose tokens count; the server names {}", quoted(.0))]
    Unconfirmed(Vec<String>),
    /// Whose tokens count is not who the server names.
    #[error("the server names {}, and not the issuer that was confirmed, `{}`", quoted(.1), shown(.0))]
    OtherIssuer(String, Vec<String>),
    /// The issuer's metadata is another one's.
    #[error("the metadata of the issuer `{}` are those of `{}`", shown(.0), shown(.1))]
    Mismatch(String, String),
    /// It does not announce proofs of who began a login.
    #[error("the issuer does not announce PKCE with S256, without which nobody logs in")]
    NoPkce,
    /// There is no client.
    #[error(
        "the issuer knows no client of ours: name one with `client`, or a document that it may read with `document`, or allow `register`"
    )]
    NoClient,
    /// The client was not registered.
    #[error("the issuer registered no client: {0}")]
    Unregistered(String),
    /// The rules cannot admit an address.
    #[error(transparent)]
    Rules(#[from] RulesFault),
    /// The answer cannot be used.
    #[error(transparent)]
    Answer(#[from] super::AnswerError),
    /// No tokens came of it.
    #[error("no token came of the login: {0}")]
    Token(OAuthFault),
}

/// A stranger's text, safe and short.
pub(super) fn shown(text: &str) -> String {
    sanitize::clip(&sanitize::line(text), SHOWN_BYTES)
}

fn quoted(issuers: &[String]) -> String {
    let all: Vec<_> = issuers.iter().map(|issuer| format!("`{}`", shown(issuer))).collect();
    if all.is_empty() { "nobody".to_owned() } else { all.join(", ") }
}
