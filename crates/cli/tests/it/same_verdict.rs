//! The same rules say the same of a call, whichever door it comes through: a run of the command, the library, a host's hook, an
//! MCP host on a pipe, and one over HTTP.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_canon::{Limits as JsonLimits, Object, Value, parse};
use portcullis_domain::limits::Limits;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{
    BoxFuture, Clock as _, Page, Store as _, ToolFailure, ToolOutput, ToolSource,
};
use portcullis_domain::scope::Scope;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_engine::{Gate, Parts, Task, Timing, Tools};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::block_on;
use portcullis_testkit::ports::{FixedProcesses, ManualClock, SeededEntropy, ThreadSpawn};

use crate::home::{Ended, Home, text};
use crate::listen::Door;
use crate::proxy::Host;

/// A call of the command's own tools in each class.
const CALLS: [(EffectClass, &str, &str); 4] = [
    (EffectClass::ReadOnly, "files.list", r#"{"path":"."}"#),
    (EffectClass::LocalMutation, "files.create", r#"{"path":"a","content":"a"}"#),
    (EffectClass::RemoteMutation, "http.send", r#"{"url":"https://a.example/x","method":"POST"}"#),
    (EffectClass::Destructive, "files.delete", r#"{"path":"b"}"#),
];

fn outcomes() -> [(&'static str, Outcome); 5] {
    [
        ("'allow'", Outcome::Allow),
        ("'ask'", Outcome::ask("operator", 1).unwrap()),
        ("{ ask = 'nobody' }", Outcome::ask("nobody", 1).unwrap()),
        ("'deny'", Outcome::Deny),
        ("'abort'", Outcome::Abort),
    ]
}

/// One tool of a class, under the name that the command has for one.
struct OneTool(EffectClass, &'static str);

impl ToolSource for OneTool {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: self.1.to_owned(),
            description: "A tool of the tests.".to_owned(),
            input_schema: parse(br#"{"type":"object"}"#, &JsonLimits::BARE).unwrap(),
            effect: self.0,
            source: true,
            sink: true,
            authority: Vec::new(),
            deadline_ms: 5_000,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
            probe: None,
            idempotency_key: None,
        }]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async { Ok(ToolOutput { content: b"{}".to_vec(), labels: None }) })
    }
}

fn proposal(tool: &str, arguments: &str) -> String {
    format!(r#"{{"kind":"tool_call","tool":"{tool}","arguments":{arguments}}}"#)
}

/// The verdict that a library's gate records.
fn by_library(class: EffectClass, tool: &'static str, arguments: &str, table: ClassTable) -> Value {
    let (clock, entropy) = (ManualClock::default(), SeededEntropy::new(7));
    let store = MemoryStore::new(clock.now(), &entropy);
    let key = SigningKey::generate(&entropy);
    let ring = Keyring::new([KeyEntry::new(key.public(), "ann", ["operator"])]).unwrap();
    let gate = Gate::new(Parts {
        store: Arc::new(store.clone()),
        clock: Arc::new(clock),
        entropy: Arc::new(entropy),
        spawn: Arc::new(ThreadSpawn::default()),
        processes: Arc::new(FixedProcesses::new(1)),
        keys: Arc::new(ring),
        policy: Arc::new(table),
        tools: Arc::new(Tools::register(vec![Arc::new(OneTool(class, tool))]).unwrap()),
        reconcile: None,
        conversation: None,
        timing: Timing::default(),
    });
    let scope = Scope::of_file_owner();
    let task = Task {
        goal: "one call".to_owned(),
        owner: "ann".to_owned(),
        thread: None,
        parent: None,
        limits: Limits::default(),
        agent: "test".to_owned(),
        unconfined_agent: false,
    };
    let mut held = block_on(gate.begin(&scope, task)).unwrap();
    let progress = block_on(held.propose(proposal(tool, arguments).into_bytes())).unwrap();
    if progress == portcullis_engine::Progress::Allowed {
        block_on(held.execute()).unwrap();
    }
    let page = Page { offset: 0, limit: 1 };
    let step = block_on(store.steps(&scope, held.run(), page)).unwrap().rows.remove(0).unwrap();
    portcullis_canon::to_value(&step.verdict).unwrap()
}

/// What is recorded of the first step of each run of this home, by the agent of the run; oldest first.
fn recorded(home: &Home) -> Vec<(String, Value)> {
    let runs = home.run(&["runs", "--json"]).json(0);
    let runs = runs.get("runs").unwrap().as_array().unwrap();
    let first = |run: &Value| {
        let shown = home.run(&["show", &text(run, "run"), "--json"]).json(0);
        let agent = text(shown.get("run").unwrap(), "agent");
        let verdict = shown.pointer("/steps/0/verdict");
        (agent, verdict.unwrap_or_else(|| panic!("{shown:?}")).clone())
    };
    runs.iter().rev().map(first).collect()
}

/// The same call through MCP over a pipe and over HTTP, each a conversation of its own.
fn by_hosts(home: &Home, config: &str, tool: &str, arguments: &str) {
    let name = tool.replace('.', "_");
    let files = home.path("files").display().to_string();
    let mut host = Host::of(home.command(&["proxy", "-c", config, "--files", &files]));
    host.call(&name, arguments);
    host.leave();
    let door = Door::start(home, config, &[]);
    door.call(&name, arguments);
    door.leave();
}

#[test]
fn one_policy_one_verdict_through_every_door() {
    let mut kinds = std::collections::BTreeSet::new();
    for (class, tool, arguments) in CALLS {
        for (word, outcome) in outcomes() {
            let home = Home::new();
            std::fs::write(home.path("files/b"), "b").unwrap();
            let rules = format!(
                "[classes]\n{} = {word}\n[proxy]\nhold_ms = 0\n[[http.places]]\norigin = 'https://a.example'\nmethods = ['POST']\n\
                 [decide.tools]\n'{tool}' = '{}'\n",
                class.as_str(),
                class.as_str()
            );
            let config = home.write("config/portcullis/portcullis.toml", rules);
            let config = config.display().to_string();
            // The call to a host that is not there comes to nothing; what is compared is what was said before it.
            let script = format!("{}\n{{\"kind\":\"complete\"}}\n", proposal(tool, arguments));
            home.scripted(&script, &["-q", "-c", &config]);
            let event = format!(
                r#"{{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"{tool}","tool_input":{arguments}}}"#
            );
            let mut child = home
                .command(&["decide", "--host", "claude-code", "--timeout-ms", "60000"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(event.as_bytes()).unwrap();
            let answered = Ended::of(&child.wait_with_output().unwrap());
            let table = ClassTable::default().with(class, outcome);
            let library = by_library(class, tool, arguments, table);
            let kind = text(&library, "outcome");
            let place = format!("{tool} {word}");
            // A driver that nobody could answer begins nothing, so that there is no verdict.
            let answerable = word != "{ ask = 'nobody' }";
            if answerable {
                by_hosts(&home, &config, tool, arguments);
            }
            let all = recorded(&home);
            let agents: Vec<&str> = all.iter().map(|(agent, _)| agent.as_str()).collect();
            let doors: &[&str] = match answerable {
                true => &["scripted:", "hook:", "mcp-proxy", "mcp-proxy"],
                false => &["hook:"],
            };
            let through = |(agent, door): (&&str, &&str)| agent.starts_with(door);
            assert!(
                agents.len() == doors.len() && agents.iter().zip(doors).all(through),
                "{place}: {agents:?}"
            );
            for (agent, verdict) in all {
                assert_eq!(verdict, library, "{place} by {agent}");
            }
            assert_eq!(answered.code == Some(0), kind == "allow", "{place}: {answered:#?}");
            kinds.insert(kind);
        }
    }
    assert_eq!(
        kinds.iter().map(String::as_str).collect::<Vec<_>>(),
        ["abort", "allow", "ask", "deny"]
    );
}
