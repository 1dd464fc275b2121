//! The official MCP servers behind the gate, as they are published: files, and each kind of result.
//!
//! `cargo xtask test` installs them. What a file holds says how often it was changed: each edit adds a word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_canon::Value;
use rustix::process::{Pid, Signal, kill_process};

use crate::home::{Home, text};
use crate::proxy::{Host, started};

/// Below the root: where the packages are installed, and the lock that says which.
const PLACE: &str = "target/mcp-peers";
const SOURCES: &str = "tests/mcp";

/// Rules under which each change asks.
const ASKS: &str = "local_mutation = 'ask'";

/// Rules under which each change is made.
const MAKES: &str = "local_mutation = 'allow'";

/// A server that is installed, and a Node to run it.
struct Installed {
    node: PathBuf,
    script: PathBuf,
}

/// The server of this package; a counted skip where it could not be installed.
fn installed(package: &str) -> Option<Installed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let lock = |folder: &str| fs::read(root.join(folder).join("package-lock.json")).ok();
    let modules = root.join(PLACE).join("node_modules");
    let of = |kind: &str| modules.join(format!("node-linux-{kind}/bin/node"));
    let node = [of("x64"), of("arm64")].into_iter().find(|path| path.is_file());
    let script = modules.join("@modelcontextprotocol").join(package).join("dist/index.js");
    match node {
        Some(node) if lock(PLACE) == lock(SOURCES) && script.is_file() => {
            Some(Installed { node, script })
        }
        _ => {
            portcullis_testkit::skip::skip(
                "the official MCP servers are not installed: `cargo xtask test` does it where npm can be had",
            );
            None
        }
    }
}

/// One of the servers behind the gate, pinned, in a home of its own.
struct Peer {
    home: Home,
    installed: Installed,
    args: Vec<String>,
    config: String,
}

impl Peer {
    /// The server of files, on the home's files. Its own hints say that a write destroys; the rules know better.
    fn files(classes: &str) -> Option<Self> {
        let home = Home::new();
        let args = vec![home.path("files").display().to_string()];
        let reads = ["read_text_file", "read_media_file", "list_directory"];
        let mut rules: String = reads.map(|tool| rule("peer", tool, "read_only")).concat();
        for tool in ["write_file", "edit_file"] {
            rules += &rule("peer", tool, "local_mutation");
            rules += "accept_hints = true\n";
        }
        Self::new(home, "server-filesystem", args, &rules, classes)
    }

    /// The server with each kind of result.
    fn everything() -> Option<Self> {
        let reads = [
            "echo",
            "get-tiny-image",
            "get-structured-content",
            "get-resource-links",
            "get-resource-reference",
            "trigger-long-running-operation",
        ];
        let mut rules: String = reads.map(|tool| rule("peer", tool, "read_only")).concat();
        rules += &rule("peer", "simulate-research-query", "local_mutation");
        let args = vec!["stdio".to_owned()];
        Self::new(Home::new(), "server-everything", args, &rules, MAKES)
    }

    /// The same server, with these rules for what it offers beside tools.
    fn offers(rules: &str) -> Option<Self> {
        let rules = format!("{rules}{}", rule("peer", "echo", "read_only"));
        let args = vec!["stdio".to_owned()];
        Self::new(Home::new(), "server-everything", args, &rules, MAKES)
    }

    fn new(
        home: Home,
        package: &str,
        args: Vec<String>,
        rules: &str,
        classes: &str,
    ) -> Option<Self> {
        let installed = installed(package)?;
        let quoted: Vec<String> = args.iter().map(|arg| format!(", '{arg}'")).collect();
        let config = format!(
            "[classes]\n{classes}\n[proxy]\nhold_ms = 0\n[mcp.servers.peer]\ncommand = '{}'\nargs = ['{}'{}]\n\
             connect_timeout_ms = 300000\ntimeout_ms = 300000\nmanifest = 'pins/peer.json'\n{rules}",
            installed.node.display(),
            installed.script.display(),
            quoted.concat(),
        );
        let config = home.write("peer.toml", config).display().to_string();
        fs::create_dir(home.path("pins")).unwrap();
        home.run(&["-c", &config, "pin", "peer"]).exits(0);
        let checked = home.run(&["-c", &config, "check"]).exits(0);
        assert!(!checked.out.contains("is refused"), "{checked:#?}");
        Some(Self { home, installed, args, config })
    }

    /// A host that starts it behind the gate.
    fn host(&self) -> Host {
        Host::of(self.home.command(&["proxy", "-c", &self.config, "--thread", "editor"]))
    }

    /// A host that starts it as it is.
    fn bare(&self) -> Host {
        let mut command = Command::new(&self.installed.node);
        command.arg(&self.installed.script).args(&self.args);
        Host::of(command)
    }

    /// A file of the home, as the server is told of it.
    fn file(&self, name: &str) -> String {
        self.home.path("files").join(name).display().to_string()
    }

    fn holds(&self, name: &str) -> String {
        fs::read_to_string(self.home.path("files").join(name)).unwrap_or_default()
    }

    /// The account from which an edit takes something: each that is made adds a word.
    fn account(&self) -> String {
        self.home.write("files/account.txt", "balance\n");
        let path = self.file("account.txt");
        format!(
            r#"{{"path":"{path}","edits":[{{"oldText":"balance","newText":"balance paid"}}],"dryRun":false}}"#
        )
    }

    /// The one question that waits.
    fn question(&self) -> Value {
        let inbox = self.home.run(&["inbox", "--json"]).json(0);
        let [question] = inbox.get("questions").unwrap().as_array().unwrap() else {
            panic!("{inbox:?}")
        };
        question.clone()
    }

    /// The server's process behind the proxy.
    fn server(&self) -> Pid {
        let files = self.file("");
        let files = files.trim_end_matches('/');
        let found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let mut words = line.split(|byte| *byte == 0);
            let node = words.next()? == self.installed.node.as_os_str().as_encoded_bytes();
            (node && words.any(|word| word == files.as_bytes())).then_some(id)
        });
        Pid::from_raw(found.expect("the server runs")).unwrap()
    }
}

fn rule(server: &str, tool: &str, effect: &str) -> String {
    format!("[mcp.servers.{server}.tools.{tool}]\neffect = '{effect}'\n")
}

#[track_caller]
fn wait_for(what: &str, mut seen: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(300);
    while !seen() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether something was written to this process that it did not read yet.
fn is_asked(process: Pid) -> bool {
    let input = fs::File::open(format!("/proc/{}/fd/0", process.as_raw_nonzero())).unwrap();
    rustix::io::ioctl_fionread(&input).unwrap() > 0
}

/// `T` for a process that is stopped, `Z` or nothing for one that is gone.
fn state(process: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    wait_for("it is stopped", || state(process) == Some('T'));
}

fn proxy_of(host: &Host) -> Pid {
    Pid::from_child(&host.child)
}

#[test]
fn a_read_passes_and_a_write_waits_is_approved_by_another_process_and_is_collected_once() {
    let Some(peer) = Peer::files(ASKS) else { return };
    peer.home.write("files/notes.txt", "hello");
    let mut host = peer.host();
    let read = host.call("peer_read_text_file", &path(&peer.file("notes.txt")));
    assert!(read.text.contains("hello") && !read.failed, "{read:?}");
    let list = host.call("peer_list_directory", &path(&peer.file("")));
    assert!(list.text.contains("[FILE] notes.txt") && !list.failed, "{list:?}");
    let outside = host.call("peer_read_text_file", &path("/etc/hostname"));
    assert!(outside.text.contains("The tool failed: ") && outside.failed, "{outside:?}");

    let write = format!(r#"{{"path":"{}","content":"one"}}"#, peer.file("new.txt"));
    let waits = host.call("peer_write_file", &write);
    assert_eq!((waits.word(), waits.failed), ("PENDING_APPROVAL", false));
    let question = peer.question();
    peer.home.run(&["approve", &text(&question, "question"), "--yes"]).exits(0);
    assert_eq!(peer.holds("new.txt"), "", "an approval alone writes nothing");
    let collected = host.call("peer_write_file", &write);
    assert!(collected.text.contains("Successfully wrote") && !collected.failed, "{collected:?}");
    assert_eq!(peer.holds("new.txt"), "one");
    peer.home.write("files/new.txt", "changed since");
    let again = host.call("peer_write_file", &write);
    assert_eq!((again.word(), again.failed), ("DUPLICATE", true));
    assert_eq!(peer.holds("new.txt"), "changed since", "it is not written a second time");
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    peer.home.run(&["verify"]).exits(0);
}

fn path(path: &str) -> String {
    format!(r#"{{"path":"{path}"}}"#)
}

#[test]
fn a_proxy_killed_after_the_server_wrote_leaves_one_question_and_no_second_write() {
    let Some(peer) = Peer::files(MAKES) else { return };
    let edit = peer.account();
    let mut host = peer.host();
    let (server, proxy) = (peer.server(), proxy_of(&host));
    stop(server);
    host.send_call("peer_edit_file", &edit);
    wait_for("the server is asked", || is_asked(server));
    // From here on nobody hears the server's answer.
    stop(proxy);
    kill_process(server, Signal::CONT).unwrap();
    wait_for("the file is written", || peer.holds("account.txt") == "balance paid\n");
    host.kill();
    wait_for("the server is gone", || matches!(state(server), None | Some('Z')));

    let mut host = peer.host();
    for _ in 0..2 {
        let told = host.call("peer_edit_file", &edit);
        assert_eq!((told.word(), told.failed), ("UNKNOWN_OUTCOME", false));
    }
    let question = peer.question();
    assert_eq!(text(&question, "kind"), "unknown_outcome");
    assert_eq!(
        (peer.holds("account.txt").as_str(), started(&peer.home.db())),
        ("balance paid\n", 1)
    );
    peer.home.run(&["answer", &text(&question, "run"), "happened", "--yes"]).exits(0);
    let told = host.call("peer_edit_file", &edit);
    assert_eq!((told.word(), told.failed), ("DUPLICATE", true));
    assert_eq!(
        (peer.holds("account.txt").as_str(), started(&peer.home.db())),
        ("balance paid\n", 1)
    );
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    peer.home.run(&["verify"]).exits(0);
}

#[test]
fn a_proxy_killed_before_the_server_wrote_leaves_one_question_and_then_one_write() {
    let Some(peer) = Peer::files(MAKES) else { return };
    let edit = peer.account();
    let mut host = peer.host();
    let server = peer.server();
    stop(server);
    host.send_call("peer_edit_file", &edit);
    wait_for("the server is asked", || is_asked(server));
    host.kill();
    wait_for("the server is gone", || matches!(state(server), None | Some('Z')));
    assert_eq!(peer.holds("account.txt"), "balance\n", "what was asked dies with the server");

    let mut host = peer.host();
    let told = host.call("peer_edit_file", &edit);
    assert_eq!((told.word(), told.failed), ("UNKNOWN_OUTCOME", false));
    let question = peer.question();
    peer.home.run(&["answer", &text(&question, "run"), "did-not-happen", "--yes"]).exits(0);
    let made = host.call("peer_edit_file", &edit);
    assert!(!made.failed && made.text.contains("balance paid"), "{made:?}");
    let again = host.call("peer_edit_file", &edit);
    assert_eq!((again.word(), again.failed), ("DUPLICATE", true));
    assert_eq!(peer.holds("account.txt"), "balance paid\n");
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    peer.home.run(&["verify"]).exits(0);
}

#[test]
fn a_host_that_retries_blindly_makes_one_change_with_the_gate_and_each_without() {
    let Some(peer) = Peer::files(MAKES) else { return };
    let edit = peer.account();
    let mut bare = peer.bare();
    for _ in 0..2 {
        assert!(!bare.call("edit_file", &edit).failed);
    }
    bare.kill();
    assert_eq!(peer.holds("account.txt"), "balance paid paid\n", "the control");

    let edit = peer.account();
    let mut hosts = [peer.host(), peer.host()];
    for host in &mut hosts {
        for _ in 0..5 {
            host.send_call("peer_edit_file", &edit);
        }
    }
    let mut made = 0;
    for host in &mut hosts {
        for _ in 0..5 {
            let reply = host.hear_reply();
            if !matches!(reply.word(), "DUPLICATE" | "IN_PROGRESS") {
                assert!(!reply.failed, "{reply:?}");
                made += 1;
            }
        }
    }
    let again = hosts[0].call("peer_edit_file", &edit);
    assert_eq!((again.word(), again.failed), ("DUPLICATE", true));
    assert_eq!((peer.holds("account.txt").as_str(), made), ("balance paid\n", 1));
    for host in hosts {
        let (status, said) = host.leave();
        assert!(status.success(), "{said}");
    }
    peer.home.run(&["verify"]).exits(0);
}

/// The answer to a call, as the protocol carries it.
fn answer(host: &mut Host, tool: &str, arguments: &str) -> Value {
    host.ask("tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
}

fn result(host: &mut Host, tool: &str, arguments: &str) -> Value {
    answer(host, tool, arguments).get("result").unwrap().clone()
}

fn words(result: &Value) -> &str {
    result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default()
}

/// The blocks of a kind in a result.
fn blocks<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    let content = result.get("content").and_then(Value::as_array).unwrap_or_default();
    content.iter().filter(|block| block.get("type").unwrap().as_str() == Some(kind)).collect()
}

#[test]
fn each_kind_of_result_comes_through() {
    let Some(peer) = Peer::everything() else { return };
    let (mut bare, mut host) = (peer.bare(), peer.host());
    let mut both = |tool: &str, arguments: &str| {
        let own = answer(&mut bare, tool, arguments).get("result").cloned();
        (own, result(&mut host, &format!("peer_{tool}"), arguments))
    };

    let (own, gated) = both("echo", r#"{"message":"grüß dich"}"#);
    assert_eq!(words(&own.unwrap()), "Echo: grüß dich");
    assert!(words(&gated).contains("Echo: grüß dich"), "{gated:?}");

    let (own, gated) = both("get-tiny-image", "{}");
    let own = own.unwrap();
    let image = own.get("content").unwrap().as_array().unwrap().iter();
    let image = image.clone().find(|block| block.get("type").unwrap().as_str() == Some("image"));
    let image = image.unwrap();
    assert_eq!(gated.pointer("/content/1"), Some(image), "not a byte of it is lost");
    let blob = gated.pointer("/structuredContent/blobs/0").unwrap_or_else(|| panic!("{gated:?}"));
    assert_eq!(blob.get("media_type"), image.get("mimeType"));
    assert_eq!((text(blob, "sha256").len(), blob.get("base64")), (64, None));
    assert!(!words(&gated).contains(image.get("data").unwrap().as_str().unwrap()), "{gated:?}");

    let (own, gated) = both("get-structured-content", r#"{"location":"Chicago"}"#);
    let structured = own.unwrap().get("structuredContent").unwrap().clone();
    assert_eq!(gated.pointer("/structuredContent/structured"), Some(&structured));

    let (own, gated) = both("get-resource-links", r#"{"count":2}"#);
    assert_eq!(blocks(&own.unwrap(), "resource_link"), blocks(&gated, "resource_link"));
    assert_eq!(blocks(&gated, "resource_link").len(), 2, "{gated:?}");
    for kind in ["Text", "Blob"] {
        let asked = format!(r#"{{"resourceType":"{kind}","resourceId":1}}"#);
        let (own, gated) = both("get-resource-reference", &asked);
        let [held] = blocks(&gated, "resource")[..] else { panic!("{gated:?}") };
        assert_eq!(vec![held], blocks(&own.unwrap(), "resource"), "not a byte of it is lost");
        let named = gated.pointer("/structuredContent/resources/0").unwrap();
        assert_eq!(named.get("uri"), held.pointer("/resource/uri"));
        assert_eq!(text(named, "sha256").len(), 64);
        assert_eq!((named.get("base64"), named.get("text")), (None, None), "{gated:?}");
    }

    let (own, gated) =
        both("get-resource-reference", r#"{"resourceType":"Text","resourceId":0.5}"#);
    assert_eq!(own.unwrap().get("isError"), Some(&Value::from(true)));
    assert_eq!(gated.get("isError"), Some(&Value::from(true)));
    assert!(words(&gated).starts_with("The tool failed: "), "{gated:?}");
    assert!(words(&gated).contains("finite positive integer"), "{gated:?}");

    // One that the server offers as a task only: it is not called otherwise, and says so.
    let (own, gated) = both("simulate-research-query", r#"{"topic":"bees"}"#);
    assert!(own.is_none() || own.unwrap().get("isError").is_some());
    assert_eq!(gated.get("isError"), Some(&Value::from(true)), "{gated:?}");

    bare.kill();
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    peer.home.run(&["verify"]).exits(0);
}

#[test]
fn sound_is_kept_as_it_is_and_a_long_call_is_waited_for() {
    let Some(peer) = Peer::files(MAKES) else { return };
    let sound = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0";
    peer.home.write("files/beep.wav", sound);
    let mut host = peer.host();
    let heard = result(&mut host, "peer_read_media_file", &path(&peer.file("beep.wav")));
    let blob = heard.pointer("/structuredContent/blobs/0").unwrap_or_else(|| panic!("{heard:?}"));
    assert_eq!(
        (text(blob, "media_type").as_str(), blob.get("bytes")),
        ("audio/wav", Some(&Value::from(sound.len())))
    );
    let block = heard.pointer("/content/1").unwrap_or_else(|| panic!("{heard:?}"));
    assert_eq!(
        (text(block, "type").as_str(), text(block, "mimeType").as_str()),
        ("audio", "audio/wav")
    );
    assert!(text(block, "data").starts_with("UklGR"), "{block:?}");
    host.leave();

    let Some(peer) = Peer::everything() else { return };
    let mut host = peer.host();
    let long = r#"{"name":"peer_trigger-long-running-operation","arguments":{"duration":2,"steps":4},"_meta":{"progressToken":"p"}}"#;
    host.send("tools/call", long);
    let mut notices = Vec::new();
    let heard = loop {
        let heard = host.hear();
        if heard.get("id").is_some() {
            break heard;
        }
        assert_eq!(text(&heard, "method"), "notifications/progress");
        notices.push(heard.get("params").unwrap().clone());
    };
    let so_far: Vec<u64> =
        notices.iter().filter_map(|notice| notice.get("progress")?.as_u64()).collect();
    assert!(!so_far.is_empty() && so_far.is_sorted(), "{notices:?}");
    for notice in &notices {
        assert_eq!(
            (text(notice, "progressToken").as_str(), notice.get("total")),
            ("p", Some(&Value::from(4_i64)))
        );
    }
    let said = heard.get("result").map(words).unwrap_or_default();
    assert!(said.contains("Long running operation completed"), "{heard:?}");
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
}

const OFFERS: &str = "resources = ['demo://resource/dynamic/*', 'demo://resource/static/document/features.md']\n\
    prompts = ['simple-prompt', 'args-prompt', 'completable-prompt', 'resource-prompt']\ncompletions = true\n";

/// What stands in an answer, where each says when it was made.
fn timeless(answer: &Value, place: &str) -> String {
    let text = answer.pointer(place).unwrap_or_else(|| panic!("{answer:?}")).to_canonical_string();
    text.split(" created at ").next().unwrap().to_owned()
}

#[test]
fn what_else_the_server_offers_comes_through_by_rule() {
    let Some(peer) = Peer::offers(OFFERS) else { return };
    let (mut bare, mut host) = (peer.bare(), peer.host());
    let mut both = |method: &str, params: &str, of_host: &str| {
        (bare.ask(method, params), host.ask(method, of_host))
    };

    let (own, gated) = both("resources/list", "{}", "{}");
    let names = |answer: &Value| -> Vec<String> {
        let all = answer.pointer("/result/resources").and_then(Value::as_array).unwrap();
        all.iter().map(|one| text(one, "uri")).collect()
    };
    assert!(names(&own).len() > 1, "{own:?}");
    assert_eq!(names(&gated), ["demo://resource/static/document/features.md"]);
    let (own, gated) = both("resources/templates/list", "{}", "{}");
    let templates = |answer: &Value| answer.pointer("/result/resourceTemplates").cloned();
    let forms = |answer: &Value| {
        let all = templates(answer).unwrap().as_array().unwrap().to_vec();
        all.iter().map(|one| text(one, "uriTemplate")).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(forms(&own), forms(&gated));

    for uri in ["demo://resource/dynamic/text/1", "demo://resource/static/document/features.md"] {
        let read = format!(r#"{{"uri":"{uri}"}}"#);
        let (own, gated) = both("resources/read", &read, &read);
        assert_eq!(timeless(&own, "/result/contents"), timeless(&gated, "/result/contents"));
    }
    let read = r#"{"uri":"demo://resource/dynamic/blob/2"}"#;
    let (own, gated) = both("resources/read", read, read);
    let (own, gated) =
        [own, gated].map(|it| it.pointer("/result/contents/0").unwrap().clone()).into();
    assert_eq!((own.get("uri"), own.get("mimeType")), (gated.get("uri"), gated.get("mimeType")));
    assert!(text(&gated, "blob").starts_with(text(&own, "blob").split_at(40).0));
    let closed = r#"{"uri":"demo://resource/static/document/startup.md"}"#;
    let (own, gated) = both("resources/read", closed, closed);
    assert!(own.get("result").is_some(), "the control: {own:?}");
    assert_eq!(gated.pointer("/error/code").and_then(Value::as_i64), Some(-32_002));

    let (own, gated) = both("prompts/list", "{}", "{}");
    let own = own.pointer("/result/prompts").and_then(Value::as_array).unwrap().to_vec();
    let gated = gated.pointer("/result/prompts").and_then(Value::as_array).unwrap().to_vec();
    assert_eq!((own.len(), gated.len()), (4, 4));
    for prompt in &own {
        let named = format!("peer_{}", text(prompt, "name"));
        let shown = gated.iter().find(|shown| text(shown, "name") == named).unwrap();
        for member in ["title", "description", "arguments"] {
            assert_eq!(shown.get(member), prompt.get(member), "{named}");
        }
    }
    for (name, arguments) in [
        ("simple-prompt", "{}"),
        ("args-prompt", r#"{"city":"Ulm"}"#),
        ("resource-prompt", r#"{"resourceType":"Text","resourceId":"1"}"#),
    ] {
        let get = |prefix: &str| format!(r#"{{"name":"{prefix}{name}","arguments":{arguments}}}"#);
        let (own, gated) = both("prompts/get", &get(""), &get("peer_"));
        assert_eq!(timeless(&own, "/result/messages"), timeless(&gated, "/result/messages"));
    }
    let complete = |prefix: &str| {
        format!(
            r#"{{"ref":{{"type":"ref/prompt","name":"{prefix}completable-prompt"}},"argument":{{"name":"name","value":"A"}},"context":{{"arguments":{{"department":"Engineering"}}}}}}"#
        )
    };
    let (own, gated) = both("completion/complete", &complete(""), &complete("peer_"));
    assert_eq!(gated.pointer("/result/completion/values/0"), Some(&Value::from("Alice")));
    assert_eq!(own.pointer("/result/completion"), gated.pointer("/result/completion"));
    let form = r#"{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"7"}}"#;
    let (own, gated) = both("completion/complete", form, form);
    assert_eq!(own.pointer("/result/completion"), gated.pointer("/result/completion"));

    bare.kill();
    let (status, said) = host.leave();
    assert!(status.success(), "{said}");
    peer.home.run(&["verify"]).exits(0);
    // What was judged can be judged again, with tools that no run has.
    let again = peer.home.run(&["-c", &peer.config, "recheck", "--all", "--json"]).exits(0);
    assert!(
        !again.out.contains("not_recheckable\",") && again.out.contains("\"same\""),
        "{again:?}"
    );
}
