//! Logging in at the issuer of a server's tokens (OAuth 2.1, as the authorization pages of MCP have it).
//!
//! [`begin`] finds out who gives tokens for a server, holds that against the operator's word, and makes a request for a
//! person to open; [`Asked`] holds the answer against the request and trades it for tokens. Nothing here opens a browser,
//! follows a redirect, or sees a token: tokens go from the issuer's endpoint into the owner's file within `egress`.

mod answer;
mod challenge;
mod client;
mod document;
mod error;
mod issuer;
mod reach;
mod resource;
mod scope;

use portcullis_domain::ports::Entropy;
use portcullis_egress::{Agreed, Egress, EgressRules, LoginFile, Reach, RulesFault, Secret};

use self::answer::Trade;
pub use self::answer::{AnswerError, Asked};
pub use self::challenge::{Challenge, Challenges};
pub use self::error::LoginError;
pub use self::reach::admit_endpoint;
use crate::client::HttpServer;

/// How requests leave: it makes a client of rules.
pub type WayOut<'a> = &'a (dyn Fn(EgressRules) -> Result<Egress, RulesFault> + Send + Sync);

/// What the operator says of the login to one server.
pub struct LoginTerms {
    /// Whose tokens count. Without it [`begin`] ends with [`LoginError::Unconfirmed`], which names who offers them.
    pub issuer: Option<String>,
    /// What the server calls itself, where that is not its address.
    pub resource: Option<String>,
    /// A client that the issuer knows already: its id, and its secret where it has one.
    pub client: Option<(String, Option<Secret>)>,
    /// The URL of a document that describes the client, which is its id then.
    pub document: Option<String>,
    /// Whether the client may register itself.
    pub register: bool,
    /// The scopes in place of those that the server asks for, with spaces between.
    pub scope: Option<String>,
    /// Scopes that an earlier login of the same kind asked for, where this one is for more: they are asked for again beside
    /// the new ones. Without them the new ones alone are asked for.
    pub former_scope: Option<String>,
    /// What may be behind the issuer's name.
    pub reach: Reach,
    /// Where the answer is sent to: an address of this machine.
    pub redirect: String,
    /// Where the tokens will lie.
    pub tokens: LoginFile,
}

/// Finds out where to log in, and makes the request for it. `challenge` is what the server said when it refused.
///
/// # Errors
/// [`LoginError`]: whatever is missing, differs or cannot be read ends the login.
pub async fn begin(
    server: &HttpServer,
    challenge: &Challenge,
    terms: LoginTerms,
    way_out: WayOut<'_>,
    entropy: &dyn Entropy,
) -> Result<Asked, LoginError> {
    let resource = resource::find(server, challenge, terms.resource.as_deref(), way_out).await?;
    let named = resource.confirm(terms.issuer.as_deref())?;
    let issuer = issuer::find(named, terms.reach, way_out).await?;
    let scope = scope::choose(&terms, challenge, &resource, &issuer)?;
    let egress = issuer.client(terms.reach, way_out)?;
    let tokens = terms.tokens.clone();
    let registered = client::choose(terms, &issuer, &egress).await?;
    let agreed = Agreed::new(
        &server.target,
        &resource.id,
        &issuer.id,
        issuer.token.clone(),
        registered.client,
    );
    let agreed = agreed.map_err(LoginError::Token)?.scope(scope.as_deref());
    let agreed = if registered.known { agreed.secret_elsewhere() } else { agreed };
    let (id, redirect) = (registered.id, registered.redirect);
    let scope = scope.as_deref();
    let trade = Trade { redirect, agreed, egress, tokens };
    Ok(Asked::new(&issuer, &id, &resource.id, scope, trade, entropy))
}
