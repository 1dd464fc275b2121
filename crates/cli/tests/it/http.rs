//! The HTTP tools of a configuration: a read, a change that waits for a person, and the key that nobody sees.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::home::{Ended, Home};

const KEY: &str = "canary-key-0123456789";

/// A site that answers each request on a connection of its own, and keeps what it was sent. It lives as long as the test.
fn site() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            kept.lock().unwrap().push(request(&mut stream));
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nold tea";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (at, seen)
}

fn request(stream: &mut TcpStream) -> String {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).unwrap();
        text.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if count == 0 || body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return text;
        }
    }
}

struct Shop {
    home: Home,
    at: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    config: String,
    agent: String,
}

impl Shop {
    fn new() -> Self {
        let (home, (at, seen)) = (Home::new(), site());
        let config = home.write(
            "http.toml",
            format!(
                "[[http.places]]\norigin = 'http://{at}'\nmethods = ['GET', 'POST']\ncredential = 'shop'\n\
                 [credentials.shop]\nenv = 'SHOP_KEY'\n"
            ),
        );
        let script = format!(
            r#"{{"kind":"tool_call","tool":"http.read","arguments":{{"url":"http://{at}/tea"}}}}
{{"kind":"tool_call","tool":"http.read","arguments":{{"url":"http://elsewhere.example/tea"}}}}
{{"kind":"tool_call","tool":"http.send","arguments":{{"url":"http://{at}/tea","method":"POST","body":"new tea"}}}}
{{"kind":"complete","result":{{}}}}
"#
        );
        let agent = format!("scripted:{}", home.write("agent.jsonl", script).display());
        Self { config: config.display().to_string(), agent, home, at, seen }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(&["-c", &self.config]);
        command.args(args);
        command
    }

    fn with_key(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(args).env("SHOP_KEY", KEY).output().unwrap())
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Every file beneath a folder.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push((path.display().to_string(), fs::read(path).unwrap()));
        }
    }
}

#[test]
fn a_read_happens_and_a_change_waits_for_a_person() {
    let shop = Shop::new();
    let began = shop.with_key(&["run", "--agent", &shop.agent, "renew the tea"]).exits(3);
    let seen = shop.seen();
    assert_eq!(seen.len(), 1, "{began:#?}");
    assert!(seen[0].starts_with("GET /tea HTTP/1.1\r\n"), "{}", seen[0]);
    assert!(seen[0].contains(&format!("authorization: Bearer {KEY}\r\n")));

    // The question shows what is sent, where, and with which credential by its name.
    let run = shop.home.only_run();
    let inbox = shop.with_key(&["inbox"]).exits(0).out;
    assert!(inbox.contains("http.send"), "{inbox}");
    let approved = shop.with_key(&["approve", &run, "--yes"]).exits(0).out;
    for shown in ["remote_mutation", "new tea", "POST", "the credential `shop`"] {
        assert!(approved.contains(shown), "no {shown} in {approved}");
    }
    assert!(approved.contains(&shop.at.to_string()));
    assert_eq!(shop.seen().len(), 1, "a yes alone sends nothing");

    // What is looked at later needs no key.
    let resumed = shop.with_key(&["resume", &run]).exits(0);
    let seen = shop.seen();
    assert_eq!(seen.len(), 2, "{resumed:#?}");
    assert!(seen[1].starts_with("POST /tea HTTP/1.1\r\n") && seen[1].ends_with("\r\n\r\nnew tea"));
    let recheck = Ended::of(&shop.command(&["recheck", &run]).output().unwrap()).exits(0);
    let shown = Ended::of(&shop.command(&["show", &run]).output().unwrap()).exits(0);
    assert!(shown.out.contains("arguments_invalid"), "a place that nobody named: {}", shown.out);

    // The key went out, and lies nowhere.
    let mut kept = Vec::new();
    files(&shop.home.path("."), &mut kept);
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(
        kept.iter().any(|(_, bytes)| holds(bytes, "old tea")),
        "the control: the answer is kept"
    );
    for (path, bytes) in &kept {
        assert!(!holds(bytes, KEY), "{path}");
    }
    for ended in [began, resumed, recheck, shown] {
        assert!(!ended.out.contains(KEY) && !ended.err.contains(KEY));
    }
}

#[test]
fn a_place_that_keeps_keys_is_sent_the_key_that_the_gate_fills_in() {
    let (home, (at, seen)) = (Home::new(), site());
    let text = format!(
        "[[http.places]]\norigin = 'http://{at}'\nmethods = ['POST']\nkeeps_keys = 'Idempotency-Key'\n"
    );
    let config = home.write("http.toml", text).display().to_string();
    // The agent may not name the key, and the other tool is not there.
    let url = format!("http://{at}/tea");
    let script = format!(
        r#"{{"kind":"tool_call","tool":"http.send","arguments":{{"url":"{url}","method":"POST"}}}}
{{"kind":"tool_call","tool":"http.send_keyed","arguments":{{"url":"{url}","method":"POST","idempotency_key":"{key}"}}}}
{{"kind":"tool_call","tool":"http.send_keyed","arguments":{{"url":"{url}","method":"POST"}}}}
{{"kind":"complete","result":{{}}}}
"#,
        key = "0".repeat(64)
    );
    let agent = format!("scripted:{}", home.write("agent.jsonl", script).display());
    home.run(&["-c", &config, "run", "--agent", &agent, "renew the tea"]).exits(3);
    assert!(seen.lock().unwrap().is_empty());
    let run = home.only_run();
    home.run(&["-c", &config, "approve", &run, "--yes"]).exits(0);
    home.run(&["-c", &config, "resume", &run]).exits(0);
    let sent = seen.lock().unwrap().clone();
    assert_eq!(sent.len(), 1);
    let key = sent[0].lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap();
    assert!(key.len() == 64 && key != "0".repeat(64), "{key}");
}

#[test]
fn without_its_key_nothing_begins() {
    let shop = Shop::new();
    let ended = shop.command(&["run", "--agent", &shop.agent, "renew the tea"]).output().unwrap();
    Ended::of(&ended).refuses(1, "E6501", &["`shop`", "SHOP_KEY", "[credentials]"]);
    assert!(!shop.home.db().exists());
    assert!(shop.seen().is_empty());
    // The control: with it, it does.
    shop.with_key(&["run", "--agent", &shop.agent, "renew the tea"]).exits(3);
}

#[test]
fn the_file_of_a_credential_is_out_of_the_reach_of_the_file_tools() {
    let home = Home::new();
    home.write("files/shop.key", KEY);
    let text = "[[http.places]]\norigin = 'https://a.example'\ncredential = 'shop'\n\
                [credentials.shop]\nfile = 'files/shop.key'\n";
    let config = home.write("http.toml", text).display().to_string();
    let script = home.write("agent.jsonl", "{\"kind\":\"complete\",\"result\":{}}\n");
    let agent = format!("scripted:{}", script.display());
    let run = |files: &str| {
        home.run(&["-c", &config, "run", "--agent", &agent, "--files", files, "look"])
    };
    run(&home.path("files").display().to_string()).refuses(1, "E7001", &["shop.key"]);
    // The control: another folder is handed out.
    fs::create_dir(home.path("others")).unwrap();
    run(&home.path("others").display().to_string()).exits(0);
}
