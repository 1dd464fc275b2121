//! `[credentials.NAME]`: where each secret lies, by name. Providers of models, places of the HTTP tools and MCP servers
//! name the same ones. No secret itself is held here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use portcullis_egress::{
    Credential, CredentialFault, CredentialRef, EgressRules, RulesFault, Secret,
};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
use super::oauth::{OAuthSource, RawOAuth};

/// The most bytes of the name of a credential or a provider.
const MAX_NAME: usize = 64;

/// Where a secret lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretSource {
    /// In a variable of this process.
    Variable(String),
    /// In a file of the user's own, absolute.
    File(PathBuf),
}

impl SecretSource {
    pub(super) fn read(&self) -> Result<Secret, CredentialFault> {
        match self {
            Self::Variable(name) => Secret::environment(name, crate::args::variable),
            Self::File(path) => Secret::file(path),
        }
    }
}

/// What a credential comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialSource {
    /// A secret that lies somewhere.
    Secret(SecretSource),
    /// An access token that is refreshed.
    OAuth(OAuthSource),
}

impl CredentialSource {
    /// Reads the secret. It may go nowhere yet.
    ///
    /// # Errors
    /// When it is not there, others can get at it, or it is no secret.
    pub(crate) fn open(&self) -> Result<Credential, CredentialFault> {
        match self {
            Self::Secret(SecretSource::Variable(name)) => {
                Credential::environment(name, crate::args::variable)
            }
            Self::Secret(SecretSource::File(path)) => Credential::file(path),
            Self::OAuth(oauth) => oauth.open(),
        }
    }

    /// The rules, with leave for what the secret itself is asked from.
    pub(crate) fn admit(&self, rules: EgressRules) -> Result<EgressRules, RulesFault> {
        match self {
            Self::Secret(_) => Ok(rules),
            Self::OAuth(oauth) => oauth.admit(rules),
        }
    }

    /// Where it lies, for a person.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Secret(SecretSource::Variable(name)) => name.clone(),
            Self::Secret(SecretSource::File(path)) => path.display().to_string(),
            Self::OAuth(oauth) => oauth.tokens.display().to_string(),
        }
    }

    /// The files that it is read from.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let (tokens, secret) = match self {
            Self::Secret(secret) => (None, Some(secret)),
            Self::OAuth(oauth) => (Some(oauth.tokens.as_path()), oauth.secret.as_ref()),
        };
        let secret = secret.and_then(|secret| match secret {
            SecretSource::File(path) => Some(path.as_path()),
            SecretSource::Variable(_) => None,
        });
        tokens.into_iter().chain(secret)
    }
}

/// What the operator said of secrets, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials(BTreeMap<String, CredentialSource>);

impl Credentials {
    /// Where the secret of that name lies.
    pub(crate) fn get(&self, name: &str) -> Option<&CredentialSource> {
        self.0.get(name)
    }

    /// The files that hold secrets.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.values().flat_map(CredentialSource::files)
    }

    /// The one that a provider, a place or a server names.
    pub(super) fn named(&self, name: &Spanned<String>) -> Result<&CredentialSource, Misfit> {
        // Not shown: it may be a key that was put into the wrong place.
        let message = "`credential` names a table [credentials.NAME], and there is none of that name; a key itself never stands here";
        self.get(name.get_ref()).ok_or_else(|| Misfit::at(&name.span(), message))
    }
}

/// How a place or a server names its credential: by its name, and how it is written into requests.
#[derive(Debug, Default)]
pub(super) struct Written<'a> {
    pub(super) credential: Option<&'a Spanned<String>>,
    /// The header that it stands in.
    pub(super) header: Option<&'a Spanned<String>>,
    /// The user whose password it is.
    pub(super) user: Option<&'a Spanned<String>>,
}

impl Written<'_> {
    /// How it is written into requests of `whose`; nothing where it has none.
    pub(super) fn reference(&self, whose: &str) -> Result<Option<CredentialRef>, Misfit> {
        let misfit = |said: &Spanned<String>, fault| Misfit::at(&said.span(), format!("{fault}"));
        let Some(name) = self.credential else {
            return match self.header.or(self.user) {
                Some(written) => {
                    Err(Misfit::at(&written.span(), format!("this {whose} names no `credential`")))
                }
                None => Ok(None),
            };
        };
        let name = name.get_ref();
        match (self.header, self.user) {
            (None, None) => Ok(Some(CredentialRef::bearer(name))),
            (Some(header), None) => CredentialRef::header(name, header.get_ref())
                .map(Some)
                .map_err(|fault| misfit(header, fault)),
            (None, Some(user)) => CredentialRef::basic(name, user.get_ref())
                .map(Some)
                .map_err(|fault| misfit(user, fault)),
            (Some(header), Some(_)) => {
                let message =
                    format!("a {whose} has `credential_header` or `credential_user`, not both");
                Err(Misfit::at(&header.span(), message))
            }
        }
    }
}

/// The tables as they stand in the file.
pub(super) type RawCredentials = BTreeMap<Spanned<String>, RawCredential>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCredential {
    env: Option<Spanned<String>>,
    file: Option<PathBuf>,
    oauth: Option<RawOAuth>,
}

impl RawCredential {
    /// The credential whose secret this one goes with.
    pub(super) fn needs(&self) -> Option<&str> {
        self.oauth.as_ref()?.secret_name()
    }
}

/// What stands there. Relative files start at `base`.
pub(super) fn read(raw: &RawCredentials, base: &Path) -> Result<Credentials, Misfit> {
    let mut all = BTreeMap::new();
    for (name, said) in raw {
        check_name(name)?;
        if let Some(source) = secret(name, said, base)? {
            all.insert(name.get_ref().clone(), CredentialSource::Secret(source));
        }
    }
    let secrets = Credentials(all);
    let mut all = secrets.0.clone();
    for (name, said) in raw {
        if let Some(oauth) = &said.oauth {
            let source = oauth.read(&secrets, base)?;
            all.insert(name.get_ref().clone(), CredentialSource::OAuth(source));
        }
    }
    Ok(Credentials(all))
}

/// A credential that nothing names is a slip: what was to have it goes without, or fails.
pub(super) fn check_used(raw: &RawCredentials, used: &BTreeSet<&str>) -> Result<(), Misfit> {
    let message = "nothing names this credential: no place of [http], no provider of [models], no server of [mcp], and no other credential";
    let of_others: BTreeSet<&str> = raw.values().filter_map(RawCredential::needs).collect();
    let named = |name: &str| used.contains(name) || of_others.contains(name);
    match raw.keys().find(|name| !named(name.get_ref())) {
        Some(name) => Err(Misfit::at(&name.span(), message)),
        None => Ok(()),
    }
}

/// Refuses what can be the name of no credential and no provider. It may be a key in the wrong place, so it is not shown.
pub(super) fn check_name(name: &Spanned<String>) -> Result<(), Misfit> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let text = name.get_ref();
    if (1..=MAX_NAME).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain) {
        return Ok(());
    }
    let message = "a name is 1 to 64 letters, digits and `-`, `_`, `.`";
    Err(Misfit::at(&name.span(), message))
}

/// The secret that stands in one table; nothing where a token is refreshed.
fn secret(
    name: &Spanned<String>,
    said: &RawCredential,
    base: &Path,
) -> Result<Option<SecretSource>, Misfit> {
    match (&said.env, &said.file, &said.oauth) {
        (Some(variable), None, None) => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if variable.get_ref().is_empty() || !variable.get_ref().bytes().all(plain) {
                let message = "`env` is the name of a variable, and never the key itself";
                return Err(Misfit::at(&variable.span(), message));
            }
            Ok(Some(SecretSource::Variable(variable.get_ref().clone())))
        }
        (None, Some(file), None) => Ok(Some(SecretSource::File(base.join(file)))),
        (None, None, Some(_)) => Ok(None),
        _ => {
            let message = "a credential is either `env = VARIABLE`, `file = PATH`, or a table [credentials.NAME.oauth]";
            Err(Misfit::at(&name.span(), message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const PLACE: &str = "[[http.places]]\norigin = 'https://a.example'\ncredential = 'k'\n";

    #[track_caller]
    fn bad(text: &str, sentence: &str) {
        let found = parse(text, Path::new("/")).unwrap_err().sentence(text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
    }

    #[test]
    fn a_provider_and_a_place_have_one_credential() {
        let text =
            format!("{PLACE}[models.m]\ncredential = 'k'\n[credentials.k]\nfile = 'k.key'\n");
        let config = parse(&text, Path::new("/etc/base")).unwrap();
        let file = SecretSource::File(PathBuf::from("/etc/base/k.key"));
        let file = CredentialSource::Secret(file);
        assert_eq!(config.credentials.get("k"), Some(&file));
        assert!(config.credentials.files().eq([Path::new("/etc/base/k.key")]));
        let [chosen] = config.http.as_ref().unwrap().credentials.as_slice() else { panic!("one") };
        assert_eq!((chosen.name.as_str(), &chosen.source), ("k", &file));
    }

    #[test]
    fn a_credential_lies_at_one_place() {
        let with = |rest: &str| format!("{PLACE}[credentials.k]\n{rest}");
        let either = "line 4, column 14: a credential is either";
        bad(&with(""), either);
        bad(&with("env = 'A'\nfile = 'b'\n"), either);
        bad(&with("env = 'A=B'\n"), "line 5, column 7: `env` is the name of a variable");
        bad(&with("env = ''\n"), "line 5, column 7: `env` is the name of a variable");
        bad(&with("env = 'A'\nheader = 'x'\n"), "line 6, column 1: unknown field `header`");
        bad("[credentials.'a b']\nenv = 'A'\n", "line 1, column 14: a name is");
    }

    #[test]
    fn a_credential_that_nothing_names_is_a_slip() {
        let named = "[credentials.k]\nenv = 'A'\n";
        bad(named, "line 1, column 14: nothing names this credential");
        let place = "[[http.places]]\norigin = 'https://a.example'\n";
        bad(&format!("{place}{named}"), "line 3, column 14: nothing names this credential");
        // By a place, by a server, by a provider's table, by its name, and by the name of one that needs no table.
        let built_in = named.replace(".k]", ".openai]");
        for text in [
            format!("{PLACE}{named}"),
            format!("[mcp.servers.m]\nurl = 'https://a.example/'\ncredential = 'k'\n{named}"),
            format!("[models.m]\ncredential = 'k'\n{named}"),
            format!("[models.k]\ndialect = 'openai'\n{named}"),
            built_in,
        ] {
            assert!(parse(&text, Path::new("/")).is_ok(), "{text}");
        }
    }
}
