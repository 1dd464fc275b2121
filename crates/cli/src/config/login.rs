//! `[mcp.servers.NAME.login]`: how a person gets the token of a server, and whose tokens count.

use std::path::{Path, PathBuf};

use portcullis_canon::{Object, Value};
use portcullis_egress::{CredentialFault, Reach, Secret, Target};
use portcullis_mcp::ServerName;
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
use super::credentials::{CredentialSource, Credentials, SecretSource};
use super::oauth::plain;

/// A login as the operator describes it. It holds no secret: only where each lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginChoice {
    /// Whose tokens count; nothing where that is confirmed at the login.
    pub(crate) issuer: Option<String>,
    /// What the server calls itself, where that is not its address.
    pub(crate) resource: Option<String>,
    /// The id of a client that the issuer knows.
    pub(crate) client: Option<String>,
    secret: Option<SecretSource>,
    /// The name of the credential that is that client's secret.
    pub(super) secret_name: Option<String>,
    /// A document that describes the client.
    pub(crate) document: Option<String>,
    /// Whether the client may register itself.
    pub(crate) register: bool,
    /// The scopes that are asked for.
    pub(crate) scope: Option<String>,
    /// Where the tokens are kept, absolute.
    pub(crate) tokens: PathBuf,
    /// The port of this machine that the answer is sent to; 0 takes a free one.
    pub(crate) port: u16,
    /// What may be behind the issuer's name.
    pub(crate) reach: Reach,
}

impl LoginChoice {
    /// Reads the secret of the client that the issuer knows.
    pub(crate) fn secret(&self) -> Result<Option<Secret>, CredentialFault> {
        self.secret.as_ref().map(SecretSource::read).transpose()
    }

    /// What another value of makes another server.
    pub(super) fn settings(&self) -> Value {
        let said = |said: &Option<String>| said.as_deref().map_or(Value::Null, Value::from);
        let mut object = Object::new();
        object.insert("issuer", said(&self.issuer));
        object.insert("resource", said(&self.resource));
        object.insert("client", said(&self.client));
        object.insert("document", said(&self.document));
        object.insert("scope", said(&self.scope));
        Value::Object(object)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLogin {
    issuer: Option<Spanned<String>>,
    resource: Option<Spanned<String>>,
    client: Option<Spanned<String>>,
    secret: Option<Spanned<String>>,
    document: Option<Spanned<String>>,
    #[serde(default)]
    register: bool,
    scope: Option<Spanned<String>>,
    tokens: Option<PathBuf>,
    port: Option<u16>,
    #[serde(default)]
    private_network: bool,
}

impl RawLogin {
    /// What stands there, of the server of this name and address. Relative files start at `base`.
    pub(super) fn read(
        &self,
        name: &ServerName,
        server: &Target,
        credentials: &Credentials,
        base: &Path,
    ) -> Result<LoginChoice, Misfit> {
        let secret =
            self.secret.as_ref().map(|name| match (credentials.named(name)?, &self.client) {
                (CredentialSource::Secret(source), Some(_)) => Ok(source.clone()),
                (CredentialSource::Secret(_), None) => Err(Misfit::at(
                    &name.span(),
                    "`secret` is that of a `client`, and there is none",
                )),
                (CredentialSource::OAuth(_), _) => {
                    Err(Misfit::at(&name.span(), "a client's secret is no token that is refreshed"))
                }
            });
        let usual = || PathBuf::from(format!("{name}.login.json"));
        Ok(LoginChoice {
            issuer: self.issuer.as_ref().map(|issuer| address(issuer, "issuer")).transpose()?,
            resource: self.resource(server)?,
            client: said(self.client.as_ref(), "`client` is the id of the client at the issuer")?,
            secret: secret.transpose()?,
            secret_name: self.secret.as_ref().map(|name| name.get_ref().clone()),
            document: self.document.as_ref().map(document).transpose()?,
            register: self.register,
            scope: said(self.scope.as_ref(), "`scope` is scopes with spaces between")?,
            tokens: base.join(self.tokens.clone().unwrap_or_else(usual)),
            port: self.port.unwrap_or(0),
            reach: if self.private_network { Reach::Private } else { Reach::Public },
        })
    }

    fn resource(&self, server: &Target) -> Result<Option<String>, Misfit> {
        let Some(said) = &self.resource else { return Ok(None) };
        let text = address(said, "resource")?;
        let of_server = Target::parse(&text).is_ok_and(|said| said.origin() == server.origin());
        if of_server {
            return Ok(Some(text));
        }
        let message = "`resource` is what the server calls itself, at the host of its `url`";
        Err(Misfit::at(&said.span(), message))
    }
}

fn said(said: Option<&Spanned<String>>, message: &str) -> Result<Option<String>, Misfit> {
    said.map(|said| plain(said, message)).transpose()
}

/// An address over TLS, or of this machine, as it is written.
fn address(said: &Spanned<String>, key: &str) -> Result<String, Misfit> {
    let misfit = |why: &str| {
        Misfit::at(&said.span(), format!("`{key}` is an address such as \"https://host\": {why}"))
    };
    let target = Target::parse(said.get_ref()).map_err(|fault| misfit(&fault.to_string()))?;
    if target.is_encrypted() || target.is_this_machine() {
        return Ok(said.get_ref().clone());
    }
    Err(misfit("it is on plain http"))
}

/// The address of a document, which is the id of a client: over TLS, and with a path.
fn document(said: &Spanned<String>) -> Result<String, Misfit> {
    let good = Target::parse(said.get_ref())
        .is_ok_and(|target| target.is_encrypted() && target.path() != "/");
    if good {
        return Ok(said.get_ref().clone());
    }
    let message =
        "`document` is the https:// address, with a path, of a document that describes the client";
    Err(Misfit::at(&said.span(), message))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const SERVER: &str = "[mcp.servers.bank]\nurl = 'https://mcp.example/mcp'\n";

    fn good(rest: &str) -> LoginChoice {
        let text = format!("{SERVER}[mcp.servers.bank.login]\n{rest}");
        let config = parse(&text, Path::new("/etc/base"));
        let config = config.unwrap_or_else(|misfit| panic!("{}", misfit.sentence(&text)));
        config.mcp[0].login().unwrap().clone()
    }

    #[track_caller]
    fn bad(rest: &str, sentence: &str) {
        let text = format!("{SERVER}[mcp.servers.bank.login]\n{rest}");
        let found = parse(&text, Path::new("/")).unwrap_err().sentence(&text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
    }

    #[test]
    fn what_is_not_said_is_closed() {
        let login = good("");
        assert_eq!(login.tokens, Path::new("/etc/base/bank.login.json"));
        assert_eq!((login.register, login.port, login.reach), (false, 0, Reach::Public));
        assert_eq!((login.issuer, login.client, login.document), (None, None, None));
    }

    #[test]
    fn everything_that_can_be_said() {
        let login = good(
            "issuer = 'https://login.example/t'\nresource = 'https://mcp.example'\nclient = 'c'\nsecret = 's'\n\
             document = 'https://me.example/c.json'\nregister = true\nscope = 'a b'\ntokens = 't.json'\nport = 4711\n\
             private_network = true\n[credentials.s]\nfile = 's.key'\n",
        );
        assert_eq!(login.issuer.as_deref(), Some("https://login.example/t"));
        assert_eq!(login.resource.as_deref(), Some("https://mcp.example"));
        assert_eq!(login.secret, Some(SecretSource::File("/etc/base/s.key".into())));
        assert_eq!((login.client.as_deref(), login.scope.as_deref()), (Some("c"), Some("a b")));
        assert_eq!((login.port, login.reach), (4711, Reach::Private));
        assert_eq!(login.tokens, Path::new("/etc/base/t.json"));
    }

    #[test]
    fn what_cannot_be_a_login_is_refused_where_it_stands() {
        bad("issuer = 'http://login.example'\n", "line 4, column 10: `issuer` is an address");
        bad("issuer = 'https://a@login.example'\n", "line 4, column 10: `issuer` is an address");
        bad("resource = 'https://other.example/mcp'\n", "line 4, column 12: `resource` is what");
        bad("document = 'https://me.example'\n", "line 4, column 12: `document` is the https://");
        bad("document = 'http://localhost/x'\n", "line 4, column 12: `document` is the https://");
        bad("client = ''\n", "line 4, column 10: `client` is the id");
        bad("secret = 'none'\n", "line 4, column 10: `credential` names a table");
        bad("secret = 's'\n[credentials.s]\nenv = 'S'\n", "line 4, column 10: `secret` is that of");
        bad("port = 70000\n", "line 4, column 8: ");
        bad("tokn = 'x'\n", "line 4, column 1: unknown field `tokn`");
        let both = format!("{SERVER}credential = 'k'\nlogin = {{}}\n[credentials.k]\nenv = 'K'\n");
        let found = parse(&both, Path::new("/")).unwrap_err().sentence(&both);
        assert!(found.starts_with("line 4, column 9: a server has either"), "{found}");
        let program = "[mcp.servers.bank]\ncommand = 'x'\nlogin = {}\n";
        let found = parse(program, Path::new("/")).unwrap_err().sentence(program);
        assert!(found.starts_with("line 3, column 9: only a server with a `url`"), "{found}");
    }

    #[test]
    fn another_issuer_makes_another_server() {
        let place = |rest: &str| {
            let text = format!("{SERVER}{rest}");
            parse(&text, Path::new("/")).unwrap().mcp[0].place()
        };
        let one = place("[mcp.servers.bank.login]\nissuer = 'https://a.example'\n");
        let other = place("[mcp.servers.bank.login]\nissuer = 'https://b.example'\n");
        assert!(one != other && one != place("") && other != place(""), "{one} {other}");
    }
}
