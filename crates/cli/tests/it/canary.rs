//! A key set in every place that a key can be set is found nowhere else: not in the database, its log, a recording, what is
//! remembered of a start, what is printed, an error, a debug form or the message of a panic.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis::system::SystemClock;
use portcullis_egress::{
    Credential, CredentialRef, Credentials, Egress, EgressRules, Method, Request, Secret, Target,
};
use portcullis_models::OverEgress;

use crate::home::{Ended, Home};
use crate::provider::{Act, Provider, header};

/// The key.
const KEY: &str = "sk-canary-51d04e687f3a9c2b-tail";

/// What is looked for: a part of it gives a key away as well.
const PART: &[u8] = b"canary-51d04e68";

const PATIENCE: Duration = Duration::from_secs(60);

/// Every file beneath a folder that holds the part.
fn found_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            found.extend(found_in(&path));
        } else if meta.is_file() && holds(&fs::read(&path).unwrap()) {
            found.push(path);
        }
    }
    found
}

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(PART.len()).any(|window| window == PART)
}

#[track_caller]
fn silent(ended: &Ended) {
    assert!(!holds(ended.out.as_bytes()) && !holds(ended.err.as_bytes()), "{ended:#?}");
}

/// A place where a key can be set: what the configuration says, and how it gets there.
struct Put {
    name: &'static str,
    config: &'static str,
    variable: Option<&'static str>,
    file: Option<&'static str>,
}

const PLACES: [Put; 4] = [
    Put {
        name: "a variable that is named",
        config: "[credentials.openai]\nenv = 'MINE'\n",
        variable: Some("MINE"),
        file: None,
    },
    Put { name: "the usual variable", config: "", variable: Some("OPENAI_API_KEY"), file: None },
    Put {
        name: "the usual file",
        config: "",
        variable: None,
        file: Some("config/portcullis/credentials/openai"),
    },
    Put {
        name: "a file that is named",
        config: "[credentials.openai]\nfile = 'mine.key'\n",
        variable: None,
        file: Some("mine.key"),
    },
];

impl Put {
    fn run(&self, home: &Home, args: &[&str]) -> Ended {
        Ended::of(&self.command(home, args).output().unwrap())
    }

    fn command(&self, home: &Home, args: &[&str]) -> std::process::Command {
        let mut command = home.command(args);
        command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
        command.envs(self.variable.map(|variable| (variable, KEY)));
        command
    }

    /// A home with the key in this place, whose `openai` is the provider.
    fn home(&self, provider: &Provider) -> (Home, String) {
        let home = Home::new();
        if let Some(file) = self.file {
            let path = home.write(file, KEY);
            fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        }
        let config = format!(
            "[classes]\nlocal_mutation = 'ask'\n{}[models.openai]\naddress = '{}'\ntimeout_ms = 5000\n",
            self.config,
            provider.base()
        );
        let config = home.write("rules.toml", config).display().to_string();
        home.write("files/a.txt", "a");
        (home, config)
    }

    /// Nothing but the file that the key was put into holds it.
    #[track_caller]
    fn nowhere_else(&self, home: &Home) {
        let own: Vec<PathBuf> = self.file.iter().map(|file| home.path(file)).collect();
        assert_eq!(found_in(&home.path(".")), own_beneath(home, own), "{}", self.name);
    }
}

/// As the walk names them.
fn own_beneath(home: &Home, own: Vec<PathBuf>) -> Vec<PathBuf> {
    let base = home.path(".");
    own.iter().map(|path| base.join(path.strip_prefix(home.path("")).unwrap())).collect()
}

fn read() -> Act {
    Act::Use("I read.", "files__read", r#"{"path":"a.txt"}"#)
}

#[test]
fn a_whole_run_leaves_no_key_behind() {
    for place in &PLACES {
        let create = Act::Use("", "files__create", r#"{"path":"b.txt","content":"b"}"#);
        let provider = Provider::new([read(), create, Act::Say("Done.")]);
        let (home, config) = place.home(&provider);
        let tape = home.path("tape").display().to_string();
        let files = home.path("files").display().to_string();
        let args = [
            "run", "-c", &config, "--model", "openai:m", "--record", &tape, "--files", &files, "x",
        ];
        let asked = place.run(&home, &args).exits(3);
        let run = home.only_run();
        home.run(&["-c", &config, "approve", &run, "--yes"]).exits(0);
        let done = place.run(&home, &["resume", &run, "--json"]).exits(0);
        // The control: the key was there all the time, and went where it belongs.
        let received = provider.received();
        assert_eq!(received.len(), 3, "{}", place.name);
        for request in received {
            assert_eq!(header(&request.head, "authorization"), Some(format!("Bearer {KEY}")));
            assert!(!holds(&request.body));
        }
        for ended in [&asked, &done] {
            silent(ended);
        }
        for args in [
            vec!["show", &run],
            vec!["events", &run, "--json"],
            vec!["explain", &run],
            vec!["models"],
        ] {
            let mut args = args;
            args.extend(["-c", &config]);
            silent(&place.run(&home, &args).exits(0));
        }
        place.nowhere_else(&home);
    }
}

/// Providers that give the key back, in whatever they answer.
#[test]
fn a_key_that_a_provider_gives_back_is_not_kept() {
    let echo = format!(r#"{{"error":{{"message":"the key {KEY} is wrong"}}}}"#);
    let page = format!("<html>{KEY}</html>");
    let reply = crate::provider::whole(&format!("your key is {KEY}"), None);
    let answers = [
        Act::Status("401 Unauthorized", "", echo.clone()),
        Act::Status("400 Bad Request", "", echo.clone()),
        Act::Status("404 Not Found", "", echo.clone()),
        Act::Status("500 Oops", "", echo.clone()),
        Act::Status("302 Found", "location: http://127.0.0.1/\r\n", echo),
        Act::Body(page),
        Act::Body(reply),
    ];
    let place = &PLACES[1];
    for answer in answers {
        for json in [false, true] {
            // Attempts that may be made again get the same.
            let provider = Provider::new(std::iter::repeat_n(answer.clone(), 3));
            let (home, config) = place.home(&provider);
            let tape = home.path("tape").display().to_string();
            let mut args =
                vec!["run", "-c", &config, "--model", "openai:m", "--record", &tape, "x"];
            args.extend(json.then_some("--json"));
            let ended = place.run(&home, &args).exits(1);
            assert!(!provider.received().is_empty());
            silent(&ended);
            let run = home.only_run();
            silent(&place.run(&home, &["show", &run]).exits(0));
            place.nowhere_else(&home);
        }
    }
}

/// Killed in the middle of a call: what lies in the log of the database, and what the next process says.
#[test]
fn a_process_that_is_killed_leaves_no_key_behind() {
    let place = &PLACES[2];
    let provider = Provider::new([read(), Act::Silent]);
    let (home, config) = place.home(&provider);
    let files = home.path("files").display().to_string();
    let args = ["run", "-c", &config, "--model", "openai:m", "--files", &files, "x"];
    let mut command = place.command(&home, &args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while provider.received().len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it asks nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let wal = home.path("state/portcullis/portcullis.db-wal");
    assert!(fs::metadata(&wal).unwrap().len() > 0, "what was written lies in the log");
    place.nowhere_else(&home);
    // The control: the walk sees what lies beside the database.
    let planted = home.write("state/portcullis/planted", format!("x{KEY}"));
    assert_eq!(found_in(&home.path("state")), std::slice::from_ref(&planted));
    fs::remove_file(planted).unwrap();
    provider.then(Act::Say("Done."));
    silent(&place.run(&home, &["resume", &home.only_run()]).exits(0));
    place.nowhere_else(&home);
}

/// What the model's tools reach holds no key.
#[test]
fn a_key_beneath_the_governed_folder_is_refused() {
    let provider = Provider::new([Act::Say("Done."), Act::Say("Done.")]);
    let place = Put { config: "[credentials.openai]\nfile = 'files/mine.key'\n", ..PLACES[3] };
    let place = Put { file: Some("files/mine.key"), ..place };
    let (home, config) = place.home(&provider);
    let (files, empty) = (home.path("files"), home.path("empty"));
    fs::create_dir(&empty).unwrap();
    let run = |folder: &Path| {
        let folder = folder.display().to_string();
        place.run(&home, &["run", "-c", &config, "--model", "openai:m", "--files", &folder, "x"])
    };
    run(&files).refuses(1, "E7001", &["mine.key"]);
    assert!(provider.received().is_empty());
    run(&empty).exits(0);
}

/// A key that cannot be used is told by its place.
#[test]
fn a_key_that_is_none_is_not_shown() {
    let provider = Provider::new([]);
    for place in &PLACES {
        let (home, config) = place.home(&provider);
        let args = ["run", "-c", &config, "--model", "openai:m", "x"];
        let ended = match (place.file, place.variable) {
            (Some(file), _) => {
                home.write(file, format!("{KEY} {KEY}"));
                place.run(&home, &args)
            }
            (None, Some(variable)) => {
                let mut command = place.command(&home, &args);
                Ended::of(&command.env(variable, format!("{KEY} {KEY}")).output().unwrap())
            }
            (None, None) => panic!("no place"),
        };
        silent(&ended);
        ended.refuses(1, "E6501", &["openai"]);
    }
    assert!(provider.received().is_empty());
}

/// What a debug form or a panic of ours could carry.
#[test]
fn no_debug_form_and_no_panic_shows_a_key() {
    let secret = || Secret::new(KEY.to_owned()).unwrap();
    let given = Credential::given(secret()).only_to("127.0.0.1:1").unwrap();
    let credentials = Credentials::new([("openai", given)]).unwrap();
    let clock = Arc::new(SystemClock::new());
    let rules = EgressRules::closed().loopback_port(1);
    let egress = Egress::new(rules, credentials.clone(), clock.clone()).unwrap();
    let target = Target::parse("http://127.0.0.1:1/v1/models").unwrap();
    let request = Request::new(Method::Get, target).credential(CredentialRef::bearer("openai"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(egress.send(request.clone())).unwrap_err();
    let over = OverEgress::new(egress.clone(), clock);
    let shown = format!("{credentials:?} {egress:?} {request:?} {error:?} {error} {over:?}");
    let panicked = std::panic::catch_unwind(|| panic!("{shown}")).unwrap_err();
    let message = panicked.downcast_ref::<String>().unwrap();
    assert!(message.contains("openai"), "the control: {message}");
    assert!(!holds(message.as_bytes()), "{message}");
    assert!(holds(format!("a key in plain text: {KEY}").as_bytes()), "the control");
}
