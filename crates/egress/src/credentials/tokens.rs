//! The owner's file of tokens: read under the owner's checks, replaced whole when a token changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, from_slice, to_vec};
use portcullis_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::endpoint::Granted;
use super::login::{Agreed, StoredLogin};
use super::oauth::OAuthFault;
use crate::owned_file::{Guard, Locked, read};
use crate::secret::Secret;

/// The version of the form without a login.
const PLAIN: u32 = 1;

/// The version of the form with one.
const WITH_LOGIN: u32 = 2;

/// The longest file, in bytes.
const MAX_FILE: usize = 64 * 1024;

/// How long a token lives when the endpoint does not say and there is one to get the next with, in seconds.
const UNSAID: u64 = 300;

/// The longest life that is believed, in seconds: a year.
const MAX_LIFE: u64 = 365 * 24 * 3600;

/// The file's form. Without an access token, the first use gets one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    login: Option<StoredLogin>,
}

/// What a token endpoint gave.
#[derive(Clone)]
pub(super) struct Tokens {
    /// The token that goes into requests, and when it ends.
    pub(super) access: Option<(Arc<Secret>, Timestamp)>,
    /// What gets the next one; a login may have brought none.
    pub(super) refresh: Option<Arc<Secret>>,
    /// The login that they are of.
    pub(super) login: Option<Arc<Agreed>>,
}

impl Tokens {
    /// What an endpoint gave now; `former` is what gets the next token unless it gave another one.
    pub(super) fn granted(
        granted: Granted,
        asked: Timestamp,
        former: Option<Arc<Secret>>,
        login: Option<Arc<Agreed>>,
    ) -> Result<(Arc<Secret>, Self), OAuthFault> {
        let secret = |text| Secret::new(text).map(Arc::new).map_err(|_| OAuthFault::Answer);
        let access = secret(granted.access_token)?;
        let refresh = granted.refresh_token.map(secret).transpose()?.or(former);
        // Where nothing gets another one, its server says when it has ended.
        let unsaid = if refresh.is_some() { UNSAID } else { MAX_LIFE };
        let life = granted.expires_in.unwrap_or(unsaid).min(MAX_LIFE);
        let ends = asked.after(Duration::from_secs(life));
        let tokens = Self { access: Some((Arc::clone(&access), ends)), refresh, login };
        Ok((access, tokens))
    }

    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Self, OAuthFault> {
        let bytes = read(path, Guard::Private, MAX_FILE)?;
        let stored: Stored = from_slice(&bytes, &Limits::BARE).map_err(|_| OAuthFault::Tokens)?;
        let (has_refresh, has_access) =
            (stored.refresh_token.is_some(), stored.access_token.is_some());
        let whole = match (stored.version, &stored.login) {
            (PLAIN, None) => has_refresh,
            (WITH_LOGIN, Some(_)) => has_refresh || has_access,
            _ => false,
        };
        if !whole {
            return Err(OAuthFault::Tokens);
        }
        let secret = |text| Secret::new(text).map(Arc::new).map_err(|_| OAuthFault::Tokens);
        let refresh = stored.refresh_token.map(secret).transpose()?;
        // A token without an end is taken for one that is over.
        let access = match (stored.access_token, stored.expires_at) {
            (Some(text), Some(ends)) => Some((secret(text)?, ends)),
            _ => None,
        };
        let login = stored.login.map(Agreed::read).transpose()?.map(Arc::new);
        Ok(Self { access, refresh, login })
    }

    /// Puts these in the place of what the file has.
    pub(super) fn write(&self, file: &Locked) -> Result<(), OAuthFault> {
        let text = |secret: &Arc<Secret>| secret.expose().to_owned();
        let mut stored = Stored {
            version: if self.login.is_some() { WITH_LOGIN } else { PLAIN },
            access_token: self.access.as_ref().map(|(secret, _)| text(secret)),
            expires_at: self.access.as_ref().map(|(_, ends)| *ends),
            refresh_token: self.refresh.as_ref().map(text),
            login: self.login.as_ref().map(|login| login.stored()),
        };
        let bytes = to_vec(&stored).map(Zeroizing::new).map_err(|_| OAuthFault::Tokens);
        drop(stored.access_token.take().map(Zeroizing::new));
        drop(stored.refresh_token.take().map(Zeroizing::new));
        drop(stored.login.and_then(|login| login.client_secret).map(Zeroizing::new));
        file.replace(&bytes?).map_err(OAuthFault::NotSaved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn locked(path: &Path) -> Locked {
        crate::owned_file::try_lock(path).expect("usable").expect("free")
    }

    fn check(text: &str) -> Result<Tokens, OAuthFault> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        Tokens::read(&path)
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        let secret = |text: &str| Arc::new(Secret::new(text.to_owned()).expect("a secret"));
        let ends = Timestamp::from_micros(1_790_000_000_000_000);
        let access = Some((secret("access-token"), ends));
        let refresh = Some(secret("refresh-token"));
        let tokens = Tokens { access, refresh, login: None };
        assert!(tokens.write(&locked(&path)).is_ok());
        let Ok(again) = Tokens::read(&path) else { panic!("what was written is read") };
        let (access, until) = again.access.expect("a token");
        assert!(access.matches(&secret("access-token")) && until == ends);
        assert!(again.refresh.expect("one").matches(&secret("refresh-token")));
        let text = std::fs::read_to_string(&path).expect("read");
        let expected = r#"{"access_token":"access-token","expires_at":"2026-09-21T14:13:20.000000Z","refresh_token":"refresh-token","version":1}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_refresh_token_alone_is_enough() {
        let read = check(r#"{"version":1,"refresh_token":"refresh-token"}"#);
        assert!(read.is_ok_and(|tokens| tokens.access.is_none()));
        let endless =
            check(r#"{"version":1,"refresh_token":"refresh-token","access_token":"access-token"}"#);
        assert!(endless.is_ok_and(|tokens| tokens.access.is_none()));
    }

    #[test]
    fn another_form_is_refused_without_repeating_it() {
        for text in [
            "",
            "canary",
            r#"{"version":1}"#,
            r#"{"version":2,"refresh_token":"canary-token"}"#,
            r#"{"version":1,"refresh_token":"short"}"#,
            r#"{"version":1,"refresh_token":"canary-token","refresh_token":"canary-token"}"#,
            r#"{"version":1,"refresh_token":"canary-token","canary":1}"#,
        ] {
            let refused = check(text).err().expect(text);
            assert_eq!(refused, OAuthFault::Tokens, "{text}");
            assert!(!format!("{refused} {refused:?}").contains("canary"));
        }
    }

    const LOGIN: &str = r#""login":{"server":"https://mcp.example/mcp","resource":"https://mcp.example/mcp","issuer":"https://login.example","token_endpoint":"https://login.example/token","client_id":"me","client_auth":"none"}"#;

    #[test]
    fn tokens_of_a_login_are_written_with_it_and_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("login.json");
        let text = format!(
            r#"{{"access_token":"access-token","expires_at":"2026-09-21T14:13:20.000000Z",{LOGIN},"version":2}}"#
        );
        let Ok(tokens) = check(&text) else { panic!("it is read") };
        assert!(tokens.refresh.is_none() && tokens.login.is_some());
        assert!(tokens.write(&locked(&path)).is_ok());
        let again = std::fs::read_to_string(&path).expect("read");
        let parsed = |text: &str| {
            from_slice::<portcullis_canon::Value>(text.as_bytes(), &Limits::BARE).expect("JSON")
        };
        assert_eq!(parsed(&again), parsed(&text));
    }

    #[test]
    fn a_login_is_whole_and_of_its_version_or_it_is_none() {
        let good = format!(r#"{{"version":2,"refresh_token":"canary-token",{LOGIN}}}"#);
        assert!(check(&good).is_ok(), "control");
        for (find, put) in [
            (r#""version":2"#, r#""version":1"#),
            (LOGIN, r#""login":null"#),
            (r#""refresh_token":"canary-token","#, ""),
            (r#""client_auth":"none""#, r#""client_auth":"private_key_jwt""#),
            (r#""client_auth":"none""#, r#""client_auth":"none","canary":1"#),
            (r#""client_id":"me","#, ""),
            ("https://login.example/token", "canary"),
        ] {
            let odd = good.replace(find, put);
            assert_ne!(odd, good);
            assert_eq!(check(&odd).err(), Some(OAuthFault::Tokens), "{odd}");
        }
        let clear = good.replace("https://login.example/token", "http://login.example/token");
        assert_eq!(check(&clear).err(), Some(OAuthFault::Clear));
    }
}
