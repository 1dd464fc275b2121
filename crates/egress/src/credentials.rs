//! The one store of credentials: by name, each bound to the places that it may go to, handed out only to the edge of a
//! request.

mod endpoint;
mod login;
mod oauth;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_domain::ports::{Clock, Disposition};
use reqwest::header::{AUTHORIZATION, HeaderName};
use zeroize::Zeroizing;

pub use endpoint::OAuthClient;
pub use login::{Agreed, Login, LoginCode, LoginFile};
pub use oauth::{OAuthFault, OAuthRule};

use crate::echo::Echo;
use crate::error::Fault;
use crate::owned_file::{FileFault, Guard, read};
use crate::request::{HeaderFault, header_name};
use crate::secret::{MAX_SECRET, Secret, SecretFault, shown};
use crate::target::{Target, TargetFault};
use crate::transport::Transport;
use oauth::OAuth;

/// Why a credential cannot be had. Names it, and never shows any of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// Nothing of that name is configured.
    #[error("there is no credential `{name}`; configure one")]
    Unknown {
        /// The name that was asked for.
        name: String,
    },
    /// Two of one name.
    #[error("two credentials are named `{name}`")]
    Twice {
        /// The name.
        name: String,
    },
    /// It is bound to other places.
    #[error("the credential `{name}` is not for `{host}`")]
    Elsewhere {
        /// The name of the credential.
        name: String,
        /// Where it was to go.
        host: String,
    },
    /// A place that it is bound to is none.
    #[error("a credential is bound to a place that is none: {0}")]
    Place(TargetFault),
    /// The variable is not set.
    #[error("the environment variable `{variable}` is not set; it has to hold a key")]
    Variable {
        /// The variable.
        variable: String,
    },
    /// What was found is no secret.
    #[error("what `{place}` holds is no usable secret: {fault}")]
    Unfit {
        /// The variable or file.
        place: String,
        /// What is wrong with it.
        fault: SecretFault,
    },
    /// The file is not safe, or not there.
    #[error("a credential's file cannot be used: {0}")]
    File(#[from] FileFault),
    /// The token could not be refreshed.
    #[error("the token of `{name}` could not be refreshed: {fault}")]
    OAuth {
        /// The name of the credential.
        name: String,
        /// Why.
        fault: OAuthFault,
    },
}

impl CredentialFault {
    /// What to do about it.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        match self {
            Self::Elsewhere { .. } => Disposition::Refuse,
            Self::OAuth { fault, .. } => fault.disposition(),
            _ => Disposition::Operator,
        }
    }
}

/// How a secret is written into a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Placement {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`, with this user.
    Basic(String),
    /// A header of its own.
    Header(HeaderName),
}

/// A credential by its name, and how it is written into a request. It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialRef {
    name: String,
    placement: Placement,
}

impl CredentialRef {
    /// As a bearer token.
    #[must_use]
    pub fn bearer(name: &str) -> Self {
        Self { name: name.to_owned(), placement: Placement::Bearer }
    }

    /// In a header of its own, such as `x-api-key`.
    ///
    /// # Errors
    /// A header that the client writes itself.
    pub fn header(name: &str, header: &str) -> Result<Self, HeaderFault> {
        let header = header_name(header)?;
        Ok(Self { name: name.to_owned(), placement: Placement::Header(header) })
    }

    /// As the password of a user.
    ///
    /// # Errors
    /// A user with a colon or a control character.
    pub fn basic(name: &str, user: &str) -> Result<Self, HeaderFault> {
        if user.contains(':') || user.chars().any(char::is_control) {
            return Err(HeaderFault::Unfit);
        }
        Ok(Self { name: name.to_owned(), placement: Placement::Basic(user.to_owned()) })
    }

    /// The name of the credential.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The header, with the secret in it.
    pub(crate) fn header_with(&self, lent: &Lent) -> (HeaderName, Zeroizing<String>) {
        let secret = lent.secret.expose();
        match &self.placement {
            Placement::Bearer => (AUTHORIZATION, Zeroizing::new(format!("Bearer {secret}"))),
            Placement::Basic(user) => (AUTHORIZATION, basic(user, secret)),
            Placement::Header(name) => (name.clone(), Zeroizing::new(secret.to_owned())),
        }
    }
}

/// The value of a header with user and password.
fn basic(user: &str, password: &str) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
    Zeroizing::new(format!("Basic {}", encoded.as_str()))
}

/// Where a secret comes from.
enum Source {
    Given(Arc<Secret>),
    File(PathBuf),
    OAuth(OAuth),
}

/// One credential: where its secret comes from, and where it may go. Without a place it goes nowhere.
pub struct Credential {
    source: Source,
    places: BTreeSet<String>,
}

impl Credential {
    /// From a secret that the host of the library holds already.
    #[must_use]
    pub fn given(secret: Secret) -> Self {
        Self::from_source(Source::Given(Arc::new(secret)))
    }

    /// From an environment variable, read once and now. `lookup` reads a variable: this crate does not look at the
    /// environment by itself.
    ///
    /// # Errors
    /// When it is not set or holds no usable secret.
    pub fn environment(
        variable: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, CredentialFault> {
        Secret::environment(variable, lookup).map(Self::given)
    }

    /// From a file of mode 0600 whose owner is this user, no link, with the secret and nothing else. It is read now, to
    /// be sure, and again for each request, so that a new key is used without a restart.
    ///
    /// # Errors
    /// When the file is not safe, or holds no usable secret.
    pub fn file(path: &Path) -> Result<Self, CredentialFault> {
        Secret::file(path)?;
        Ok(Self::from_source(Source::File(path.to_owned())))
    }

    /// An access token that is refreshed before it ends.
    ///
    /// # Errors
    /// When the file of tokens is not safe, or holds none.
    pub fn oauth(rule: OAuthRule) -> Result<Self, CredentialFault> {
        Ok(Self::from_source(Source::OAuth(OAuth::new(rule)?)))
    }

    /// The token of a login, which is refreshed before it ends. It goes to the server of the login alone.
    ///
    /// # Errors
    /// When the login is another server's.
    pub fn login(login: Login, server: &Target) -> Result<Self, OAuthFault> {
        login.check(server)?;
        let places = BTreeSet::from([server.authority()]);
        Ok(Self { source: Source::OAuth(OAuth::of_login(login)), places })
    }

    fn from_source(source: Source) -> Self {
        Self { source, places: BTreeSet::new() }
    }

    /// Also lets it go to a place: a host (`api.example.com`), with its port where that is not the scheme's own
    /// (`localhost:8080`).
    ///
    /// # Errors
    /// What is no host.
    pub fn only_to(mut self, place: &str) -> Result<Self, CredentialFault> {
        let target = Target::parse(&format!("https://{place}/")).map_err(CredentialFault::Place)?;
        if target.authority() != place.to_ascii_lowercase() {
            return Err(CredentialFault::Place(TargetFault::Host));
        }
        self.places.insert(target.authority());
        Ok(self)
    }
}

impl Secret {
    /// From an environment variable. `lookup` reads a variable: this crate does not look at the environment by itself.
    ///
    /// # Errors
    /// When it is not set or holds no usable secret.
    pub fn environment(
        variable: &str,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, CredentialFault> {
        let place = shown(variable);
        let Some(value) = lookup(variable) else {
            return Err(CredentialFault::Variable { variable: place });
        };
        let text = value.into_string().map_err(|_| SecretFault::Character);
        text.and_then(Self::new).map_err(|fault| CredentialFault::Unfit { place, fault })
    }

    /// From a file of mode 0600 whose owner is this user, no link, with the secret and nothing else.
    ///
    /// # Errors
    /// When the file is not safe, or holds no usable secret.
    pub fn file(path: &Path) -> Result<Self, CredentialFault> {
        // Two bytes more for a line break.
        let bytes = read(path, Guard::Private, MAX_SECRET + 2)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| SecretFault::Character);
        text.and_then(|text| Self::new(text.to_owned())).map_err(|fault| CredentialFault::Unfit {
            place: shown(&path.to_string_lossy()),
            fault,
        })
    }
}

/// All credentials of a client. The debug form has their names and places.
#[derive(Clone, Default)]
pub struct Credentials {
    entries: Arc<BTreeMap<String, Credential>>,
}

impl Credentials {
    /// None: requests go out without.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// These, by name.
    ///
    /// # Errors
    /// When two have one name.
    pub fn new<'n>(
        all: impl IntoIterator<Item = (&'n str, Credential)>,
    ) -> Result<Self, CredentialFault> {
        let mut entries = BTreeMap::new();
        for (name, credential) in all {
            if entries.insert(name.to_owned(), credential).is_some() {
                return Err(CredentialFault::Twice { name: shown(name) });
            }
        }
        Ok(Self { entries: Arc::new(entries) })
    }

    /// Whether there is one of that name that may go to a target.
    ///
    /// # Errors
    /// The one that a request would get.
    pub fn check(&self, name: &str, target: &Target) -> Result<(), CredentialFault> {
        self.find(name, target).map(|_| ())
    }

    fn find(&self, name: &str, target: &Target) -> Result<&Credential, CredentialFault> {
        let entry = self.entries.get(name);
        let entry = entry.ok_or_else(|| CredentialFault::Unknown { name: shown(name) })?;
        let host = target.authority();
        if !entry.places.contains(&host) {
            return Err(CredentialFault::Elsewhere { name: shown(name), host });
        }
        Ok(entry)
    }

    pub(crate) async fn lend(
        &self,
        wanted: &CredentialRef,
        target: &Target,
        transport: &Arc<Transport>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Lent, Fault> {
        match &self.find(&wanted.name, target)?.source {
            Source::Given(secret) => Ok(Lent { secret: Arc::clone(secret), token_of: None }),
            Source::File(path) => {
                Ok(Lent { secret: Arc::new(Secret::file(path)?), token_of: None })
            }
            Source::OAuth(oauth) => {
                let secret = oauth
                    .token(transport, clock)
                    .await
                    .map_err(|fault| CredentialFault::OAuth { name: shown(&wanted.name), fault })?;
                Ok(Lent { secret, token_of: Some(oauth.clone()) })
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries.iter().map(|(name, entry)| (name, &entry.places)))
            .finish()
    }
}

/// A secret on its way into one request.
pub(crate) struct Lent {
    secret: Arc<Secret>,
    token_of: Option<OAuth>,
}

impl Lent {
    /// What sees it come back, also as it was written into the request.
    pub(crate) fn echo(&self, wanted: &CredentialRef) -> Echo {
        let (_, written) = wanted.header_with(self);
        Echo::of(&[self.secret.expose(), written.strip_prefix("Basic ").unwrap_or_default()])
    }

    /// The other side did not take it: a token is refreshed before its next use.
    pub(crate) fn doubt(&self) {
        if let Some(oauth) = &self.token_of {
            oauth.doubt(&self.secret);
        }
    }

    /// The other side wants more than it is good for.
    pub(crate) fn is_not_enough(&self) {
        if let Some(oauth) = &self.token_of {
            oauth.read_again();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn secret(text: &str) -> Secret {
        Secret::new(text.to_owned()).expect("a secret")
    }

    fn target(url: &str) -> Target {
        Target::parse(url).expect(url)
    }

    #[test]
    fn a_credential_goes_only_where_it_is_bound_to() {
        let bound = Credential::given(secret("canary-key")).only_to("api.example.com");
        let bound = bound.and_then(|credential| credential.only_to("localhost:8080"));
        let loose = Credential::given(secret("canary-key"));
        let all = [("bound", bound.expect("places")), ("loose", loose)];
        let credentials = Credentials::new(all).expect("two names");
        let check = |name: &str, url: &str| credentials.check(name, &target(url));
        assert_eq!(check("bound", "https://API.example.com/v1"), Ok(()));
        assert_eq!(check("bound", "http://localhost:8080/"), Ok(()));
        for url in ["https://api.example.com:8443/", "https://example.com/", "http://localhost/"] {
            assert!(matches!(check("bound", url), Err(CredentialFault::Elsewhere { .. })), "{url}");
        }
        let nowhere = check("loose", "https://api.example.com/");
        assert!(matches!(nowhere, Err(CredentialFault::Elsewhere { .. })));
        let unknown = check("other", "https://api.example.com/");
        assert!(matches!(unknown, Err(CredentialFault::Unknown { .. })));
        assert!(!format!("{credentials:?}").contains("canary"));
    }

    #[test]
    fn places_are_hosts() {
        for place in
            ["", "https://a.example", "a.example/path", "user@a.example", "0x7f.1", "a.example:443"]
        {
            let refused = Credential::given(secret("canary-key")).only_to(place).err();
            assert!(matches!(refused, Some(CredentialFault::Place(_))), "{place}");
        }
    }

    #[test]
    fn a_variable_is_read_through_what_is_handed_in() {
        let read = |value: Option<&str>| {
            Credential::environment("THE_KEY", |name| {
                assert_eq!(name, "THE_KEY");
                value.map(OsString::from)
            })
        };
        assert!(read(Some("canary-key")).is_ok());
        let missing = read(None).err().expect("refused").to_string();
        assert!(missing.contains("THE_KEY") && missing.contains("not set"), "{missing}");
        let odd = read(Some("canary key")).err().expect("refused").to_string();
        assert!(odd.contains("THE_KEY") && !odd.contains("canary"), "{odd}");
    }

    #[test]
    fn a_file_has_to_be_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "canary-key\n").expect("written");
        let chmod = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("chmod");
        };
        chmod(0o644);
        let refused = Credential::file(&path).err().expect("refused").to_string();
        assert!(refused.contains("chmod 600") && !refused.contains("canary"), "{refused}");
        chmod(0o600);
        assert!(Credential::file(&path).is_ok());
    }

    #[test]
    fn a_secret_is_written_as_its_placement_says() {
        let lent = Lent { secret: Arc::new(secret("open-sesame")), token_of: None };
        let written = |credential: CredentialRef| {
            let (name, value) = credential.header_with(&lent);
            format!("{name}: {}", value.as_str())
        };
        assert_eq!(written(CredentialRef::bearer("k")), "authorization: Bearer open-sesame");
        let header = CredentialRef::header("k", "X-Api-Key").expect("a header");
        assert_eq!(written(header), "x-api-key: open-sesame");
        // RFC 7617, section 2.
        let lent = Lent {
            secret: Arc::new(secret("open sesame".replace(' ', "-").as_str())),
            token_of: None,
        };
        let basic = CredentialRef::basic("k", "Aladdin").expect("a user");
        let expected = format!("Basic {}", STANDARD.encode("Aladdin:open-sesame"));
        assert_eq!(basic.header_with(&lent).1.as_str(), expected);
        assert!(CredentialRef::basic("k", "a:b").is_err());
        assert!(CredentialRef::header("k", "host").is_err());
    }
}
