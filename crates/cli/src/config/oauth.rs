//! `[credentials.NAME.oauth]`: an access token that is refreshed at the endpoint of whoever gave it.

use std::path::{Path, PathBuf};

use portcullis_egress::{
    Credential, CredentialFault, EgressRules, HostRule, OAuthClient, OAuthRule, Reach, RulesFault,
    Secret, Target,
};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
use super::credentials::{CredentialSource, Credentials, SecretSource};

/// The most bytes of a client's id.
const MAX_CLIENT: usize = 1024;

/// A token as the operator named it. It holds no secret: only where each lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OAuthSource {
    /// Where tokens are refreshed.
    endpoint: Target,
    /// Whether the endpoint's name may lead to a private network.
    reach: Reach,
    /// The file of tokens, absolute.
    pub(super) tokens: PathBuf,
    /// The client's id there.
    client: String,
    /// The client's secret; nothing for a public client.
    pub(super) secret: Option<SecretSource>,
    /// Whether the secret goes into the body, in place of the header.
    in_body: bool,
    /// The scope that is asked for; the one of the first grant where nothing is said.
    scope: Option<String>,
}

impl OAuthSource {
    /// Reads the tokens and the client's secret. Nothing is sent.
    pub(super) fn open(&self) -> Result<Credential, CredentialFault> {
        let secret = self.secret.as_ref().map(SecretSource::read).transpose()?;
        let fault = |fault| CredentialFault::OAuth { name: self.client.clone(), fault };
        let rule =
            OAuthRule::new(self.endpoint.clone(), self.as_client(secret), self.tokens.clone());
        let rule = rule.map_err(fault)?;
        Credential::oauth(match &self.scope {
            Some(scope) => rule.scope(scope),
            None => rule,
        })
    }

    fn as_client(&self, secret: Option<Secret>) -> OAuthClient {
        let id = self.client.clone();
        match secret {
            None => OAuthClient::Public { id },
            Some(secret) if self.in_body => OAuthClient::Posted { id, secret },
            Some(secret) => OAuthClient::Basic { id, secret },
        }
    }

    /// The rules, with leave for the endpoint.
    pub(super) fn admit(&self, rules: EgressRules) -> Result<EgressRules, RulesFault> {
        let port = self.endpoint.port();
        if self.endpoint.is_this_machine() {
            return Ok(rules.loopback_port(port));
        }
        rules.host(HostRule::new(self.endpoint.host(), self.reach)?.ports([port]))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOAuth {
    endpoint: Spanned<String>,
    tokens: PathBuf,
    client: Spanned<String>,
    secret: Option<Spanned<String>>,
    #[serde(default)]
    secret_in_body: bool,
    scope: Option<Spanned<String>>,
    #[serde(default)]
    private_network: bool,
}

impl RawOAuth {
    /// The credential that holds the client's secret.
    pub(super) fn secret_name(&self) -> Option<&str> {
        self.secret.as_ref().map(|name| name.get_ref().as_str())
    }

    /// What stands there, beside the secrets of the file. Relative files start at `base`.
    pub(super) fn read(&self, secrets: &Credentials, base: &Path) -> Result<OAuthSource, Misfit> {
        let reach = if self.private_network { Reach::Private } else { Reach::Public };
        let secret = self.secret.as_ref().map(|name| match secrets.named(name)? {
            CredentialSource::Secret(source) => Ok(source.clone()),
            CredentialSource::OAuth(_) => {
                Err(Misfit::at(&name.span(), "a client's secret is no token that is refreshed"))
            }
        });
        let source = OAuthSource {
            endpoint: self.endpoint()?,
            reach,
            tokens: base.join(&self.tokens),
            client: plain(&self.client, "`client` is the id of the client at the endpoint")?,
            secret: secret.transpose()?,
            in_body: self.secret_in_body,
            scope: self
                .scope
                .as_ref()
                .map(|scope| plain(scope, "`scope` is scopes with spaces between"))
                .transpose()?,
        };
        if source.in_body && source.secret.is_none() {
            let message = "`secret_in_body` needs `secret`, the name of another credential";
            return Err(Misfit::at(&self.client.span(), message));
        }
        let admitted = source.admit(EgressRules::closed());
        admitted.map_err(|fault| Misfit::at(&self.endpoint.span(), fault.to_string()))?;
        Ok(source)
    }

    /// An endpoint without a user, which may be a key, and not on plain http but on this machine.
    fn endpoint(&self) -> Result<Target, Misfit> {
        let misfit = |why: &str| {
            Misfit::at(
                &self.endpoint.span(),
                format!(
                    "`endpoint` is the address of a token endpoint, such as \"https://host/token\": {why}"
                ),
            )
        };
        let target = Target::parse(self.endpoint.get_ref());
        let target = target.map_err(|fault| misfit(&fault.to_string()))?;
        if target.is_encrypted() || target.is_this_machine() {
            Ok(target)
        } else {
            Err(misfit("it is on plain http, where everybody can read along"))
        }
    }
}

pub(super) fn plain(text: &Spanned<String>, message: &str) -> Result<String, Misfit> {
    let printable = |b: u8| b == b' ' || b.is_ascii_graphic();
    let given = text.get_ref();
    if (1..=MAX_CLIENT).contains(&given.len()) && given.bytes().all(printable) {
        return Ok(given.clone());
    }
    Err(Misfit::at(&text.span(), format!("{message}: 1 to {MAX_CLIENT} printable bytes of ASCII")))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const PLACE: &str = "[[http.places]]\norigin = 'https://a.example'\ncredential = 'k'\n";
    const ENDPOINT: &str = "endpoint = 'https://login.example/token'\n";

    fn with(rest: &str) -> String {
        format!("{PLACE}[credentials.k.oauth]\n{rest}")
    }

    #[track_caller]
    fn bad(rest: &str, sentence: &str) {
        let text = with(rest);
        let found = parse(&text, Path::new("/")).unwrap_err().sentence(&text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
    }

    #[test]
    fn a_token_has_its_file_its_client_and_the_secret_of_another_credential() {
        let text = with(&format!(
            "{ENDPOINT}tokens = 't.json'\nclient = 'c'\nsecret = 's'\nsecret_in_body = true\nscope = 'a b'\n[credentials.s]\nfile = 's.key'\n"
        ));
        let config = parse(&text, Path::new("/etc/base"))
            .unwrap_or_else(|m| panic!("{}", m.sentence(&text)));
        let Some(CredentialSource::OAuth(oauth)) = config.credentials.get("k") else { panic!() };
        assert_eq!(oauth.tokens, Path::new("/etc/base/t.json"));
        assert_eq!(oauth.secret, Some(SecretSource::File("/etc/base/s.key".into())));
        assert_eq!((oauth.client.as_str(), oauth.scope.as_deref()), ("c", Some("a b")));
        assert!(oauth.in_body && oauth.endpoint.host() == "login.example");
        // Neither file is for the file tools.
        let files: Vec<_> = config.credentials.files().collect();
        for file in ["/etc/base/t.json", "/etc/base/s.key"] {
            assert!(files.contains(&Path::new(file)), "{file} in {files:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_where_it_stands() {
        let client = "tokens = 't'\nclient = 'c'\n";
        bad(
            &format!("endpoint = 'http://login.example/'\n{client}"),
            "line 5, column 12: `endpoint` is",
        );
        bad(
            &format!("endpoint = 'https://10.0.0.1/'\n{client}"),
            "line 5, column 12: a rule names",
        );
        bad(
            &format!("endpoint = 'https://a@b.example/'\n{client}"),
            "line 5, column 12: `endpoint` is",
        );
        bad(&format!("{ENDPOINT}tokens = 't'\nclient = ''\n"), "line 7, column 10: `client` is");
        bad(
            &format!("{ENDPOINT}{client}secret = 'none'\n"),
            "line 8, column 10: `credential` names",
        );
        bad(&format!("{ENDPOINT}{client}secret = 'k'\n"), "line 8, column 10: `credential` names");
        bad(
            &format!("{ENDPOINT}{client}secret_in_body = true\n"),
            "line 7, column 10: `secret_in_body` needs",
        );
        bad(
            &format!("{ENDPOINT}{client}[credentials.k]\nenv = 'A'\n"),
            "line 8, column 14: a credential is either",
        );
    }
}
