//! What an issuer says of itself (RFC 8414, and OpenID Connect Discovery 1.0), held against its own name.

use portcullis_egress::{Egress, EgressRules, Reach, Target};
use serde::Deserialize;

use super::document::fetch;
use super::error::LoginError;
use super::{WayOut, reach};

const WHAT: &str = "the issuer's metadata (RFC 8414)";

/// The one way to prove who began a login.
const S256: &str = "S256";

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// An issuer whose metadata are its own.
pub(super) struct Issuer {
    /// Its name, to the letter.
    pub(super) id: String,
    /// What a person opens.
    pub(super) authorization: Target,
    /// Where tokens come from.
    pub(super) token: Target,
    pub(super) registration: Option<Target>,
    pub(super) scopes: Vec<String>,
    /// How clients prove themselves; nothing where it does not say.
    pub(super) auth: Option<Vec<String>>,
    /// Whether it reads documents that describe clients.
    pub(super) reads_documents: bool,
    /// Whether its answers name it (RFC 9207).
    pub(super) names_itself: bool,
}

/// Reads the metadata at the places that the protocol names, in its order. The first that is there counts.
pub(super) async fn find(
    issuer: &str,
    reach: Reach,
    way_out: WayOut<'_>,
) -> Result<Issuer, LoginError> {
    let named = reach::read(WHAT, issuer)?;
    let egress = way_out(reach::admit(EgressRules::closed(), &named, reach)?)?;
    for place in places(&named) {
        let at = reach::read(WHAT, &place)?;
        if let Some(found) = fetch::<Metadata>(&egress, at, WHAT).await? {
            return found.of(issuer, reach);
        }
    }
    Err(LoginError::Absent(WHAT))
}

/// With the path of the issuer behind the well-known one, and for OpenID before it too.
fn places(issuer: &Target) -> Vec<String> {
    let (origin, path) = (issuer.origin(), issuer.path());
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut places = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    places
}

impl Metadata {
    fn of(self, issuer: &str, reach: Reach) -> Result<Issuer, LoginError> {
        if self.issuer != issuer {
            return Err(LoginError::Mismatch(issuer.to_owned(), self.issuer));
        }
        if !self.code_challenge_methods_supported.iter().any(|method| method == S256) {
            return Err(LoginError::NoPkce);
        }
        let endpoint = |text: Option<String>| {
            let text = text.ok_or(LoginError::Odd(WHAT, "an endpoint is missing"))?;
            reach::read(WHAT, &text)
        };
        let authorization = endpoint(self.authorization_endpoint)?;
        // A person's browser goes there, and it reaches what only this machine and its network do. So it has to be a place
        // that this program would go to.
        reach::admit_endpoint(EgressRules::closed(), &authorization, issuer, reach)?;
        Ok(Issuer {
            id: self.issuer,
            authorization,
            token: endpoint(self.token_endpoint)?,
            registration: self
                .registration_endpoint
                .map(|text| endpoint(Some(text)))
                .transpose()?,
            scopes: self.scopes_supported,
            auth: self.token_endpoint_auth_methods_supported,
            reads_documents: self.client_id_metadata_document_supported,
            names_itself: self.authorization_response_iss_parameter_supported,
        })
    }
}

impl Issuer {
    /// A client that reaches its endpoints and nothing else.
    pub(super) fn client(&self, reach: Reach, way_out: WayOut<'_>) -> Result<Egress, LoginError> {
        let mut rules = EgressRules::closed();
        for endpoint in std::iter::once(&self.token).chain(&self.registration) {
            rules = reach::admit_endpoint(rules, endpoint, &self.id, reach)?;
        }
        Ok(way_out(rules)?)
    }

    /// Whether clients may prove themselves so. Where it does not say, the standard says `client_secret_basic`.
    pub(super) fn takes(&self, auth: &str) -> bool {
        match &self.auth {
            Some(auths) => auths.iter().any(|known| known == auth),
            None => auth == "client_secret_basic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_those_of_the_protocol_in_its_order() {
        let of = |text: &str| places(&Target::parse(text).unwrap());
        assert_eq!(
            of("https://a.example"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(of("https://a.example/"), of("https://a.example"));
        assert_eq!(
            of("https://a.example/t/1"),
            [
                "https://a.example/.well-known/oauth-authorization-server/t/1",
                "https://a.example/.well-known/openid-configuration/t/1",
                "https://a.example/t/1/.well-known/openid-configuration"
            ]
        );
    }
}
