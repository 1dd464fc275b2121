//! Who logs in: a client that the issuer knows, one that it reads about, or one that registers itself (RFC 7591).

use portcullis_canon::{Limits, Object, Value, from_slice};
use portcullis_egress::{Egress, Method, OAuthClient, Request, Secret};
use serde::Deserialize;

use super::LoginTerms;
use super::document::short;
use super::error::{LoginError, shown};
use super::issuer::Issuer;

/// What a client registers as.
const NAME: &str = "Portcullis";

/// The longest id, and the longest answer, in bytes.
const MAX_ID_BYTES: usize = 1_024;
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// How clients prove themselves, what is least first.
const AUTHS: [&str; 3] = ["none", "client_secret_basic", "client_secret_post"];

/// A client of the issuer's.
pub(super) struct Registered {
    pub(super) id: String,
    pub(super) client: OAuthClient,
    /// The operator brought it, and keeps its secret.
    pub(super) known: bool,
    pub(super) redirect: String,
}

/// The operator's own client goes first, then their document, then a registration, each where it can be.
pub(super) async fn choose(
    terms: LoginTerms,
    issuer: &Issuer,
    egress: &Egress,
) -> Result<Registered, LoginError> {
    let redirect = terms.redirect;
    if let Some((id, secret)) = terms.client {
        let client = match secret {
            None => OAuthClient::Public { id: id.clone() },
            Some(secret) => confidential(&id, secret, issuer),
        };
        return Ok(Registered { id, client, known: true, redirect });
    }
    if let Some(id) = terms.document.filter(|_| issuer.reads_documents) {
        let client = OAuthClient::Public { id: id.clone() };
        return Ok(Registered { id, client, known: true, redirect });
    }
    match &issuer.registration {
        Some(_) if terms.register => {}
        _ => return Err(LoginError::NoClient),
    }
    let (id, client) = register(&redirect, issuer, egress).await?;
    Ok(Registered { id, client, known: false, redirect })
}

/// With its secret in the header, which all have to take, unless the issuer takes it in the body alone.
fn confidential(id: &str, secret: Secret, issuer: &Issuer) -> OAuthClient {
    let id = id.to_owned();
    if !issuer.takes("client_secret_basic") && issuer.takes("client_secret_post") {
        return OAuthClient::Posted { id, secret };
    }
    OAuthClient::Basic { id, secret }
}

/// RFC 7591, section 3.2.1. Members beyond these are let pass.
#[derive(Deserialize)]
struct Answer {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

/// What a registration says when it fails (section 3.2.2).
const CODES: [&str; 4] = [
    "invalid_redirect_uri",
    "invalid_client_metadata",
    "invalid_software_statement",
    "unapproved_software_statement",
];

#[derive(Deserialize)]
struct Refused {
    error: String,
}

async fn register(
    redirect: &str,
    issuer: &Issuer,
    egress: &Egress,
) -> Result<(String, OAuthClient), LoginError> {
    let no = |why: &str| LoginError::Unregistered(why.to_owned());
    let endpoint = issuer.registration.clone().ok_or(LoginError::NoClient)?;
    let auth = AUTHS.into_iter().find(|auth| issuer.takes(auth));
    let auth = auth.ok_or_else(|| no("it takes no proof of a client that there is here"))?;
    let request = Request::new(Method::Post, endpoint)
        .header("accept", "application/json")
        .and_then(|request| request.header("content-type", "application/json"))
        .map_err(|_| no("it cannot be asked"))?
        .body(metadata(redirect, auth).to_canonical())
        .deadlines(short())
        .max_body(MAX_ANSWER_BYTES);
    let answer = egress.send(request).await;
    let answer = answer.map_err(|error| no(&error.to_string()))?;
    if !matches!(answer.status, 200 | 201) {
        let said = from_slice::<Refused>(&answer.body, &Limits::BARE).ok();
        let code = said.and_then(|said| CODES.into_iter().find(|code| *code == said.error));
        let code = code.map_or_else(String::new, |code| format!(" (`{code}`)"));
        return Err(no(&format!("it answered with status {}{code}", answer.status)));
    }
    let answer: Answer = from_slice(&answer.body, &Limits::BARE)
        .map_err(|_| no("its answer is not as the standard has it"))?;
    read(answer, auth)
}

fn metadata(redirect: &str, auth: &str) -> Value {
    let texts = |texts: &[&str]| -> Value {
        texts.iter().map(|text| Value::from(*text)).collect::<Vec<_>>().into()
    };
    let mut object = Object::new();
    object.insert("client_name", NAME);
    object.insert("application_type", "native");
    object.insert("redirect_uris", texts(&[redirect]));
    object.insert("grant_types", texts(&["authorization_code", "refresh_token"]));
    object.insert("response_types", texts(&["code"]));
    object.insert("token_endpoint_auth_method", auth);
    Value::Object(object)
}

fn read(answer: Answer, asked: &str) -> Result<(String, OAuthClient), LoginError> {
    let no = |why: String| LoginError::Unregistered(why);
    let id = answer.client_id;
    if !(1..=MAX_ID_BYTES).contains(&id.len())
        || !id.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
    {
        return Err(no("the id that it gave is none".to_owned()));
    }
    let auth = answer.token_endpoint_auth_method.as_deref().unwrap_or(asked);
    if auth == "none" {
        return Ok((id.clone(), OAuthClient::Public { id }));
    }
    let secret = answer.client_secret.and_then(|text| Secret::new(text).ok());
    match (auth, secret) {
        ("client_secret_basic", Some(secret)) => {
            Ok((id.clone(), OAuthClient::Basic { id, secret }))
        }
        ("client_secret_post", Some(secret)) => {
            Ok((id.clone(), OAuthClient::Posted { id, secret }))
        }
        (auth, _) => Err(no(format!("it gave no secret for `{}`", shown(auth)))),
    }
}
