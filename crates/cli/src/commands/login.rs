//! `portcullis login`: gets the tokens of an MCP server from the issuer that the operator confirmed.

use std::io::{self, BufRead as _, Read as _};
use std::sync::Arc;
use std::time::Duration;

use portcullis::system::{OsEntropy, SystemClock};
use portcullis_canon::sanitize;
use portcullis_egress::{Credentials, Egress, EgressRules, Login, LoginFile};
use portcullis_mcp::{
    AnswerError, Asked, Challenge, Challenges, Http, HttpServer, LoginError, LoginTerms,
    Session as _, begin,
};
use portcullis_server::Landing;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::args::Globals;
use crate::config::{self, Config, LoginChoice, RemoteServer, ServerChoice, Way};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::mcp;

/// How long a person has.
const PATIENCE: Duration = Duration::from_secs(600);

/// The longest line that is pasted, in bytes.
const MAX_PASTED: u64 = 8 * 1024;

/// Arguments of `login`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server: NAME of [mcp.servers.NAME]
    #[arg(value_name = "SERVER")]
    server: String,
    /// Whose tokens count, where the configuration does not say
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Scopes to ask for, with spaces between, beside those of the last login; without it the server says which
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// Read the answer from standard input: the address that the browser came to, which it may not be able to open
    #[arg(long)]
    paste: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let config = config::load(globals)?;
    let choice = super::pin::named(&config, &args.server)?;
    let (remote, login) = place(choice)?;
    let visit = Visit { config: &config, choice, remote, login };
    // Before anybody is asked: what nothing can be kept of is not consented to.
    let tokens = LoginFile::at(&login.tokens).map_err(|fault| visit.failed(&fault.to_string()))?;
    let challenge = visit.refusal().await?;
    let answers = visit.answers(args.paste).await?;
    let asked = visit.begin(&args, &challenge, answers.redirect(), tokens).await?;
    let issuer = asked.issuer().to_owned();
    tell(&asked, &args, globals)?;
    let code = visit.code(&asked, answers).await?;
    asked.redeem(code).await.map_err(|error| visit.failed(&error.to_string()))?;
    let file = login.tokens.display().to_string();
    if globals.json {
        crate::say_json(&DoneJson {
            server: choice.name.as_str(),
            issuer: &issuer,
            tokens: &file,
        })?;
    } else {
        crate::say(&[format!(
            "logged in to `{}` at {issuer}; its tokens are in {file}",
            choice.name
        )])?;
    }
    Ok(Exit::Done)
}

/// What a person opens.
#[derive(Serialize)]
struct OpenJson<'a> {
    url: &'a str,
    issuer: &'a str,
}

/// What came of it.
#[derive(Serialize)]
struct DoneJson<'a> {
    server: &'a str,
    issuer: &'a str,
    tokens: &'a str,
}

fn place(choice: &ServerChoice) -> Result<(&RemoteServer, &LoginChoice), Failure> {
    if let Way::Url(remote) = &choice.way
        && let Some(login) = &remote.login
    {
        return Ok((remote, login));
    }
    let sentence = format!("the MCP server `{}` is not one that people log in to", choice.name);
    Err(Failure::new(Code::Login, sentence).hint(format!(
        "say how in [mcp.servers.{}.login] of the configuration: see docs/mcp.md",
        choice.name
    )))
}

fn tell(asked: &Asked, args: &Args, globals: &Globals) -> Result<(), Failure> {
    if globals.json {
        return crate::say_json(&OpenJson { url: asked.url(), issuer: asked.issuer() });
    }
    let then = match args.paste {
        true => "then paste here the address that the browser came to",
        false => "the answer is waited for here",
    };
    crate::say(&[
        format!("open this address in a browser and log in at {}; {then}:", asked.issuer()),
        asked.url().to_owned(),
    ])
}

/// Where the answer comes from.
enum Answers {
    Browser(Landing),
    /// A person, who has the address that the browser came to. Nobody waits there.
    Pasted(String),
}

impl Answers {
    fn redirect(&self) -> String {
        match self {
            Self::Browser(landing) => landing.redirect(),
            Self::Pasted(redirect) => redirect.clone(),
        }
    }
}

struct Visit<'a> {
    config: &'a Config,
    choice: &'a ServerChoice,
    remote: &'a RemoteServer,
    login: &'a LoginChoice,
}

impl Visit<'_> {
    fn failed(&self, why: &str) -> Failure {
        let name = &self.choice.name;
        let why = sanitize::line(why);
        Failure::new(Code::Login, format!("the login to the MCP server `{name}` failed: {why}"))
    }

    fn client(&self, rules: EgressRules) -> Result<Egress, portcullis_egress::RulesFault> {
        let rules = self.config.egress.over(rules)?;
        Egress::new(rules, Credentials::none(), Arc::new(SystemClock::new()))
    }

    /// What the server says when it is asked without a token. Some give their list to everybody and refuse only calls.
    async fn refusal(&self) -> Result<Challenge, Failure> {
        let server = HttpServer { login: None, ..self.remote.server.clone() };
        let rules = server.rules().and_then(|rules| self.client(rules));
        let egress = rules.map_err(|fault| self.failed(&fault.to_string()))?;
        let challenges = Challenges::default();
        let opened =
            Http::connect_noting(server, egress, self.choice.connect, challenges.clone()).await;
        let ended = match opened {
            Ok(session) => {
                let listed = session.list().await.map(drop);
                session.close().await;
                listed
            }
            Err(error) => Err(error),
        };
        match (challenges.take(), ended) {
            (Some(challenge), _) => Ok(challenge),
            (None, Ok(())) => Ok(Challenge::default()),
            (None, Err(error)) => Err(mcp::unusable(self.choice, &error)),
        }
    }

    async fn answers(&self, paste: bool) -> Result<Answers, Failure> {
        let answers = match paste {
            true => Landing::unattended(self.login.port).await.map(Answers::Pasted),
            false => Landing::bind(self.login.port).await.map(Answers::Browser),
        };
        answers.map_err(|error| {
            let why = format!("the answer cannot be waited for: {}", error.kind());
            self.failed(&why).hint("free the port of `port`, or leave it out")
        })
    }

    async fn begin(
        &self,
        args: &Args,
        challenge: &Challenge,
        redirect: String,
        tokens: LoginFile,
    ) -> Result<Asked, Failure> {
        let issuer = match (&self.login.issuer, &args.issuer) {
            (Some(stated), Some(named)) if stated != named => {
                return Err(Failure::usage(
                    "`--issuer` is another one than the configuration names",
                ));
            }
            (stated, named) => stated.clone().or_else(|| named.clone()),
        };
        let secret = self.login.secret().map_err(|fault| self.failed(&fault.to_string()))?;
        let terms = LoginTerms {
            former_scope: args.scope.as_ref().and_then(|_| self.former_scope(issuer.as_deref())),
            issuer,
            resource: self.login.resource.clone(),
            client: self.login.client.clone().map(|id| (id, secret)),
            document: self.login.document.clone(),
            register: self.login.register,
            scope: args.scope.clone().or_else(|| self.login.scope.clone()),
            reach: self.login.reach,
            redirect,
            tokens,
        };
        let way_out = |rules| self.client(rules);
        let asked = begin(&self.remote.server, challenge, terms, &way_out, &OsEntropy).await;
        asked.map_err(|error| {
            let failure = self.failed(&error.to_string());
            match &error {
                LoginError::Unconfirmed(_) => failure.hint(format!(
                    "if it is the right one, name it: `portcullis login {} --issuer URL`, or `issuer` in the configuration",
                    self.choice.name
                )),
                _ => failure,
            }
        })
    }

    /// What the last login asked for, when it was at the same issuer for the same server.
    fn former_scope(&self, issuer: Option<&str>) -> Option<String> {
        let former = Login::read(&self.login.tokens, self.login.secret().ok()?).ok()?;
        former.check(&self.remote.server.target).ok()?;
        let scope = former.scope().filter(|_| issuer == Some(former.issuer()));
        scope.map(str::to_owned)
    }

    /// The code of the answer, from the browser or from the person.
    async fn code(&self, asked: &Asked, answers: Answers) -> Result<Zeroizing<String>, Failure> {
        let read = match answers {
            Answers::Pasted(_) => {
                let line = tokio::task::spawn_blocking(pasted).await;
                let line = line.map_err(|_| self.failed("standard input cannot be read"))?;
                let line = line.map_err(|error| {
                    self.failed(&format!("standard input cannot be read: {}", error.kind()))
                })?;
                asked.read(query_of(&line))
            }
            Answers::Browser(landing) => {
                // What is somebody else's answer is waited past.
                let judge = |query: &str| match asked.read(query) {
                    Err(AnswerError::State | AnswerError::Odd) => None,
                    read => Some(read),
                };
                let answer = tokio::time::timeout(PATIENCE, landing.answer(judge)).await;
                answer.map_err(|_| self.failed("no answer came in ten minutes"))?
            }
        };
        read.map_err(|error| self.failed(&error.to_string()))
    }
}

fn pasted() -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    io::stdin().lock().take(MAX_PASTED).read_line(&mut line)?;
    Ok(line)
}

/// The query of an address as people paste it: with a fragment, blanks around it, or the query alone.
fn query_of(line: &str) -> &str {
    let line = line.trim();
    let line = line.split_once('#').map_or(line, |(before, _)| before);
    line.split_once('?').map_or(line, |(_, query)| query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_found_in_what_people_paste() {
        for line in [
            "http://127.0.0.1:4711/callback?code=a&state=b\n",
            "  http://127.0.0.1:4711/callback?code=a&state=b#_=_ ",
            "code=a&state=b\r\n",
        ] {
            assert_eq!(query_of(line), "code=a&state=b");
        }
    }
}
