//! `hosts`: nothing that stands in a host's file is lost, whatever stands there.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use crate::home::{COMMAND, Home};

/// Every host, its file, and a text of it with one server that moves, one that stays and something of its own.
const HOSTS: [(&str, &str, &str); 8] = [
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", JSON),
    ("claude-code", ".claude.json", JSON),
    ("cursor", ".cursor/mcp.json", JSON),
    ("windsurf", ".codeium/windsurf/mcp_config.json", JSON),
    ("gemini-cli", ".gemini/settings.json", JSON),
    ("vscode", ".config/Code/User/mcp.json", VSCODE),
    ("codex", ".codex/config.toml", CODEX),
    ("zed", ".config/zed/settings.json", ZED),
];

const JSON: &str = "{\n  \"own\": {\"x\": 1.50},\n  \"mcpServers\": {\n    \"mail\": {\"command\": \"mail-server\", \"args\": [\"--all\"], \"env\": {\"KEY\": \"s3cret\"}},\n    \"far\": {\"url\": \"https://far.example\"}\n  }\n}\n";
const VSCODE: &str = "{\n  // mine\n  \"inputs\": [],\n  \"servers\": {\n    \"mail\": {\"type\": \"stdio\", \"command\": \"mail-server\", \"args\": [\"--all\"], \"env\": {\"KEY\": \"s3cret\"}},\n    \"far\": {\"type\": \"http\", \"url\": \"https://far.example\"}\n  },\n}\n";
const ZED: &str = "// mine\n{\n  \"theme\": \"One\", // dark\n  \"context_servers\": {\n    \"mail\": {\"source\": \"custom\", \"command\": \"mail-server\", \"args\": [\"--all\"], \"env\": {\"KEY\": \"s3cret\"}},\n    \"far\": {\"url\": \"https://far.example\"}\n  }\n}\n";
const CODEX: &str = "# mine\nmodel = \"m\" # which\n\n[mcp_servers.mail]\ncommand = \"mail-server\"\nargs = [\"--all\"]\nenv = { KEY = \"s3cret\" }\n\n[mcp_servers.far]\nurl = \"https://far.example\"\n";

/// A home with the file of this host.
fn with(file: &str, text: &str) -> (Home, PathBuf) {
    let home = Home::new();
    fs::create_dir_all(home.path("config/portcullis")).unwrap();
    let path = home.write(file, text);
    (home, path)
}

fn rules(home: &Home) -> PathBuf {
    home.path("config/portcullis/portcullis.toml")
}

#[test]
fn servers_go_behind_the_gate_and_come_back_byte_for_byte() {
    for (host, file, text) in HOSTS {
        let (home, path) = with(file, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        // Looking writes nothing and tells no secret.
        let shown = home.run(&["hosts", host]).exits(0).out;
        assert!(shown.contains("behind the gate: mail"), "{host}: {shown}");
        assert!(shown.contains("NOT behind the gate: far: it is a remote server"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(!rules(&home).exists());

        let written = home.run(&["hosts", host, "--write"]).exits(0).out;
        assert!(!written.contains("s3cret"), "{written}");
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.contains(COMMAND) && now.contains("\"proxy\""), "{host}: {now}");
        assert!(!now.contains("mail-server") && now.contains("far.example"), "{host}: {now}");
        for own in ["// mine", "# mine", "// dark", "# which", "1.50", "\"inputs\": []"] {
            assert_eq!(now.contains(own), text.contains(own), "{host}: {own}");
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let table: toml::Table = fs::read_to_string(rules(&home)).unwrap().parse().unwrap();
        let mail = &table["mcp"]["servers"]["mail"];
        assert_eq!(mail["command"].as_str(), Some("mail-server"));
        assert_eq!(mail["env"]["KEY"].as_str(), Some("s3cret"));
        assert_eq!(fs::metadata(rules(&home)).unwrap().mode() & 0o777, 0o600);

        // Once more changes nothing.
        let before = (now, fs::read_to_string(rules(&home)).unwrap());
        let again = home.run(&["hosts", host, "--write"]).exits(0).out;
        assert!(again.contains("nothing to do"), "{again}");
        let after = (fs::read_to_string(&path).unwrap(), fs::read_to_string(rules(&home)).unwrap());
        assert_eq!(before, after);

        home.run(&["hosts", host, "--undo"]).exits(0);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{host}");
        home.run(&["hosts", host, "--undo"]).refuses(1, "E9021", &["no copy"]);
        // What was moved is there still, so that it goes the same way again.
        home.run(&["hosts", host, "--write"]).exits(0);
        // It is read as a server of ours, which is not there to be started.
        let checked = home.run(&["check"]).exits(1).out;
        assert!(checked.contains("E7501") && checked.contains("\"mail-server\""), "{checked}");
    }
}

#[test]
fn the_rules_of_the_operator_keep_their_text() {
    let (home, _) = with(".cursor/mcp.json", JSON);
    let own = "# my rules\n[classes]\nread_only = \"allow\" # yes";
    let rules = home.write("config/portcullis/portcullis.toml", own);
    home.run(&["hosts", "cursor", "--write"]).exits(0);
    let text = fs::read_to_string(rules).unwrap();
    assert!(text.starts_with(&format!("{own}\n\n[mcp.servers.mail]\n")), "{text}");
}

#[test]
fn a_server_that_the_gate_could_not_name_stays_with_its_host() {
    let text = "{\"mcpServers\": {\"GitHub\": {\"command\": \"github-server\"}, \"mail\": {\"command\": \"mail-server\"}}}";
    let (home, path) = with(".cursor/mcp.json", text);
    let told = home.run(&["hosts", "cursor", "--write"]).exits(0).out;
    assert!(told.contains("NOT behind the gate: GitHub: a server's name is"), "{told}");
    let now = fs::read_to_string(&path).unwrap();
    assert!(now.contains("github-server") && !now.contains("mail-server"), "{now}");
    // The configuration loads: what is wrong is that the program is not there.
    let checked = home.run(&["check"]).exits(1).out;
    assert!(checked.contains("E7501"), "{checked}");
}

#[test]
fn nothing_is_written_when_the_gate_could_not_load_it() {
    for (own, why) in [
        ("[classes]\nread_only = \"perhaps\"\n", "line 2"),
        ("[mcp]\nservers = {}\n", "line 4"),
        ("nonsense = 1\n", "line 1"),
    ] {
        let (home, path) = with(".cursor/mcp.json", JSON);
        let rules = home.write("config/portcullis/portcullis.toml", own);
        home.run(&["hosts", "cursor", "--write"]).refuses(1, "E9021", &["would not load", why]);
        assert_eq!(fs::read_to_string(&path).unwrap(), JSON, "{own}");
        assert_eq!(fs::read_to_string(&rules).unwrap(), own);
        assert_eq!(fs::read_dir(home.path(".cursor")).unwrap().count(), 1, "nothing is left");
    }
}

#[test]
fn a_file_that_is_not_there_is_made_where_its_folder_is() {
    let home = Home::new();
    home.run(&["hosts", "cursor", "--write"]).refuses(1, "E9005", &["folder"]);
    fs::create_dir(home.path(".cursor")).unwrap();
    home.run(&["hosts", "cursor", "--write"]).exits(0);
    let text = fs::read_to_string(home.path(".cursor/mcp.json")).unwrap();
    assert!(text.contains("\"mcpServers\"") && text.contains("\"proxy\""), "{text}");
}

#[test]
fn what_would_be_lost_or_is_not_ours_is_refused_and_stays() {
    let refuse = |text: &str, word: &str| {
        let (home, path) = with(".cursor/mcp.json", text);
        home.run(&["hosts", "cursor", "--write"]).refuses(1, "E9021", &[word]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(!rules(&home).exists());
        assert_eq!(fs::read_dir(home.path(".cursor")).unwrap().count(), 1, "nothing is left");
    };
    refuse("{\"mcpServers\": {/* why */ \"mail\": {\"command\": \"m\"}}}", "comments");
    refuse("{\"mcpServers\": {\"portcullis\": {\"command\": \"other\"}}}", "not this gate");
    refuse("{\"mcpServers\": {\"a\": {\"command\": \"m\"}, \"a\": {}}}", "strict JSON");
    refuse("not json", "strict JSON");

    // Another server of the same name is in the gate's configuration.
    let (home, path) = with(".cursor/mcp.json", JSON);
    home.write("config/portcullis/portcullis.toml", "[mcp.servers.mail]\ncommand = \"other\"\n");
    home.run(&["hosts", "cursor", "--write"]).refuses(1, "E9021", &["another server `mail`"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), JSON);
}

#[test]
fn links_and_files_that_others_can_write_are_refused() {
    let (home, path) = with("real.json", JSON);
    fs::create_dir(home.path(".cursor")).unwrap();
    symlink(&path, home.path(".cursor/mcp.json")).unwrap();
    home.run(&["hosts", "cursor", "--write"]).refuses(1, "E9021", &["is a link"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), JSON);

    for mode in [0o666, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let file = path.display().to_string();
        home.run(&["hosts", "cursor", "--file", &file, "--write"]).refuses(
            1,
            "E9021",
            &["others can write it"],
        );
    }
    let (home, path) = with("open/mcp.json", JSON);
    fs::set_permissions(home.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let file = path.display().to_string();
    home.run(&["hosts", "cursor", "--file", &file, "--write"]).refuses(
        1,
        "E9021",
        &["others can write it"],
    );
    // Positive control.
    fs::set_permissions(home.path("open"), fs::Permissions::from_mode(0o700)).unwrap();
    home.run(&["hosts", "cursor", "--file", &file, "--write"]).exits(0);
}

#[test]
fn what_was_changed_after_the_installation_is_not_taken_back() {
    let (home, path) = with(".cursor/mcp.json", JSON);
    home.run(&["hosts", "cursor", "--write"]).exits(0);
    let changed = fs::read_to_string(&path).unwrap().replace("1.50", "2");
    fs::write(&path, &changed).unwrap();
    home.run(&["hosts", "cursor", "--undo"]).refuses(1, "E9021", &["changed after"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
    // A server that came later is not moved over the copy of before.
    let more = changed.replace("\"far\":", "\"new\": {\"command\": \"n\"}, \"far\":");
    fs::write(&path, &more).unwrap();
    home.run(&["hosts", "cursor", "--write"]).refuses(1, "E9021", &["earlier installation"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), more);
}

#[test]
fn an_installation_that_was_cut_off_is_gone_on_with_or_taken_back() {
    // The copy is the last thing that is written before the file itself.
    let cut = || {
        let (home, path) = with(".cursor/mcp.json", JSON);
        let copy = home.write(".cursor/mcp.json.before-portcullis", JSON);
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
        (home, path, copy)
    };
    let (home, path, copy) = cut();
    home.run(&["hosts", "cursor", "--undo"]).exits(0);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), copy.exists()), (JSON, false));

    let (home, path, copy) = cut();
    home.run(&["hosts", "cursor", "--write"]).exits(0);
    assert!(fs::read_to_string(&path).unwrap().contains("\"proxy\""));
    assert_eq!(fs::read_to_string(&copy).unwrap(), JSON);
    home.run(&["hosts", "cursor", "--undo"]).exits(0);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), copy.exists()), (JSON, false));
}
