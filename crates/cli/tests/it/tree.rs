//! A run that starts another: driven, shown, asked about, answered, cancelled and verified by the command.

use portcullis_canon::Value;

use crate::home::{Ended, Home, text};

/// Starts a part of its task, and says that it is done once that is; a part deletes a file.
const AGENT: &str = r#"read -r hello; echo '{"type":"hello","version":1}'
part=
while read -r view; do
    case $view in *'"type":"end"'*) exit 0 ;; esac
    case $view in *'"goal":"a part"'*) part=1 ;; esac
    request=${view##*\"request\":}; request=${request%%[,\}]*}
    case $part$request in
        0) ask='"kind":"tool_call","tool":"spawn","arguments":{"goal":"a part","tools":["files.delete"]}' ;;
        10) ask='"kind":"tool_call","tool":"files.delete","arguments":{"path":"old.txt"}' ;;
        *) ask='"kind":"complete","result":"done"' ;;
    esac
    echo "{\"request\":$request,$ask}"
done
"#;

const RULES: &str =
    "[classes]\nlocal_mutation = 'allow'\ndestructive = 'ask'\n[children]\nspawn = true\n";

/// Begins a tree whose lower run waits for a person.
fn begin(home: &Home) -> (Ended, String) {
    home.write("files/old.txt", "x");
    let agent = format!("exec:sh {}", home.write("agent/agent.sh", AGENT).display());
    let (rules, files) = (home.write("rules.toml", RULES), home.path("files"));
    let [rules, files] = [rules, files].map(|path| path.display().to_string());
    let args =
        ["run", "-q", "--json", "-c", &rules, "--agent", &agent, "--files", &files, "the whole"];
    (home.run(&args), rules)
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    let items = value.get(key).unwrap().as_array().unwrap();
    items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn one<'a>(value: &'a Value, key: &str) -> &'a Value {
    let [item] = value.get(key).unwrap().as_array().unwrap() else { panic!("{value:?}") };
    item
}

#[test]
fn a_run_that_starts_another_is_driven_shown_and_answered_for_as_one() {
    let home = Home::new();
    let (begun, rules) = begin(&home);
    let rest = begun.json(3);
    let (child, top) = (text(&rest, "run"), text(&rest, "top"));
    assert_ne!(child, top);
    assert!(home.path("files/old.txt").exists());

    let inbox = home.run(&["inbox", "--json"]).json(0);
    let question = one(&inbox, "questions");
    assert_eq!(texts(question, "path"), [top.clone(), child.clone()]);
    let shown = home.run(&["inbox"]).exits(0).out;
    assert!(shown.contains(&format!("{child} of {top}")), "{shown}");

    let show = home.run(&["show", &top, "--json"]).json(0);
    let below = one(&show, "children");
    assert_eq!((text(below, "run"), text(below, "status")), (child.clone(), "waiting".to_owned()));
    let waits = show.pointer("/run/waits_for").unwrap();
    assert_eq!((text(waits, "what"), text(waits, "child")), ("child".to_owned(), child.clone()));
    let explained = home.run(&["explain", &top]).exits(0).out;
    assert!(explained.contains(&format!("{child}, which it started")), "{explained}");
    let told = home.run(&["show", &child]).exits(0).out;
    assert!(told.contains(&top), "{told}");
    // What it is to do was said by an agent: whoever answers is not told that the owner did.
    assert!(told.contains(&format!("  started by      {top}\n")), "{told}");
    assert!(
        told.contains("  goal            6 bytes, the words of the run that started this one"),
        "{told}"
    );
    assert!(!told.contains("owner's words"), "{told}");
    // The one above asks nobody itself.
    for args in [&["approve", &top, "--yes"][..], &["show", &top, "--card"]] {
        home.run(args).refuses(1, "E5003", &["waits for", &child, "which it started", "inbox"]);
    }

    // Whoever looks again before the answer changes nothing.
    let again = home.run(&["resume", &top, "-q", "--json"]).json(3);
    assert_eq!((text(&again, "run"), text(&again, "top")), (child.clone(), top.clone()));
    home.run(&["approve", &text(question, "question"), "--yes", "-c", &rules]).exits(0);
    // The one below is taken up, and those above it after it.
    let rest = home.run(&["resume", &child]).exits(0);
    assert!(rest.out.contains(&top) && rest.out.contains("completed"), "{rest:#?}");
    let goes_on = format!("completed (goal_completed)\n{top} goes on\nstep 0: tool result\n");
    assert!(rest.err.contains(&goes_on), "{rest:#?}");
    assert!(!rest.err.contains("\nstep: "), "{rest:#?}");
    assert!(!home.path("files/old.txt").exists());
    home.run(&["verify", "-c", &rules]).exits(0);
    let runs = home.run(&["runs", "--json"]).json(0);
    assert_eq!(runs.get("total").and_then(Value::as_u64), Some(2));
}

#[test]
fn a_cancel_ends_those_below_and_nobody_is_asked_any_more() {
    let home = Home::new();
    let (begun, _) = begin(&home);
    let rest = begun.json(3);
    let (child, top) = (text(&rest, "run"), text(&rest, "top"));
    home.run(&["cancel", &top]).exits(0);
    let show = home.run(&["show", &child, "--json"]).json(0);
    assert_eq!(text(show.get("run").unwrap(), "reason"), "parent_ended");
    let inbox = home.run(&["inbox", "--json"]).json(0);
    assert_eq!(inbox.get("total").and_then(Value::as_u64), Some(0));
    home.run(&["verify"]).exits(0);
    assert!(home.path("files/old.txt").exists());
}

/// Without leave in the rules there is no such tool.
#[test]
fn no_run_starts_another_unless_the_rules_say_so() {
    let home = Home::new();
    let call = r#"{"kind":"tool_call","tool":"spawn","arguments":{"goal":"a part"}}"#;
    home.scripted(&format!("{call}\n{{\"kind\":\"complete\"}}\n"), &["-q"]).exits(0);
    let show = home.run(&["show", &home.only_run(), "--json"]).json(0);
    assert_eq!(show.get("children_total").and_then(Value::as_u64), Some(0));
    let steps = show.get("steps").unwrap().as_array().unwrap();
    assert!(steps[0].to_canonical_string().contains("unknown_tool"), "{steps:?}");
}
