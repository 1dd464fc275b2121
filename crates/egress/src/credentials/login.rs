//! A login that a person made: who gives the tokens, for what and to whom, kept beside the tokens themselves.
//!
//! Tokens go to the server that they were given for and to no other, and are refreshed at the endpoint that the issuer
//! named at the login. So whoever changes either logs in again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_domain::ports::Clock;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::endpoint::{Auth, Client, Grant, OAuthClient, Question};
use super::oauth::{OAuthFault, lock};
use super::tokens::Tokens;
use crate::egress::clear_is_local;
use crate::owned_file::{can_be_replaced, try_lock};
use crate::secret::Secret;
use crate::target::Target;
use crate::transport::Transport;

/// What binds tokens: another value of any of these is another login. Beside it stands the client, where the operator named
/// one; one that a login registers is another one after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bond {
    server: String,
    resource: String,
    issuer: String,
    endpoint: Target,
}

/// What was agreed at a login.
#[derive(Clone)]
pub struct Agreed {
    pub(super) bond: Bond,
    client: Client,
    /// The client's secret is written into the file; else the operator keeps it elsewhere.
    keeps_secret: bool,
    scope: Option<String>,
}

impl Agreed {
    /// Tokens for `server`, by its address, which calls itself `resource`; from `issuer`, whose token endpoint is
    /// `endpoint`; for this client.
    ///
    /// # Errors
    /// An endpoint on plain http that is not this machine.
    pub fn new(
        server: &Target,
        resource: &str,
        issuer: &str,
        endpoint: Target,
        client: OAuthClient,
    ) -> Result<Self, OAuthFault> {
        clear_is_local(&endpoint).map_err(|_| OAuthFault::Clear)?;
        let bond = Bond {
            server: server.text().to_owned(),
            resource: resource.to_owned(),
            issuer: issuer.to_owned(),
            endpoint,
        };
        Ok(Self { bond, client: client.into(), keeps_secret: true, scope: None })
    }

    /// The operator keeps the client's secret elsewhere: it is not written into the file.
    #[must_use]
    pub const fn secret_elsewhere(mut self) -> Self {
        self.keeps_secret = false;
        self
    }

    /// The scope that was asked for: words with spaces between.
    #[must_use]
    pub fn scope(mut self, scope: Option<&str>) -> Self {
        self.scope = scope.map(str::to_owned);
        self
    }

    /// How a token is asked for. `secret` is the one that the operator keeps.
    pub(super) fn question(&self, secret: Option<&Arc<Secret>>) -> Result<Question, OAuthFault> {
        let mut client = self.client.clone();
        client.secret = client.secret.or_else(|| secret.map(Arc::clone));
        if client.auth != Auth::None && client.secret.is_none() {
            return Err(OAuthFault::NoSecret);
        }
        // A refreshed token has the scope of the one before.
        let resource = Some(self.bond.resource.clone());
        Ok(Question { endpoint: self.bond.endpoint.clone(), client, scope: None, resource })
    }

    /// Whether it was this client that logged in; without one, any did.
    pub(super) fn is_of(&self, client: Option<&str>) -> bool {
        client.is_none_or(|client| client == self.client.id)
    }

    pub(super) fn stored(&self) -> StoredLogin {
        let secret = self.client.secret.as_ref().filter(|_| self.keeps_secret);
        StoredLogin {
            server: self.bond.server.clone(),
            resource: self.bond.resource.clone(),
            issuer: self.bond.issuer.clone(),
            token_endpoint: self.bond.endpoint.text().to_owned(),
            client_id: self.client.id.clone(),
            client_auth: self.client.auth,
            client_secret: secret.map(|secret| secret.expose().to_owned()),
            scope: self.scope.clone(),
        }
    }

    pub(super) fn read(stored: StoredLogin) -> Result<Self, OAuthFault> {
        let endpoint = Target::parse(&stored.token_endpoint).map_err(|_| OAuthFault::Tokens)?;
        clear_is_local(&endpoint).map_err(|_| OAuthFault::Clear)?;
        let secret = stored.client_secret.map(Secret::new).transpose();
        let secret = secret.map_err(|_| OAuthFault::Tokens)?.map(Arc::new);
        let (server, resource, issuer) = (stored.server, stored.resource, stored.issuer);
        let keeps_secret = secret.is_some();
        let client = Client { id: stored.client_id, auth: stored.client_auth, secret };
        let bond = Bond { server, resource, issuer, endpoint };
        Ok(Self { bond, client, keeps_secret, scope: stored.scope })
    }
}

/// What the file has of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredLogin {
    server: String,
    resource: String,
    issuer: String,
    token_endpoint: String,
    client_id: String,
    client_auth: Auth,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// The code of an authorization answer, and what it is traded with. It is good once.
pub struct LoginCode {
    code: Zeroizing<String>,
    verifier: Zeroizing<String>,
    redirect: String,
}

impl LoginCode {
    /// A code; the verifier whose challenge stood in the request for it (RFC 7636); the address that it was sent to.
    #[must_use]
    pub const fn new(
        code: Zeroizing<String>,
        verifier: Zeroizing<String>,
        redirect: String,
    ) -> Self {
        Self { code, verifier, redirect }
    }

    /// Trades it for tokens, which are in the file before anybody uses them.
    pub(crate) async fn redeem(
        self,
        agreed: Agreed,
        LoginFile(file): &LoginFile,
        transport: &Transport,
        clock: &dyn Clock,
    ) -> Result<(), OAuthFault> {
        // Who refreshes what is there now does so before, or finds the new ones.
        let locked = lock(file).await?;
        let asked = clock.now();
        let Self { code, verifier, redirect } = &self;
        let grant = Grant::Code { code, verifier, redirect };
        let granted = agreed.question(None)?.ask(transport, &grant).await?;
        Tokens::granted(granted, asked, None, Some(Arc::new(agreed)))?.1.write(&locked)
    }
}

/// The owner's file (0600) for the tokens of a login, which could be written when it was looked at: so that nobody consents to
/// what cannot be kept.
#[derive(Clone, Debug)]
pub struct LoginFile(PathBuf);

impl LoginFile {
    /// Looks at the place. What is there is replaced later; now a file is written beside it and taken away again.
    ///
    /// # Errors
    /// A folder that is not safe or cannot be written, or something in the place that is no file of one's own.
    pub fn at(path: &Path) -> Result<Self, OAuthFault> {
        can_be_replaced(path)?;
        // Whoever holds the lock is writing it.
        if let Some(locked) = try_lock(path)? {
            locked.rehearse()?;
        }
        Ok(Self(path.to_owned()))
    }
}

/// A login as its file has it.
pub struct Login {
    pub(super) file: PathBuf,
    pub(super) agreed: Arc<Agreed>,
    /// The client that the operator named.
    pub(super) client: Option<String>,
    pub(super) secret: Option<Arc<Secret>>,
}

impl Login {
    /// Reads the file (0600). `secret` is that of the client, where the operator keeps it elsewhere. Nothing is sent.
    ///
    /// # Errors
    /// A file that is not safe, or not there, or holds no login.
    pub fn read(file: &Path, secret: Option<Secret>) -> Result<Self, OAuthFault> {
        let agreed = Tokens::read(file)?.login.ok_or(OAuthFault::Tokens)?;
        let secret = secret.map(Arc::new);
        agreed.question(secret.as_ref())?;
        Ok(Self { file: file.to_owned(), agreed, client: None, secret })
    }

    /// The same, held to the client that the operator named: now, and whenever the file is read again.
    ///
    /// # Errors
    /// [`OAuthFault::Elsewhere`].
    pub fn of_client(self, id: &str) -> Result<Self, OAuthFault> {
        let client = Some(id.to_owned());
        if self.agreed.is_of(client.as_deref()) {
            Ok(Self { client, ..self })
        } else {
            Err(OAuthFault::Elsewhere)
        }
    }

    /// Whether its tokens are for this server.
    ///
    /// # Errors
    /// [`OAuthFault::Elsewhere`].
    pub fn check(&self, server: &Target) -> Result<(), OAuthFault> {
        let own = self.agreed.bond.server == server.text();
        if own { Ok(()) } else { Err(OAuthFault::Elsewhere) }
    }

    /// Where its tokens are refreshed. The rules have to admit it.
    #[must_use]
    pub fn endpoint(&self) -> &Target {
        &self.agreed.bond.endpoint
    }

    /// Who gives its tokens.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.agreed.bond.issuer
    }

    /// The id of its client.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.agreed.client.id
    }

    /// The scope that was asked for.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.agreed.scope.as_deref()
    }
}
