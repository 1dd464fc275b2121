//! A client for the official conformance suite: this crate's own session and login, driven over everything that a server
//! offers. `mcp-client URL`; the suite says in the environment what it knows of the scenario.
//!
//! It stands for the operator, who confirms any issuer, and for their browser, which agrees to everything.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test program"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_egress::{
    Credential, CredentialRef, Credentials, Egress, EgressRules, Login, LoginFile, Reach, Secret,
    Target,
};
use portcullis_mcp::{
    Challenge, Challenges, Http, HttpServer, LoginError, LoginTerms, Session, SessionError, begin,
};
use portcullis_testkit::ports::{ManualClock, SeededEntropy};

/// How long the opening, and each call, may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a server may refuse before it is left.
const MAX_LOGINS: usize = 3;

/// The document by which the suite knows a client.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

type Fault = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("mcp-client URL");
        return ExitCode::FAILURE;
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(drive(&url)),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mcp-client: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Goes through everything, and logs in each time that the server asks for it, a few times.
async fn drive(url: &str) -> Result<(), Fault> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
    let context = parse(context.as_bytes(), &Limits::default())?;
    let place = std::env::temp_dir().join(format!("mcp-client-{}", std::process::id()));
    std::fs::create_dir(&place)?;
    let user = User {
        server: HttpServer::new(Target::parse(url)?),
        file: place.join("login.json"),
        context,
    };
    let ended = user.insist().await;
    std::fs::remove_dir_all(place)?;
    ended
}

/// What an operator would say of a server.
#[derive(Clone, Default)]
struct Said {
    issuer: Option<String>,
    resource: Option<String>,
}

struct User {
    server: HttpServer,
    file: PathBuf,
    context: Value,
}

impl User {
    async fn insist(&self) -> Result<(), Fault> {
        let challenges = Challenges::default();
        for _ in 0..MAX_LOGINS {
            let ended = self.visit(&challenges).await;
            match challenges.take() {
                Some(challenge) => self.log_in(&challenge).await?,
                None => return ended,
            }
        }
        self.visit(&challenges).await
    }

    /// Lists the tools and calls what the suite names, or each of them. What a call gives is the server's affair.
    async fn visit(&self, challenges: &Challenges) -> Result<(), Fault> {
        let (server, egress) = self.client()?;
        let session = Http::connect_noting(server, egress, PATIENCE, challenges.clone()).await;
        let session = match session {
            Ok(session) => session,
            // Some scenarios are about the opening alone.
            Err(SessionError::NoTools) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let listing = session.list().await?;
        let named = self.context.get("toolCalls").and_then(Value::as_array).unwrap_or_default();
        let mut calls: Vec<(String, Object)> = named.iter().filter_map(call).collect();
        if calls.is_empty() {
            let tools = listing.tools().iter();
            calls = tools.map(|tool| (tool.name().to_owned(), arguments(tool.raw()))).collect();
        }
        for (tool, arguments) in calls {
            println!(
                "{tool}: {:?}",
                session.call(&tool, arguments, PATIENCE.into(), &|_| {}).await
            );
        }
        session.close().await;
        Ok(())
    }

    /// With the token of a login, once there is one.
    fn client(&self) -> Result<(HttpServer, Egress), Fault> {
        let (mut server, mut credentials) = (self.server.clone(), Credentials::none());
        if self.file.exists() {
            let login = Login::read(&self.file, self.secret()?)?;
            let token = Credential::login(login, &server.target)?;
            credentials = Credentials::new([("login", token)])?;
            server.credential = Some(CredentialRef::bearer("login"));
        }
        let rules = server.rules()?.loopback();
        Ok((server, Egress::new(rules, credentials, Arc::new(ManualClock::default()))?))
    }

    fn secret(&self) -> Result<Option<Secret>, Fault> {
        let secret = self.context.get("client_secret").and_then(Value::as_str);
        Ok(secret.map(|text| Secret::new(text.to_owned())).transpose()?)
    }

    /// Where the server wants more, with what was asked for before.
    fn terms(&self, more: bool, said: Said) -> Result<LoginTerms, Fault> {
        let id = self.context.get("client_id").and_then(Value::as_str);
        let secret = self.secret()?;
        let former = match more && self.file.exists() {
            true => Some(Login::read(&self.file, self.secret()?)?),
            false => None,
        };
        Ok(LoginTerms {
            issuer: said.issuer,
            resource: said.resource,
            client: id.map(|id| (id.to_owned(), secret)),
            document: Some(DOCUMENT.to_owned()),
            register: true,
            scope: None,
            former_scope: former.and_then(|login| login.scope().map(str::to_owned)),
            reach: Reach::Public,
            redirect: "http://127.0.0.1:3000/callback".to_owned(),
            tokens: LoginFile::at(&self.file)?,
        })
    }

    async fn log_in(&self, challenge: &Challenge) -> Result<(), Fault> {
        let way_out = |rules: EgressRules| {
            Egress::new(rules, Credentials::none(), Arc::new(ManualClock::default()))
        };
        let entropy = SeededEntropy::new(u64::from(std::process::id()));
        let more = challenge.wants_more();
        let mut said = Said::default();
        let look = async |said: &Said| {
            let terms = self.terms(more, said.clone())?;
            let begun = begin(&self.server, challenge, terms, &way_out, &entropy).await;
            Ok::<_, Fault>(begun.err())
        };
        let mut look_ended = look(&said).await?;
        // Whoever runs a server at the origin alone says that its tokens are good for all of it.
        if let Some(LoginError::OtherResource(other)) = &look_ended
            && *other == self.server.target.origin()
        {
            said.resource = Some(other.clone());
            look_ended = look(&said).await?;
        }
        let Some(LoginError::Unconfirmed(issuers)) = look_ended else {
            return Err("nobody confirmed the issuer".into());
        };
        said.issuer = issuers.into_iter().next();
        let terms = self.terms(more, said)?;
        let asked = begin(&self.server, challenge, terms, &way_out, &entropy).await?;
        let answer = browse(&Target::parse(asked.url())?)?;
        let code = asked.read(answer.split_once('?').map_or("", |(_, query)| query))?;
        Ok(asked.redeem(code).await?)
    }
}

/// What a browser is sent on to.
fn browse(page: &Target) -> Result<String, Fault> {
    let text = page.text();
    let path = text.strip_prefix(&page.origin()).unwrap_or("/");
    let mut stream = TcpStream::connect(page.authority())?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        page.authority()
    )?;
    let mut answer = String::new();
    stream.take(64 * 1024).read_to_string(&mut answer)?;
    let mut fields = answer.lines().filter_map(|line| line.split_once(": "));
    let location = fields.find(|(name, _)| name.eq_ignore_ascii_case("location"));
    location.map(|(_, value)| value.to_owned()).ok_or_else(|| "the page leads nowhere".into())
}

/// A call that the suite names.
fn call(named: &Value) -> Option<(String, Object)> {
    let arguments = named.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
    Some((named.get("name")?.as_str()?.to_owned(), arguments))
}

/// Something for each parameter of a tool.
fn arguments(tool: &Value) -> Object {
    let mut all = Object::new();
    let properties = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flat_map(Object::iter) {
        let value = match schema.get("type").and_then(Value::as_str).unwrap_or_default() {
            "number" | "integer" => Value::from(1),
            "boolean" => Value::from(true),
            "string" => Value::from("text"),
            _ => continue,
        };
        all.insert(name, value);
    }
    all
}
