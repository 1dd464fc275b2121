//! Logging in to a protected MCP server: once by a browser, then used by every command, with tokens that nobody sees.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use portcullis_canon::{Limits, Value, parse};

use crate::home::{Ended, Home, text};

/// A bank that wants a token, and the issuer of its tokens: both in one program, each at a port of its own. The issuer
/// agrees to everything, and gives each refresh token once. What is in `place/odd` says what it does wrong.
const BANK: &str = r#"import base64, hashlib, http.server, json, os, sys, threading, urllib.parse

place = sys.argv[1]
logins, state = {}, {"given": 0}

def odd():
    try:
        return open(place + "/odd").read()
    except FileNotFoundError:
        return ""

def note(name, line):
    with open(place + "/" + name, "a") as file:
        file.write(line + "\n")

class Base(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def json(self, value, status=200):
        self.reply(status, json.dumps(value).encode(), content_type="application/json")

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

class Bank(Base):
    def do_GET(self):
        if self.path == "/.well-known/oauth-protected-resource/mcp":
            return self.json({"resource": bank_url, "authorization_servers": [issuer], "scopes_supported": ["read"]})
        self.reply(405)

    def do_POST(self):
        message = json.loads(self.body())
        shown = self.headers.get("authorization", "")
        if shown != "Bearer canary-access-%d" % state["given"]:
            return self.reply(401, www_authenticate='Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"' % bank_origin)
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "bank", "version": "1"}}
        elif "id" not in message:
            return self.reply(202)
        elif method == "tools/list":
            result = {"tools": [{"name": "balance", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            if odd() == "scope":
                return self.reply(403, www_authenticate='Bearer error="insufficient_scope", scope="read balance:see"')
            result = {"content": [{"type": "text", "text": "12"}]}
        else:
            return self.reply(404)
        self.json({"jsonrpc": "2.0", "id": message["id"], "result": result})

class Issuer(Base):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/.well-known/oauth-authorization-server":
            return self.json({"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token",
                              "registration_endpoint": issuer + "/register", "code_challenge_methods_supported": ["S256"],
                              "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                              "authorization_response_iss_parameter_supported": True})
        if path != "/authorize":
            return self.reply(404)
        asked = dict(urllib.parse.parse_qsl(query))
        note("asked.txt", asked.get("scope", "-"))
        code = "canary-code-%d" % len(logins)
        logins[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": "https://evil.example" if odd() == "iss" else issuer}
        self.reply(302, location=asked["redirect_uri"] + "?" + urllib.parse.urlencode(answer))

    def do_POST(self):
        body = self.body().decode()
        if self.path == "/register":
            note("registered.txt", body)
            return self.json({"client_id": "me", "client_secret": "canary-secret", "token_endpoint_auth_method": "client_secret_basic"}, 201)
        asked = dict(urllib.parse.parse_qsl(body))
        note("traded.txt", asked["grant_type"])
        good = self.headers.get("authorization") == "Basic " + base64.b64encode(b"me:canary-secret").decode() and asked["resource"] == bank_url
        if asked["grant_type"] == "authorization_code":
            login = logins.pop(asked["code"], {})
            proof = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest()).decode().rstrip("=")
            good = good and proof == login.get("code_challenge") and asked["redirect_uri"] == login.get("redirect_uri")
        else:
            good = good and asked["refresh_token"] == "canary-refresh-%d" % state["given"]
        if not good:
            return self.json({"error": "invalid_grant"}, 400)
        state["given"] += 1
        # The first is too short to be used: who uses it first has to get the next one.
        life = 1 if asked["grant_type"] == "authorization_code" else 3600
        self.json({"access_token": "canary-access-%d" % state["given"], "token_type": "Bearer", "expires_in": life,
                   "refresh_token": "canary-refresh-%d" % state["given"]})

bank, issuing = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Bank, Issuer))
bank_origin, issuer = ("http://127.0.0.1:%d" % server.server_address[1] for server in (bank, issuing))
bank_url = bank_origin + "/mcp"
threading.Thread(target=issuing.serve_forever, daemon=True).start()
with open(place + "/urls.new", "w") as file:
    file.write(bank_url + "\n" + issuer)
os.rename(place + "/urls.new", place + "/urls")
bank.serve_forever()
"#;

const SCRIPT: &str = r#"{"kind":"tool_call","tool":"bank.balance","arguments":{}}
{"kind":"complete","result":1}"#;

pub(crate) struct Bank {
    home: Home,
    config: String,
    issuer: String,
    child: Child,
}

impl Drop for Bank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bank {
    /// With what stands in the login's table.
    pub(crate) fn new(login: &str) -> Self {
        let home = Home::new();
        let program = home.write("bank/server.py", BANK);
        let place = home.path("bank");
        let mut server = Command::new("python3");
        let child = server.arg(program).arg(&place).stdout(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let urls = loop {
            if let Ok(urls) = fs::read_to_string(place.join("urls")) {
                break urls;
            }
            assert!(Instant::now() < until, "the bank does not open");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (url, issuer) = urls.split_once('\n').unwrap();
        let rules = format!(
            "[mcp.servers.bank]\nurl = '{url}'\n[mcp.servers.bank.login]\n{login}\n\
             [mcp.servers.bank.tools.balance]\neffect = 'read_only'\naccept_hints = true\n"
        );
        let config = home.write("bank.toml", rules).display().to_string();
        Self { home, config, issuer: issuer.to_owned(), child }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(&["-c", &self.config]);
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(args).output().unwrap())
    }

    fn balance(&self) -> Ended {
        let agent = format!("scripted:{}", self.home.write("agent.jsonl", SCRIPT).display());
        self.run(&["run", "--agent", &agent, "do it"])
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.home.path("bank").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn login(&self, more: &[&str]) -> Asking {
        let mut command = self.command(&["login", "bank", "--json", "--issuer", &self.issuer]);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let told = parse(line.trim_end().as_bytes(), &Limits::ENVELOPE);
        let told = told.unwrap_or_else(|_| {
            let mut err = String::new();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("no address: {line:?} {err}")
        });
        let url = text(&told, "url");
        Asking { child, out, told, url }
    }

    /// All that the command may know and nobody may see.
    #[track_caller]
    fn shows_nothing(&self, ended: &Ended) {
        for secret in ["canary-access", "canary-refresh", "canary-code", "canary-secret"] {
            assert!(!ended.out.contains(secret) && !ended.err.contains(secret), "{ended:#?}");
        }
    }
}

/// A login that waits for its answer.
pub(crate) struct Asking {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The first line.
    pub(crate) told: Value,
    pub(crate) url: String,
}

impl Asking {
    pub(crate) fn ends(mut self) -> Ended {
        drop(self.child.stdin.take());
        let mut out = String::new();
        self.out.read_to_string(&mut out).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Ended { out, ..Ended::of(&output) }
    }
}

/// What a page of this machine answers.
pub(crate) fn browse(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Where the issuer sends the browser on to.
pub(crate) fn agreed(url: &str) -> String {
    let answer = browse(url);
    let location = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("location").then(|| value.to_owned())
    });
    location.unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_login_is_made_once_and_used_by_every_command_with_tokens_that_nobody_sees() {
    let bank = Bank::new("register = true");
    let hint = "portcullis login bank";
    bank.run(&["pin", "bank"]).refuses(1, "E7504", &["nobody is logged in", hint]);
    assert!(bank.lines("traded.txt").is_empty());
    // Whose tokens count has to be said.
    let unsure = bank.run(&["login", "bank"]);
    let named = format!("the server names `{}`", bank.issuer);
    unsure.refuses(1, "E7504", &[&named, "portcullis login bank --issuer URL"]);

    let asking = bank.login(&[]);
    let back = agreed(&asking.url);
    // What is somebody else's is waited past.
    let (page, _) = back.split_once('?').unwrap();
    assert!(browse(&format!("{page}?code=evil&state=evil")).starts_with("HTTP/1.1 400 "));
    let page = browse(&back);
    assert!(page.starts_with("HTTP/1.1 200 ") && !page.contains("canary"), "{page}");
    let ended = asking.ends().exits(0);
    bank.shows_nothing(&ended);
    let file = bank.home.path("bank.login.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(bank.lines("asked.txt"), ["read"]);
    assert!(bank.lines("registered.txt")[0].contains(r#""application_type":"native""#));

    let pinned = bank.run(&["pin", "bank"]).exits(0);
    let ran = bank.balance().exits(0);
    let shown = bank.run(&["show", &bank.home.only_run(), "--json"]).exits(0);
    for ended in [&pinned, &ran, &shown] {
        bank.shows_nothing(ended);
    }
    assert_eq!(bank.lines("traded.txt"), ["authorization_code", "refresh_token"]);

    // A call for which the token is not enough says what a person runs; the next login asks for both.
    bank.home.write("bank/odd", "scope");
    bank.balance();
    let runs = bank.run(&["runs", "--json"]).json(0);
    let newest = text(&runs.get("runs").and_then(Value::as_array).unwrap()[0], "run");
    let shown = bank.run(&["show", &newest, "--json"]).exits(0);
    assert!(shown.out.contains("portcullis login bank --scope 'read balance:see'"), "{shown:#?}");
    let asking = bank.login(&["--scope", "balance:see"]);
    browse(&agreed(&asking.url));
    asking.ends().exits(0);
    assert_eq!(bank.lines("asked.txt").last().unwrap(), "balance:see read");
    // And one that is not for more asks for what the server wants alone.
    let asking = bank.login(&[]);
    browse(&agreed(&asking.url));
    asking.ends().exits(0);
    assert_eq!(bank.lines("asked.txt").last().unwrap(), "read");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anybody_is_asked() {
    let bank = Bank::new("register = true");
    let file = bank.home.path("bank.login.json");
    fs::create_dir(&file).unwrap();
    let issuer = bank.issuer.clone();
    let refused = bank.run(&["login", "bank", "--issuer", &issuer]);
    refused.refuses(1, "E7504", &["bank.login.json` is not a plain file"]);
    assert!(bank.lines("registered.txt").is_empty() && bank.lines("asked.txt").is_empty());
}

#[test]
fn an_answer_can_be_pasted_and_one_of_another_issuer_is_not_traded() {
    // Whoever has the port has it still: nobody lands there.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let bank = Bank::new(&format!("register = true\nport = {port}"));
    let mut asking = bank.login(&["--paste"]);
    let back = agreed(&asking.url);
    assert!(back.starts_with(&format!("http://127.0.0.1:{port}/callback?")), "{back}");
    writeln!(asking.child.stdin.take().unwrap(), "{back}").unwrap();
    bank.shows_nothing(&asking.ends().exits(0));
    bank.run(&["pin", "bank"]).exits(0);

    let rules = fs::read_to_string(&bank.config).unwrap();
    bank.home.write("bank.toml", rules.replace(&format!("port = {port}"), ""));
    let kept = fs::read(bank.home.path("bank.login.json")).unwrap();
    let traded = bank.lines("traded.txt").len();
    bank.home.write("bank/odd", "iss");
    let asking = bank.login(&[]);
    browse(&agreed(&asking.url));
    let ended = asking.ends().exits(1);
    assert!(
        ended.err.contains("E7504") && ended.err.contains("not from the issuer of this login"),
        "{ended:#?}"
    );
    bank.shows_nothing(&ended);
    assert_eq!(bank.lines("traded.txt").len(), traded, "the code is not traded");
    assert_eq!(fs::read(bank.home.path("bank.login.json")).unwrap(), kept);
}

#[test]
fn tokens_are_those_of_the_server_and_the_issuer_that_the_configuration_names() {
    let bank = Bank::new("register = true");
    let asking = bank.login(&[]);
    browse(&agreed(&asking.url));
    asking.ends().exits(0);
    bank.run(&["pin", "bank"]).exits(0);
    let traded = bank.lines("traded.txt").len();
    let rules = fs::read_to_string(&bank.config).unwrap();
    for (find, put, sentence) in [
        ("/mcp'", "/mcp2'", "another login's"),
        (
            "[mcp.servers.bank.login]\n",
            "[mcp.servers.bank.login]\nissuer = 'https://a.example'\n",
            "another issuer",
        ),
        (
            "[mcp.servers.bank.login]\n",
            "[mcp.servers.bank.login]\nclient = 'other'\n",
            "another client's",
        ),
    ] {
        bank.home.write("bank.toml", rules.replacen(find, put, 1));
        bank.run(&["pin", "bank"]).refuses(1, "E7504", &[sentence, "portcullis login bank"]);
    }
    bank.home.write("bank.toml", &rules);
    let file = bank.home.path("bank.login.json");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    bank.run(&["pin", "bank"]).refuses(1, "E7504", &["read or written by others"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(bank.lines("traded.txt").len(), traded, "nothing was asked for");
    bank.run(&["pin", "bank"]).exits(0);
    // A server without a login table is none to log in to.
    bank.home.write("bank.toml", "[mcp.servers.bank]\ncommand = 'x'\n");
    bank.run(&["login", "bank"]).refuses(1, "E7504", &["is not one that people log in to"]);
}
