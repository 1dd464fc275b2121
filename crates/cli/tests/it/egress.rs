//! `[egress]` and tokens that are refreshed: the way out, and who gives the keys, as the configuration says them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::home::{Ended, Home};
use crate::provider::{Act, Provider, header};

/// The canaries of these tests.
const REFRESH: &str = "refresh-canary-51d04e68";
const ACCESS: &str = "access-canary-7f3a9c2b";
const SECRET: &str = "client-canary-0b9d44ac";

/// What a token endpoint gives.
fn token() -> Act {
    Act::Body(format!(
        r#"{{"access_token":"{ACCESS}","token_type":"Bearer","expires_in":3600,"refresh_token":"{REFRESH}-2"}}"#
    ))
}

/// A configuration whose provider has a token that this endpoint refreshes.
fn with_token(home: &Home, provider: &Provider, endpoint: &Provider, rest: &str) -> String {
    let text = format!(
        "[models.example]\ndialect = 'openai'\naddress = '{}'\nlocal = true\ncredential = 'work'\n\
         [credentials.work.oauth]\nendpoint = '{}/token'\ntokens = 'work.json'\nclient = 'portcullis at work'\nsecret = 'client'\n{rest}\
         [credentials.client]\nfile = 'client.key'\n",
        provider.base(),
        endpoint.base(),
    );
    home.write("fake.toml", text).display().to_string()
}

fn run(home: &Home, config: &str) -> Ended {
    home.run(&["run", "-c", config, "--model", "example:clerk", "say what you see"])
}

/// None of the secrets stands in anything that is kept, but the file of tokens.
fn assert_kept_nowhere(home: &Home) {
    for entry in below(&home.path("")) {
        if entry.ends_with("work.json") || entry.ends_with("client.key") {
            continue;
        }
        let bytes = fs::read(&entry).unwrap_or_default();
        for secret in [REFRESH, ACCESS, SECRET] {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{secret} in {}", entry.display());
        }
    }
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            all.extend(below(&path));
        } else {
            all.push(path);
        }
    }
    all
}

#[test]
fn a_provider_gets_a_token_that_is_refreshed_and_kept_before_it_is_used() {
    let home = Home::new();
    let provider = Provider::new([Act::Say("a desk")]);
    let endpoint = Provider::new([token()]);
    let config = with_token(&home, &provider, &endpoint, "scope = 'models.use'\n");
    let first = format!(r#"{{"version":1,"refresh_token":"{REFRESH}"}}"#);
    let tokens = home.write("work.json", &first);
    home.write("client.key", SECRET);

    run(&home, &config).exits(0);
    let asked = endpoint.received();
    let [asked] = asked.as_slice() else { panic!("{asked:?}") };
    let form = String::from_utf8(asked.body.clone()).unwrap();
    let sent = ["grant_type=refresh_token", REFRESH, "scope=models.use"];
    assert!(sent.iter().all(|part| form.contains(part)), "{form}");
    let basic = header(&asked.head, "authorization").unwrap_or_default();
    assert!(basic.starts_with("Basic ") && !form.contains(SECRET), "{basic}");
    let used = provider.received();
    let keys: Vec<_> = used.iter().map(|one| header(&one.head, "authorization")).collect();
    assert_eq!(keys, [Some(format!("Bearer {ACCESS}"))]);
    let kept = fs::read_to_string(&tokens).unwrap();
    assert!(kept.contains(ACCESS) && kept.contains(&format!("{REFRESH}-2")));

    // It is good for an hour: the next run asks nobody for another.
    provider.then(Act::Say("a chair"));
    run(&home, &config).exits(0);
    assert_eq!(endpoint.received().len(), 1);
    assert_kept_nowhere(&home);
}

#[test]
fn a_refused_token_ends_the_run_by_name_and_nothing_goes_to_the_provider() {
    let home = Home::new();
    let (provider, refusal) = (Provider::new([]), r#"{"error":"invalid_grant"}"#.to_owned());
    let endpoint = Provider::new([Act::Status("400 Bad Request", "", refusal)]);
    let config = with_token(&home, &provider, &endpoint, "");
    home.write("work.json", format!(r#"{{"version":1,"refresh_token":"{REFRESH}"}}"#));
    home.write("client.key", SECRET);
    let ended = run(&home, &config);
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert!(format!("{}{}", ended.out, ended.err).contains("invalid_grant"), "{ended:#?}");
    assert_eq!(provider.received().len(), 0);
    assert_kept_nowhere(&home);

    // A file that others can read is no file of tokens.
    fs::set_permissions(home.path("work.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let ended = run(&home, &config);
    assert!(ended.err.contains("E6501"), "{ended:#?}");
    assert_eq!((provider.received().len(), endpoint.received().len()), (0, 1));
}

#[test]
fn requests_leave_through_the_proxy_that_the_operator_names_and_no_other() {
    let home = Home::new();
    let proxy = Provider::new([Act::Say("from afar"), Act::Say("again")]);
    let origin = proxy.base().trim_end_matches("/v1").to_owned();
    let far =
        "[models.far]\ndialect = 'openai'\naddress = 'http://models.example/v1'\nlocal = true\n";
    let with = |egress: &str| home.write("p.toml", format!("{far}{egress}")).display().to_string();
    let ask = |config: &str| {
        let args = ["run", "-c", config, "--model", "far:clerk", "say what you see"];
        Ended::of(&home.command(&args).env("HTTPS_PROXY", &origin).output().unwrap())
    };

    ask(&with(&format!("[egress]\nproxy = '{origin}'\n"))).exits(0);
    let [asked] = proxy.received().try_into().unwrap();
    assert!(asked.head.starts_with("POST http://models.example/v1/chat/completions "), "{asked:?}");
    ask(&with("[egress]\nproxy = 'environment'\n")).exits(0);
    assert_eq!(proxy.received().len(), 2);

    // What the environment says counts only where the operator says that it does.
    let ended = ask(&with(""));
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(proxy.received().len(), 2);
    let ended = ask(&with(&format!("[egress]\nproxy = '{origin}'\ndirect = ['models.example']\n")));
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(proxy.received().len(), 2);
}

#[test]
fn authorities_that_cannot_be_believed_stop_the_run_before_it_begins() {
    let home = Home::new();
    let provider = Provider::new([]);
    let config = provider.config(&home, "[egress]\nroots = 'ca.pem'\n");
    let ask = || {
        let args = ["run", "-c", &config, "--model", "example:clerk", "say what you see"];
        let key = "sk-canary-7f3a9c2b51d04e68";
        Ended::of(&home.command(&args).env("EXAMPLE_KEY", key).output().unwrap())
    };
    let ended = ask();
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    home.write("ca.pem", "no certificate");
    let ended = ask();
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(provider.received().len(), 0);
    assert!(!home.db().exists(), "no run was begun");
}
