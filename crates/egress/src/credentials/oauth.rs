//! Access tokens that are refreshed before they end (RFC 6749, section 6), one refresh at a time.
//!
//! A refresh runs in a task of its own: whoever waits may stop waiting, and what the endpoint gave is saved all the same.
//! The new tokens are in the owner's file before the first of them is used, since an endpoint that rotates refresh tokens
//! takes the old one back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_domain::ports::{Clock, Disposition};
use portcullis_domain::time::Timestamp;
use tokio::time::Instant;

use super::CredentialFault;
use super::endpoint::{Client, Grant, OAuthClient, PATIENCE, Question};
use super::login::{Bond, Login};
use super::tokens::Tokens;
use crate::egress::clear_is_local;
use crate::error::EgressError;
use crate::owned_file::{FileFault, Locked, try_lock};
use crate::secret::Secret;
use crate::target::Target;
use crate::transport::Transport;

/// How long before its end a token is no longer used.
const SKEW: Duration = Duration::from_secs(60);

/// How often another process's lock is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// Where and how a token is refreshed.
pub struct OAuthRule {
    question: Question,
    file: PathBuf,
}

impl OAuthRule {
    /// A token endpoint, which the client's rules have to admit; who asks; and the owner's file (0600) of tokens.
    ///
    /// # Errors
    /// An endpoint on plain http that is not this machine.
    pub fn new(endpoint: Target, client: OAuthClient, file: PathBuf) -> Result<Self, OAuthFault> {
        clear_is_local(&endpoint).map_err(|_| OAuthFault::Clear)?;
        let client = Client::from(client);
        Ok(Self { question: Question { endpoint, client, scope: None, resource: None }, file })
    }

    /// Asks for a narrower scope than the refresh token has: words with spaces between.
    #[must_use]
    pub fn scope(mut self, scope: &str) -> Self {
        self.question.scope = Some(scope.to_owned());
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
    /// The file is another login's: another server's, another issuer's, or it was made anew with other terms.
    #[error("its file is another login's")]
    Elsewhere,
    /// The client proves itself by a secret, and there is none.
    #[error("its client needs a secret, and none is configured")]
    NoSecret,
    /// The token has ended, and nothing gets another one.
    #[error("its token has ended, and there is none to get the next one with")]
    Ended,
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
    file: PathBuf,
    terms: Terms,
    state: Mutex<State>,
    /// Whoever refreshes holds it.
    turn: tokio::sync::Mutex<()>,
}

/// How the next token is asked for.
enum Terms {
    /// As the operator says.
    Rule(Question),
    /// As a login agreed, which stands in the file beside its tokens. A secret that the operator keeps is not there.
    Login { bond: Bond, client: Option<String>, secret: Option<Arc<Secret>> },
}

impl Terms {
    fn question(&self, stored: &Tokens) -> Result<Question, OAuthFault> {
        match (self, &stored.login) {
            (Self::Rule(question), None) => Ok(question.clone()),
            (Self::Login { bond, client, secret }, Some(login))
                if login.bond == *bond && login.is_of(client.as_deref()) =>
            {
                login.question(secret.as_ref())
            }
            _ => Err(OAuthFault::Elsewhere),
        }
    }
}

#[derive(Default)]
struct State {
    tokens: Option<Tokens>,
    /// The tokens are newer than the file.
    unsaved: bool,
    /// What a server did not take.
    doubted: Option<Arc<Secret>>,
    /// What the file has counts before what is here: somebody may have logged in again.
    reread: bool,
    /// How many refreshes have ended, and how the last one did.
    ended: u64,
    last: Option<OAuthFault>,
}

impl State {
    /// The token, if it is good for a while.
    fn fresh(&self, now: Timestamp) -> Option<Arc<Secret>> {
        let (secret, ends) = self.tokens.as_ref().filter(|_| !self.reread)?.access.as_ref()?;
        let doubted = self.doubted.as_ref().is_some_and(|doubted| doubted.matches(secret));
        (now.after(SKEW) < *ends && !doubted).then(|| Arc::clone(secret))
    }
}

impl OAuth {
    pub(super) fn new(rule: OAuthRule) -> Result<Self, CredentialFault> {
        // Read now, to be sure; what counts is what the file has when a token is needed.
        let host = rule.question.endpoint.host().to_owned();
        Tokens::read(&rule.file).map_err(|fault| match fault {
            OAuthFault::File(fault) => CredentialFault::File(fault),
            fault => CredentialFault::OAuth { name: host, fault },
        })?;
        Ok(Self::with(rule.file, Terms::Rule(rule.question)))
    }

    /// The tokens of a login.
    pub(super) fn of_login(login: Login) -> Self {
        let Login { agreed, client, secret, .. } = &login;
        let (bond, client, secret) = (agreed.bond.clone(), client.clone(), secret.clone());
        let terms = Terms::Login { bond, client, secret };
        Self::with(login.file, terms)
    }

    fn with(file: PathBuf, terms: Terms) -> Self {
        let turn = tokio::sync::Mutex::new(());
        Self(Arc::new(Shared { file, terms, state: Mutex::default(), turn }))
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

    /// A server wants more than this token is good for. A person may log in again: the file is read before the next use.
    pub(super) fn read_again(&self) {
        self.0.state().reread = true;
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
        let locked = lock(&self.file).await?;
        if self.state().unsaved {
            self.save(&locked)?;
        } else {
            let stored = Tokens::read(&self.file)?;
            self.terms.question(&stored)?;
            self.state().tokens = Some(stored);
        }
        self.state().reread = false;
        if let Some(secret) = self.state().fresh(clock.now()) {
            return Ok(secret);
        }
        let stored = self.state().tokens.clone().ok_or(OAuthFault::Tokens)?;
        let refresh = stored.refresh.clone().ok_or(OAuthFault::Ended)?;
        let question = self.terms.question(&stored)?;
        // A life counts from before the question, so that a slow answer makes no token live longer.
        let asked = clock.now();
        let granted = question.ask(transport, &Grant::Refresh(&refresh)).await?;
        let (access, tokens) = Tokens::granted(granted, asked, Some(refresh), stored.login)?;
        {
            let mut state = self.state();
            state.tokens = Some(tokens);
            state.unsaved = true;
        }
        self.save(&locked)?;
        Ok(access)
    }

    fn save(&self, locked: &Locked) -> Result<(), OAuthFault> {
        let tokens = self.state().tokens.clone().ok_or(OAuthFault::Tokens)?;
        tokens.write(locked)?;
        self.state().unsaved = false;
        Ok(())
    }
}

/// Waits for the file.
pub(super) async fn lock(file: &Path) -> Result<Locked, OAuthFault> {
    let ends = Instant::now() + PATIENCE;
    loop {
        if let Some(locked) = try_lock(file)? {
            return Ok(locked);
        }
        if Instant::now() >= ends {
            return Err(OAuthFault::Busy);
        }
        tokio::time::sleep(GLANCE).await;
    }
}
