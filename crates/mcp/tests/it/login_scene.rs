//! A protected server and the issuer of its tokens on plain sockets, as good or as bad as a plan says; both keep all that
//! reaches them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_egress::{
    Credential, CredentialRef, Credentials, Egress, EgressRules, Login, LoginFile, Reach, Secret,
    Target,
};
use portcullis_mcp::{
    Asked, Challenges, Http, HttpServer, LoginError, LoginTerms, Session as _, begin,
};
use portcullis_testkit::ports::{ManualClock, SeededEntropy};

use crate::scene::PATIENT;

/// Where a browser would be sent back to.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:4711/callback";

pub(crate) const PRM: &str = "/.well-known/oauth-protected-resource/mcp";
pub(crate) const ROOT_PRM: &str = "/.well-known/oauth-protected-resource";
pub(crate) const METADATA: &str = "/.well-known/oauth-authorization-server";

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// A field of a form.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        portcullis_egress::pairs(&self.body)
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|p| p.1)
    }
}

/// An answer: status, further lines of the head, body.
pub(crate) type Answer = (u16, String, String);

pub(crate) fn json(body: &Value) -> Answer {
    (200, "content-type: application/json\r\n".to_owned(), body.to_canonical_string())
}

/// What one of the two answers. What is not planned is 404.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    pub(crate) fixed: BTreeMap<String, Answer>,
    /// Answers that are given once each, in their order, before the fixed one.
    pub(crate) once: BTreeMap<String, Vec<Answer>>,
}

impl Plan {
    pub(crate) fn at(&mut self, path: &str, answer: Answer) {
        self.fixed.insert(path.to_owned(), answer);
    }

    /// Changes a document.
    pub(crate) fn edit(&mut self, path: &str, change: impl FnOnce(&mut Object)) {
        let Ok(Value::Object(mut document)) = parse(self.fixed[path].2.as_bytes(), &Limits::BARE)
        else {
            panic!("no document at {path}")
        };
        change(&mut document);
        self.at(path, json(&Value::Object(document)));
    }
}

/// One of the two.
pub(crate) struct Site {
    pub(crate) at: SocketAddr,
    pub(crate) plan: Arc<Mutex<Plan>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (plan, seen) = (Arc::<Mutex<Plan>>::default(), Arc::<Mutex<Vec<Seen>>>::default());
        let (planned, noted) = (Arc::clone(&plan), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (planned, noted) = (Arc::clone(&planned), Arc::clone(&noted));
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(stream, &planned, &noted));
            }
        });
        Self { at, plan, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn of(&self, path: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.path == path).collect()
    }
}

/// Whoever asked may be gone, which ends it.
fn serve(mut stream: TcpStream, plan: &Mutex<Plan>, noted: &Mutex<Vec<Seen>>) {
    while let Some(seen) = read(&mut stream) {
        let mut answer = {
            let mut plan = plan.lock().unwrap();
            let once = plan.once.get_mut(&seen.path).filter(|once| !once.is_empty());
            let once = once.map(|once| once.remove(0));
            once.or_else(|| plan.fixed.get(&seen.path).cloned()).unwrap_or((
                404,
                String::new(),
                String::new(),
            ))
        };
        if answer.0 == 0 {
            answer = protected(&seen, &answer);
        }
        noted.lock().unwrap().push(seen);
        let (status, more, body) = answer;
        let head = format!("HTTP/1.1 {status} X\r\n{more}content-length: {}\r\n\r\n", body.len());
        if stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body.as_bytes()))
            .is_err()
        {
            return;
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<Seen> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&piece[..count]),
        }
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let mut seen = Seen { path, head, body: String::new() };
    let length = seen.header("content-length").map_or(0, |text| text.parse().unwrap());
    while body.len() < length {
        match stream.read(&mut piece).ok()? {
            0 => return None,
            count => body.extend_from_slice(&piece[..count]),
        }
    }
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}

/// The server itself: with the token in the plan's body it works, without it is refused as the plan's head says.
fn protected(seen: &Seen, (_, refusal, token): &Answer) -> Answer {
    if seen.header("authorization") != Some(&format!("Bearer {token}")) {
        return (401, refusal.clone(), String::new());
    }
    if seen.head.starts_with("GET ") {
        return (405, String::new(), String::new());
    }
    let message = parse(seen.body.as_bytes(), &Limits::ENVELOPE).unwrap();
    let result = match message.get("method").and_then(Value::as_str).unwrap() {
        "initialize" => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
        }
        "tools/list" => r#"{"tools":[{"name":"pay","inputSchema":{"type":"object"}}]}"#,
        "notifications/initialized" => return (202, String::new(), String::new()),
        "tools/call" => {
            let more =
                "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"pay:write\"\r\n";
            return (403, more.to_owned(), String::new());
        }
        _ => return (404, String::new(), String::new()),
    };
    let id = message.get("id").unwrap().to_canonical_string();
    let head = "content-type: application/json\r\n".to_owned();
    (200, head, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

/// The two, and where the operator keeps the tokens.
pub(crate) struct Scene {
    pub(crate) server: Site,
    pub(crate) issuer: Site,
    _folder: tempfile::TempDir,
    pub(crate) file: PathBuf,
    pub(crate) clock: ManualClock,
}

fn object(pairs: &[(&str, Value)]) -> Value {
    let mut object = Object::new();
    for (name, value) in pairs {
        object.insert(*name, value.clone());
    }
    Value::Object(object)
}

fn list(texts: &[&str]) -> Value {
    texts.iter().map(|text| Value::from(*text)).collect::<Vec<_>>().into()
}

/// What a token endpoint gives.
pub(crate) fn tokens(access: &str, refresh: &str) -> Answer {
    json(&object(&[
        ("access_token", access.into()),
        ("token_type", "Bearer".into()),
        ("expires_in", Value::from(3600)),
        ("refresh_token", refresh.into()),
    ]))
}

impl Scene {
    /// Both good, but for what `change` does to the plans of server and issuer.
    pub(crate) fn new(change: impl FnOnce(&mut Plan, &mut Plan, &str)) -> Self {
        let (server, issuer) = (Site::start(), Site::start());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login.json");
        let (mut of_server, mut of_issuer) = (Plan::default(), Plan::default());
        let name = issuer.url("");
        let refusal = format!(
            "www-authenticate: Bearer resource_metadata=\"{}\", scope=\"pay:read\"\r\n",
            server.url(PRM)
        );
        of_server.at("/mcp", (0, refusal, "access-token-1".to_owned()));
        of_server.at(
            PRM,
            json(&object(&[
                ("resource", server.url("/mcp").as_str().into()),
                ("authorization_servers", list(&[&name])),
            ])),
        );
        of_issuer.at(
            METADATA,
            json(&object(&[
                ("issuer", name.as_str().into()),
                ("authorization_endpoint", issuer.url("/authorize").as_str().into()),
                ("token_endpoint", issuer.url("/token").as_str().into()),
                ("registration_endpoint", issuer.url("/register").as_str().into()),
                ("code_challenge_methods_supported", list(&["S256"])),
                ("token_endpoint_auth_methods_supported", list(&["none"])),
            ])),
        );
        of_issuer.at("/register", json(&object(&[("client_id", "client-1".into())])));
        of_issuer.at("/token", tokens("access-token-1", "refresh-token-1"));
        change(&mut of_server, &mut of_issuer, &server.url(""));
        *server.plan.lock().unwrap() = of_server;
        *issuer.plan.lock().unwrap() = of_issuer;
        Self { server, issuer, _folder: folder, file, clock: ManualClock::default() }
    }

    pub(crate) fn good() -> Self {
        Self::new(|_, _, _| {})
    }

    pub(crate) fn terms(&self) -> LoginTerms {
        LoginTerms {
            issuer: Some(self.issuer.url("")),
            resource: None,
            client: None,
            document: None,
            register: true,
            scope: None,
            former_scope: None,
            reach: Reach::Public,
            redirect: REDIRECT.to_owned(),
            tokens: LoginFile::at(&self.file).unwrap(),
        }
    }

    pub(crate) fn http(&self) -> HttpServer {
        let mut server = HttpServer::new(Target::parse(&self.server.url("/mcp")).unwrap());
        server.login = Some("portcullis login bank".to_owned());
        server
    }

    fn egress(&self, rules: EgressRules, credentials: Credentials) -> Egress {
        Egress::new(rules, credentials, Arc::new(self.clock.clone())).unwrap()
    }

    /// As far as the request for a person.
    pub(crate) async fn begin(&self, terms: LoginTerms) -> Result<Asked, LoginError> {
        let (server, challenges) = (self.http(), Challenges::default());
        let egress = self.egress(server.rules().unwrap(), Credentials::none());
        let refused =
            Http::connect_noting(server.clone(), egress, PATIENT, challenges.clone()).await;
        assert!(refused.is_err(), "the server is protected");
        let challenge = challenges.take().expect("it said so");
        let way_out = |rules| Ok(self.egress(rules, Credentials::none()));
        begin(
            &server,
            &challenge,
            terms,
            &way_out,
            &SeededEntropy::new(u64::from(self.issuer.at.port())),
        )
        .await
    }

    /// With an answer of an issuer that means well.
    pub(crate) async fn log_in(&self, terms: LoginTerms) -> Result<(), LoginError> {
        let asked = self.begin(terms).await?;
        let state = query(asked.url(), "state").unwrap();
        let code = asked.read(&format!("code=code-1&state={state}"))?;
        asked.redeem(code).await
    }

    /// With the token that is in the file.
    pub(crate) async fn connect(&self, secret: Option<Secret>) -> Result<Http, String> {
        self.connect_as(secret, None).await
    }

    /// The same, where the operator names the client.
    pub(crate) async fn connect_as(
        &self,
        secret: Option<Secret>,
        client: Option<&str>,
    ) -> Result<Http, String> {
        let mut server = self.http();
        let login = Login::read(&self.file, secret).map_err(|fault| fault.to_string())?;
        let login = match client {
            Some(client) => login.of_client(client).map_err(|fault| fault.to_string())?,
            None => login,
        };
        let rules = server.rules().unwrap().loopback_port(login.endpoint().port());
        let token = Credential::login(login, &server.target).map_err(|fault| fault.to_string())?;
        server.credential = Some(CredentialRef::bearer("bank"));
        let egress = self.egress(rules, Credentials::new([("bank", token)]).unwrap());
        let http =
            Http::connect(server, egress, PATIENT).await.map_err(|error| error.to_string())?;
        http.list().await.map_err(|error| error.to_string())?;
        Ok(http)
    }
}

/// What stands in the query of a URL.
pub(crate) fn query(url: &str, name: &str) -> Option<String> {
    let pairs = portcullis_egress::pairs(url.split_once('?')?.1);
    pairs.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}
