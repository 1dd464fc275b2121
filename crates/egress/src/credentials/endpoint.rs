//! One request to a token endpoint (RFC 6749): who asks, what is given for a token, and how the answer is read.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, from_slice};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::basic;
use super::oauth::OAuthFault;
use crate::request::{Method, Request};
use crate::response::Response;
use crate::rules::Deadlines;
use crate::secret::Secret;
use crate::target::Target;
use crate::transport::Transport;

/// The longest answer of an endpoint, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// How long a request may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How a client says who it is to the token endpoint (RFC 6749, section 2.3).
pub enum OAuthClient {
    /// By its id alone.
    Public {
        /// The id.
        id: String,
    },
    /// By id and secret in a header, which is what the standard asks servers to support.
    Basic {
        /// The id.
        id: String,
        /// The client's secret.
        secret: Secret,
    },
    /// By id and secret in the body, for servers that know nothing else.
    Posted {
        /// The id.
        id: String,
        /// The client's secret.
        secret: Secret,
    },
}

/// The same, to be asked with more than once. A secret may be missing until the question is put.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) auth: Auth,
    pub(super) secret: Option<Arc<Secret>>,
}

/// How a client proves that it is the one, by the names of RFC 7591.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Auth {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Posted,
}

impl From<OAuthClient> for Client {
    fn from(client: OAuthClient) -> Self {
        let (id, auth, secret) = match client {
            OAuthClient::Public { id } => (id, Auth::None, None),
            OAuthClient::Basic { id, secret } => (id, Auth::Basic, Some(secret)),
            OAuthClient::Posted { id, secret } => (id, Auth::Posted, Some(secret)),
        };
        Self { id, auth, secret: secret.map(Arc::new) }
    }
}

impl Client {
    /// The secret, where it needs one.
    fn secret(&self) -> Result<&Secret, OAuthFault> {
        self.secret.as_deref().ok_or(OAuthFault::NoSecret)
    }
}

/// What is given for a token.
pub(super) enum Grant<'a> {
    /// A token that gets others (section 6).
    Refresh(&'a Secret),
    /// The code of a login, with what proves who began it (section 4.1.3, and RFC 7636).
    Code { code: &'a str, verifier: &'a str, redirect: &'a str },
}

/// A question to a token endpoint.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) endpoint: Target,
    pub(super) client: Client,
    pub(super) scope: Option<String>,
    /// What the token is for (RFC 8707).
    pub(super) resource: Option<String>,
}

impl Question {
    /// Asks once.
    pub(super) async fn ask(
        &self,
        transport: &Transport,
        grant: &Grant<'_>,
    ) -> Result<Granted, OAuthFault> {
        let deadlines = Deadlines { header: PATIENCE, idle: PATIENCE, total: PATIENCE };
        let request = Request::new(Method::Post, self.endpoint.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .and_then(|request| request.header("accept", "application/json"))
            .map_err(|_| OAuthFault::Broken)?
            .body(self.form(grant)?)
            .deadlines(deadlines)
            .max_body(MAX_ANSWER);
        let endpoint = |error| OAuthFault::Endpoint(Box::new(error));
        let opened = transport.open(request, self.authorization()?, Instant::now()).await;
        let answer = opened.map_err(endpoint)?.whole().await.map_err(endpoint)?;
        granted(&answer)
    }

    fn form(&self, grant: &Grant<'_>) -> Result<Vec<u8>, OAuthFault> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        match grant {
            Grant::Refresh(token) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("refresh_token", token.expose());
                if let Some(scope) = &self.scope {
                    form.append_pair("scope", scope);
                }
            }
            // The scope was asked for at the login.
            Grant::Code { code, verifier, redirect } => {
                form.append_pair("grant_type", "authorization_code");
                form.append_pair("code", code);
                form.append_pair("code_verifier", verifier);
                form.append_pair("redirect_uri", redirect);
            }
        }
        if let Some(resource) = &self.resource {
            form.append_pair("resource", resource);
        }
        let id = &self.client.id;
        match self.client.auth {
            Auth::None => {
                form.append_pair("client_id", id);
            }
            Auth::Posted => {
                let secret = self.client.secret()?;
                form.append_pair("client_id", id).append_pair("client_secret", secret.expose());
            }
            Auth::Basic => {}
        }
        Ok(form.finish().into_bytes())
    }

    fn authorization(&self) -> Result<Option<(HeaderName, HeaderValue)>, OAuthFault> {
        if self.client.auth != Auth::Basic {
            return Ok(None);
        }
        let secret = self.client.secret()?;
        let encoded =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let secret = Zeroizing::new(encoded(secret.expose()));
        let value = basic(&encoded(&self.client.id), &secret);
        let value = HeaderValue::from_str(&value).map_err(|_| OAuthFault::Broken)?;
        Ok(Some((AUTHORIZATION, value)))
    }
}

/// RFC 6749, section 5.1. Members beyond these are let pass, as the standard asks.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) access_token: String,
    token_type: String,
    pub(super) expires_in: Option<u64>,
    pub(super) refresh_token: Option<String>,
}

/// RFC 6749, section 5.2.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// The codes of RFC 6749 and RFC 8707. Others are not repeated, since a stranger chose them.
const CODES: &[&str] = &[
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
];

fn granted(answer: &Response) -> Result<Granted, OAuthFault> {
    let limits = Limits::BARE;
    if answer.disposition().is_some() {
        let status = OAuthFault::Status(answer.status);
        if !matches!(answer.status, 400 | 401) {
            return Err(status);
        }
        let refused = from_slice::<Refused>(&answer.body, &limits).map_err(|_| status.clone())?;
        let code = CODES.iter().find(|code| **code == refused.error);
        return Err(code.map_or(status, |code| OAuthFault::Refused(code)));
    }
    let granted: Granted = from_slice(&answer.body, &limits).map_err(|_| OAuthFault::Answer)?;
    // A token of another kind would be sent in a way that it is not meant for.
    if granted.token_type.eq_ignore_ascii_case("bearer") {
        Ok(granted)
    } else {
        Err(OAuthFault::Answer)
    }
}
