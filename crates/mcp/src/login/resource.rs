//! What a server says of itself as something that is protected (RFC 9728), and who gives tokens for it.

use portcullis_egress::{Egress, EgressRules, Target};
use serde::Deserialize;

use super::WayOut;
use super::challenge::Challenge;
use super::document::fetch;
use super::error::{LoginError, shown};
use super::reach;
use super::scope::Scopes;
use crate::client::HttpServer;

const WHAT: &str = "the server's metadata (RFC 9728)";

/// Where they are, before the path.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The most issuers that a server names.
const MAX_ISSUERS: usize = 16;

#[derive(Deserialize)]
struct Metadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<Vec<String>>,
}

/// A protected server.
#[derive(Debug)]
pub(super) struct Resource {
    /// What it calls itself, in its own spelling: what tokens are asked for.
    pub(super) id: String,
    issuers: Vec<String>,
    pub(super) scopes: Scopes,
}

/// Reads the metadata: where the server's refusal says, else below the well-known path with its own path, else there
/// without. What it calls itself has to be its address, or `resource` where the operator says so. That of the whole origin
/// is another one, also in the document of the origin: its token would be good for all that lies there, and MCP has clients
/// ask for the most specific resource that they know.
pub(super) async fn find(
    server: &HttpServer,
    challenge: &Challenge,
    resource: Option<&str>,
    way_out: WayOut<'_>,
) -> Result<Resource, LoginError> {
    let own = &server.target;
    let egress = way_out(reach::admit(EgressRules::closed(), own, server.reach)?)?;
    let said = match resource {
        Some(text) => parse(text)?,
        None => own.clone(),
    };
    if let Some(at) = challenge.metadata() {
        let at = parse(at)?;
        if at.origin() != own.origin() {
            return Err(LoginError::Place(
                WHAT,
                format!("`{}` is not the server's own", at.origin()),
            ));
        }
        let found = read(&egress, at).await?.ok_or(LoginError::Absent(WHAT))?;
        return found.of(&said);
    }
    if own.path() != "/" {
        let path = own.path().strip_suffix('/').unwrap_or(own.path());
        let at = parse(&format!("{}{WELL_KNOWN}{path}", own.origin()))?;
        if let Some(found) = read(&egress, at).await? {
            return found.of(&said);
        }
    }
    let at = parse(&format!("{}{WELL_KNOWN}", own.origin()))?;
    let found = read(&egress, at).await?.ok_or(LoginError::Absent(WHAT))?;
    found.of(&said)
}

fn parse(text: &str) -> Result<Target, LoginError> {
    reach::read(WHAT, text)
}

async fn read(egress: &Egress, at: Target) -> Result<Option<Metadata>, LoginError> {
    fetch(egress, at, WHAT).await
}

impl Metadata {
    /// The metadata, when they are of this one.
    fn of(self, expected: &Target) -> Result<Resource, LoginError> {
        if Target::parse(&self.resource).ok().as_ref() != Some(expected) {
            return Err(LoginError::OtherResource(shown(&self.resource)));
        }
        if self.authorization_servers.len() > MAX_ISSUERS {
            return Err(LoginError::Odd(WHAT, "it names too many issuers"));
        }
        let scopes = self.scopes_supported.unwrap_or_default();
        let scopes = Scopes::join(scopes.iter().map(String::as_str));
        Ok(Resource { id: self.resource, issuers: self.authorization_servers, scopes })
    }
}

impl Resource {
    /// The issuer that the operator confirmed, when the server names it, to the letter.
    pub(super) fn confirm(&self, confirmed: Option<&str>) -> Result<&str, LoginError> {
        let Some(confirmed) = confirmed else {
            return Err(LoginError::Unconfirmed(self.issuers.clone()));
        };
        let named = self.issuers.iter().find(|issuer| *issuer == confirmed).map(String::as_str);
        named.ok_or_else(|| LoginError::OtherIssuer(confirmed.to_owned(), self.issuers.clone()))
    }
}
