//! The owner's file of tokens: read under the owner's checks, replaced whole when a token changes.

use std::path::Path;
use std::sync::Arc;

use portcullis_canon::{Limits, from_slice, to_vec};
use portcullis_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::oauth::OAuthFault;
use crate::owned_file::{Guard, read, replace};
use crate::secret::Secret;

/// The version of the file's form.
const VERSION: u32 = 1;

/// The longest file, in bytes.
const MAX_FILE: usize = 64 * 1024;

/// The file's form. Without an access token, the first use gets one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    refresh_token: String,
}

/// What a token endpoint gave.
#[derive(Clone)]
pub(super) struct Tokens {
    /// The token that goes into requests, and when it ends.
    pub(super) access: Option<(Arc<Secret>, Timestamp)>,
    /// What gets the next one.
    pub(super) refresh: Arc<Secret>,
}

impl Tokens {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Self, OAuthFault> {
        let bytes = read(path, Guard::Private, MAX_FILE)?;
        let stored: Stored = from_slice(&bytes, &Limits::BARE).map_err(|_| OAuthFault::Tokens)?;
        if stored.version != VERSION {
            return Err(OAuthFault::Tokens);
        }
        let secret = |text| Secret::new(text).map(Arc::new).map_err(|_| OAuthFault::Tokens);
        let refresh = secret(stored.refresh_token)?;
        // A token without an end is taken for one that is over.
        let access = match (stored.access_token, stored.expires_at) {
            (Some(text), Some(ends)) => Some((secret(text)?, ends)),
            _ => None,
        };
        Ok(Self { access, refresh })
    }

    /// Puts these in the place of what the file has.
    pub(super) fn write(&self, path: &Path) -> Result<(), OAuthFault> {
        let mut stored = Stored {
            version: VERSION,
            access_token: self.access.as_ref().map(|(secret, _)| secret.expose().to_owned()),
            expires_at: self.access.as_ref().map(|(_, ends)| *ends),
            refresh_token: self.refresh.expose().to_owned(),
        };
        let bytes = to_vec(&stored).map(Zeroizing::new).map_err(|_| OAuthFault::Tokens);
        drop(stored.access_token.take().map(Zeroizing::new));
        drop(Zeroizing::new(stored.refresh_token));
        replace(path, &bytes?).map_err(OAuthFault::NotSaved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

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
        let tokens = Tokens { access, refresh: secret("refresh-token") };
        assert!(tokens.write(&path).is_ok());
        let Ok(again) = Tokens::read(&path) else { panic!("what was written is read") };
        let (access, until) = again.access.expect("a token");
        assert!(access.matches(&secret("access-token")) && until == ends);
        assert!(again.refresh.matches(&secret("refresh-token")));
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
}
