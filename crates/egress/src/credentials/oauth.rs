//! Access tokens that are refreshed before they end (RFC 6749, section 6), one refresh at a time.
//!
//! A refresh runs in a task of its own: whoever waits may stop waiting, and what the endpoint gave is saved all the same.
//! The new tokens are in the owner's file before the first of them is used, since an endpoint that rotates refresh tokens
//! takes the old one back.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_canon::{Limits, from_slice};
use portcullis_domain::ports::{Clock, Disposition};
use portcullis_domain::time::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::basic;
use super::tokens::Tokens;
use crate::egress::clear_is_local;
use crate::error::EgressError;
use crate::owned_file::{FileFault, Locked, try_lock};
use crate::request::{Method, Request};
use crate::response::Response;
use crate::rules::Deadlines;
use crate::secret::Secret;
use crate::target::Target;
use crate::transport::Transport;

/// How long before its end a token is no longer used.
const SKEW: Duration = Duration::from_secs(60);

/// How long a token lives when the endpoint does not say.
const UNSAID: u64 = 300;

/// The longest life that is believed, in seconds: a year.
const MAX_LIFE: u64 = 365 * 24 * 3600;

/// The longest answer of an endpoint, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// How long a refresh may take, and how long another process's is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often another process's lock is looked at.
const GLANCE: Duration = Duration::from_millis(20);

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

/// Where and how a token is refreshed.
pub struct OAuthRule {
    endpoint: Target,
    client: OAuthClient,
    file: PathBuf,
    scope: Option<String>,
}

impl OAuthRule {
    /// A token endpoint, which the client's rules have to admit; who asks; and the owner's file (0600) of tokens.
    ///
    /// # Errors
    /// An endpoint on plain http that is not this machine.
    pub fn new(endpoint: Target, client: OAuthClient, file: PathBuf) -> Result<Self, OAuthFault> {
        clear_is_local(&endpoint).map_err(|_| OAuthFault::Clear)?;
        Ok(Self { endpoint, client, file, scope: None })
    }

    /// Asks for a narrower scope than the refresh token has: words with spaces between.
    #[must_use]
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = Some(scope.to_owned());
        self
    }
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthFault {
    /// The endpoint is on plain http.
    #[error("its endpoint is on plain http, where everybody can read along")]
    Clear,
    /// The file is not safe, or not there.
    #[error("{0}")]
    File(#[from] FileFault),
    /// The file has another form.
    #[error("its file does not hold tokens in the form that docs/egress.md describes")]
    Tokens,
    /// New tokens are there and could not be saved.
    #[error("the new token could not be saved and is kept in memory: {0}")]
    NotSaved(FileFault),
    /// Another process has been refreshing all the time.
    #[error("another process holds its file")]
    Busy,
    /// The endpoint could not be asked.
    #[error("{0}")]
    Endpoint(Box<EgressError>),
    /// The endpoint said no, with a code of RFC 6749.
    #[error("the token endpoint refused (`{0}`); sign in again, or mend the client")]
    Refused(&'static str),
    /// The endpoint answered with a status and without a code of the standard.
    #[error("the token endpoint answered with status {0}")]
    Status(u16),
    /// The answer is not one of the standard.
    #[error("the token endpoint's answer cannot be used")]
    Answer,
    /// The task that refreshed came to a bad end.
    #[error("the refresh was broken off; this is a fault of the program")]
    Broken,
}

impl OAuthFault {
    /// What to do about it.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Busy | Self::Status(408 | 429 | 500..=599) => Disposition::Retry,
            Self::Endpoint(error) => error.disposition(),
            Self::Broken => Disposition::Bug,
            _ => Disposition::Operator,
        }
    }
}

/// A token that looks after itself. Clones share it.
#[derive(Clone)]
pub(super) struct OAuth(Arc<Shared>);

struct Shared {
    rule: OAuthRule,
    state: Mutex<State>,
    /// Whoever refreshes holds it.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    tokens: Option<Tokens>,
    /// The tokens are newer than the file.
    unsaved: bool,
    /// What a server did not take.
    doubted: Option<Arc<Secret>>,
    /// How many refreshes have ended, and how the last one did.
    ended: u64,
    last: Option<OAuthFault>,
}

impl State {
    /// The token, if it is good for a while.
    fn fresh(&self, now: Timestamp) -> Option<Arc<Secret>> {
        let (secret, ends) = self.tokens.as_ref()?.access.as_ref()?;
        let doubted = self.doubted.as_ref().is_some_and(|doubted| doubted.matches(secret));
        (now.after(SKEW) < *ends && !doubted).then(|| Arc::clone(secret))
    }
}

impl OAuth {
    pub(super) fn new(rule: OAuthRule) -> Result<Self, super::CredentialFault> {
        // Read now, to be sure; what counts is what the file has when a token is needed.
        Tokens::read(&rule.file).map_err(|fault| match fault {
            OAuthFault::File(fault) => super::CredentialFault::File(fault),
            fault => super::CredentialFault::OAuth { name: rule.endpoint.host().to_owned(), fault },
        })?;
        let turn = tokio::sync::Mutex::new(());
        Ok(Self(Arc::new(Shared { rule, state: Mutex::default(), turn })))
    }

    /// A token that is good for a while.
    pub(super) async fn token(
        &self,
        transport: &Arc<Transport>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Arc<Secret>, OAuthFault> {
        let seen = {
            let state = self.0.state();
            if let Some(secret) = state.fresh(clock.now()).filter(|_| !state.unsaved) {
                return Ok(secret);
            }
            state.ended
        };
        let (shared, transport) = (Arc::clone(&self.0), Arc::clone(transport));
        let clock = Arc::clone(clock);
        let task =
            tokio::spawn(async move { shared.take_turn(seen, &transport, clock.as_ref()).await });
        task.await.map_err(|_| OAuthFault::Broken)?
    }

    /// A server did not take this token.
    pub(super) fn doubt(&self, secret: &Arc<Secret>) {
        self.0.state().doubted = Some(Arc::clone(secret));
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn, and refreshes unless somebody else did while this one waited, with whatever result.
    async fn take_turn(
        &self,
        seen: u64,
        transport: &Transport,
        clock: &dyn Clock,
    ) -> Result<Arc<Secret>, OAuthFault> {
        let _turn = self.turn.lock().await;
        {
            let state = self.state();
            if let Some(secret) = state.fresh(clock.now()).filter(|_| !state.unsaved) {
                return Ok(secret);
            }
            if state.ended != seen
                && let Some(fault) = &state.last
            {
                return Err(fault.clone());
            }
        }
        let refreshed = self.refresh(transport, clock).await;
        let mut state = self.state();
        state.ended += 1;
        state.last = refreshed.as_ref().err().cloned();
        refreshed
    }

    /// Under the lock of the file: saves what is unsaved, else takes what another process left, else asks the endpoint.
    async fn refresh(
        &self,
        transport: &Transport,
        clock: &dyn Clock,
    ) -> Result<Arc<Secret>, OAuthFault> {
        let _locked = self.lock_file().await?;
        if self.state().unsaved {
            self.save()?;
        } else {
            let stored = Tokens::read(&self.rule.file)?;
            self.state().tokens = Some(stored);
        }
        if let Some(secret) = self.state().fresh(clock.now()) {
            return Ok(secret);
        }
        let refresh = self.state().tokens.as_ref().map(|tokens| Arc::clone(&tokens.refresh));
        let refresh = refresh.ok_or(OAuthFault::Tokens)?;
        // A life counts from before the question, so that a slow answer makes no token live longer.
        let asked = clock.now();
        let granted = self.ask(transport, &refresh).await?;
        let life = granted.expires_in.unwrap_or(UNSAID).min(MAX_LIFE);
        let secret = |text| Secret::new(text).map(Arc::new).map_err(|_| OAuthFault::Answer);
        let access = secret(granted.access_token)?;
        let refresh = granted.refresh_token.map_or(Ok(refresh), secret)?;
        let ends = asked.after(Duration::from_secs(life));
        {
            let mut state = self.state();
            state.tokens = Some(Tokens { access: Some((Arc::clone(&access), ends)), refresh });
            state.unsaved = true;
        }
        self.save()?;
        Ok(access)
    }

    async fn lock_file(&self) -> Result<Locked, OAuthFault> {
        let ends = Instant::now() + PATIENCE;
        loop {
            if let Some(locked) = try_lock(&self.rule.file)? {
                return Ok(locked);
            }
            if Instant::now() >= ends {
                return Err(OAuthFault::Busy);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    fn save(&self) -> Result<(), OAuthFault> {
        let tokens = self.state().tokens.clone().ok_or(OAuthFault::Tokens)?;
        tokens.write(&self.rule.file)?;
        self.state().unsaved = false;
        Ok(())
    }

    /// Asks the token endpoint.
    async fn ask(&self, transport: &Transport, refresh: &Secret) -> Result<Granted, OAuthFault> {
        let deadlines = Deadlines { header: PATIENCE, idle: PATIENCE, total: PATIENCE };
        let request = Request::new(Method::Post, self.rule.endpoint.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .and_then(|request| request.header("accept", "application/json"))
            .map_err(|_| OAuthFault::Broken)?
            .body(self.form(refresh))
            .deadlines(deadlines)
            .max_body(MAX_ANSWER);
        let endpoint = |error| OAuthFault::Endpoint(Box::new(error));
        let opened = transport.open(request, self.authorization()?, Instant::now()).await;
        let answer = opened.map_err(endpoint)?.whole().await.map_err(endpoint)?;
        granted(&answer)
    }

    fn form(&self, refresh: &Secret) -> Vec<u8> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "refresh_token");
        form.append_pair("refresh_token", refresh.expose());
        if let Some(scope) = &self.rule.scope {
            form.append_pair("scope", scope);
        }
        match &self.rule.client {
            OAuthClient::Public { id } => {
                form.append_pair("client_id", id);
            }
            OAuthClient::Posted { id, secret } => {
                form.append_pair("client_id", id).append_pair("client_secret", secret.expose());
            }
            OAuthClient::Basic { .. } => {}
        }
        form.finish().into_bytes()
    }

    fn authorization(&self) -> Result<Option<(HeaderName, HeaderValue)>, OAuthFault> {
        let OAuthClient::Basic { id, secret } = &self.rule.client else { return Ok(None) };
        let encoded =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let secret = Zeroizing::new(encoded(secret.expose()));
        let value = basic(&encoded(id), &secret);
        let value = HeaderValue::from_str(&value).map_err(|_| OAuthFault::Broken)?;
        Ok(Some((AUTHORIZATION, value)))
    }
}

/// RFC 6749, section 5.1. Members beyond these are let pass, as the standard asks.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
}

/// RFC 6749, section 5.2.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// The codes of RFC 6749. Others are not repeated, since a stranger chose them.
const CODES: &[&str] = &[
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
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
