//! What the page `docs/tools.md` says of the HTTP tools; the page itself is made by `files/reference.rs`.

use portcullis_domain::ports::ToolFailure;
use portcullis_egress::{CredentialRef, EgressError, Fault, Method, Phase, Sent, TargetFault};

use super::rules::{MAX_HTTP_PLACES, USUAL_HEADERS};
use super::{HttpPlace, HttpRules, MAX_HTTP_CONTENT, Tool, failure};
use crate::files::reference::{line, overview, tool};

const INTRO: &str = "\
# The HTTP tools

The operator names the places: origins, each with its methods. Nothing else is reachable, however it is spelled, and a tool of
which no place admits a method is not there. The client is the one of the whole product ([egress](egress.md)): TLS is always
verified, every address that a name leads to is judged before it is dialled, no redirect is followed, nothing is sent twice.
`GET` and `HEAD` read; every other method is a change elsewhere. All of them send: what a run has read can leave in a URL, so
that the URL (and the body) carry authority. What comes back is labelled with the host that said it.

```toml
[http]
timeout_ms = 30_000           # of a whole call, 1000 to 600000
max_content_bytes = 262_144   # of an answer's body; more is cut, and said to be
headers = [\"x-ratelimit-remaining\"]   # of answers, beside the usual ones

[[http.places]]
origin = \"https://api.example.com\"    # scheme, host, and the port where it is not the usual one
methods = [\"GET\", \"POST\"]           # GET and HEAD where nothing is said
credential = \"example\"                # a table [credentials.example]
credential_header = \"x-api-key\"       # or credential_user = \"ann\" (basic); a bearer token where nothing is said

[[http.places]]
origin = \"https://pay.corp.internal:8443\"
methods = [\"POST\"]
private = true                        # may lead to private addresses
keeps_keys = \"idempotency-key\"      # takes two requests with one key in this header for one

[credentials.example]               # one store: providers of models and MCP servers name credentials here too
env = \"EXAMPLE_TOKEN\"               # or file = \"/path\", mode 0600; or a token that is refreshed (docs/egress.md)
```

A credential goes to the places that name it and nowhere else, over https or to this machine. The agent never sees it: an answer
that repeats it, in its body or in a header that is handed out or not, is not kept.

A place with `keeps_keys` is sent to by `http.send_keyed` alone. The gate fills in the key; after a crash or a lost connection it
makes the same call once more, with the same key, instead of asking a person. Say it only of a place that answers both alike.

";

const RESULT: &[(&str, &str)] = &[
    ("status", "the status, 200 to 299 or 400 to 599"),
    (
        "headers",
        "those headers that are handed out, by their names in lower case; at most 1 KiB each",
    ),
    (
        "encoding",
        "`utf8`, or `base64` for what is no text or holds a zero byte, whatever the answer says of itself",
    ),
    ("content", "the body as far as it is handed out"),
    ("cut", "true when there was more; else absent"),
];

/// What can go wrong, with how much may have been sent by then.
fn faults() -> Vec<(Fault, Sent)> {
    let host = || "a.example".to_owned();
    let slow = |phase| Fault::Deadline { host: host(), phase };
    vec![
        (Fault::Target(TargetFault::Rewritten), Sent::Nothing),
        (Fault::Unresolved { host: host() }, Sent::Nothing),
        (Fault::Connect { host: host() }, Sent::Nothing),
        (slow(Phase::Connect), Sent::Nothing),
        (slow(Phase::Header), Sent::Perhaps),
        (slow(Phase::Total), Sent::Answered),
        (Fault::Lost { host: host() }, Sent::Perhaps),
        (Fault::Redirect { host: host(), status: 302 }, Sent::Answered),
        (Fault::Encoded { host: host() }, Sent::Answered),
        (Fault::Repeated { host: host() }, Sent::Answered),
        (Fault::TooLarge { host: host(), limit: 16 * 1024 * 1024 }, Sent::Answered),
        (Fault::Cut { host: host() }, Sent::Answered),
    ]
}

fn sample() -> HttpRules {
    let place = |origin: &str| HttpPlace::new(origin).unwrap();
    let all = [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete];
    let keeps = place("https://pay.corp.internal:8443").methods([Method::Post]).private();
    let open = place("https://api.example.com").methods(all);
    HttpRules::new([
        open.credential(CredentialRef::bearer("example")),
        keeps.keeps_keys("idempotency-key").unwrap(),
    ])
    .unwrap()
}

/// Adds the section.
pub(crate) fn section(page: &mut String) {
    let rules = sample();
    page.push('\n');
    page.push_str(INTRO);
    let specs: Vec<_> = Tool::ALL.into_iter().map(|tool| tool.spec(&rules).unwrap()).collect();
    overview(page, &specs);
    for spec in &specs {
        tool(page, spec, RESULT);
    }
    line(page, "## What goes wrong with a request\n");
    line(
        page,
        "A request that reads changes nothing, whatever goes wrong. One that changes something did not happen when nothing of it \
         was sent; else nobody knows, and the run waits until a person looks (`portcullis answer`). Nor does anybody know after a \
         status of 408, or from 500 on: the server, or a gateway before it, gave up. Other statuses are answers.\n",
    );
    line(page, "| in these words | a change |\n|---|---|");
    for (fault, sent) in faults() {
        let (message, known) = match failure::of_send(&EgressError { fault, sent }) {
            ToolFailure::NothingHappened { message } | ToolFailure::Lacking { message, .. } => {
                (message, "did not happen")
            }
            ToolFailure::Failed { message } => (message, "failed, whatever it changed"),
            ToolFailure::Unknown { message } => (message, "may have happened"),
            ToolFailure::Abort { message } => (message, "ends the run"),
        };
        line(page, format_args!("| {message} | {known} |"));
    }
    let headers = USUAL_HEADERS.map(|name| format!("`{name}`")).join(", ");
    line(
        page,
        format_args!(
            "\n## Bounds of HTTP\n\n| limit | value |\n|---|---|\n| places | {MAX_HTTP_PLACES} |\n\
             | an answer's body, at most | {} MiB |\n| headers that are handed out | {headers} |\n\
             | further headers | 32, never `set-cookie` |",
            MAX_HTTP_CONTENT / 1_024 / 1_024
        ),
    );
}
