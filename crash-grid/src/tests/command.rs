//! That the judge of the command's grid sees a change that is made twice, lost or allowed by nobody.

use std::fs;
use std::path::{Path, PathBuf};

use portcullis_testkit::killer::{Call, Killer, Told};
use portcullis_testkit::skip::skip;

use super::super::binary::tests::{Account, Home, STORIES, Story, Verb, act, faults};
use super::super::judge::{Blame, Fault};

fn story(name: &str) -> &'static Story {
    STORIES.iter().find(|story| story.name == name).unwrap()
}

fn blames(faults: &[Fault]) -> Vec<Blame> {
    faults.iter().map(|fault| fault.blame).collect()
}

#[test]
fn a_change_that_happens_twice_is_lost_or_not_allowed_is_seen() {
    let Some(killer) = Killer::compile() else { return };
    let home = Home::new(Path::new("/nothing"), &killer);
    let approved = story("approved");
    home.begin(approved);
    let (made, old) = (home.files().join("a.txt"), home.files().join("old.txt"));
    let done = Some("completed".to_owned());
    let mut account = Account { status: done, ..Account::default() };
    account.note(&home, approved, Told::default());
    assert_eq!(blames(&faults(&home, approved, &account)), [Blame::Loss, Blame::Loss]);
    fs::write(&made, "made").unwrap();
    fs::remove_file(&old).unwrap();
    account.note(&home, approved, Told::default());
    account.note(&home, approved, Told::default());
    assert_eq!(faults(&home, approved, &account), []);
    // A second try that the kernel refuses is one too many all the same, unless a person asked for it.
    let mut tried = account.clone();
    let again = |result| Call {
        name: "rename".to_owned(),
        path: home.files().join("new"),
        to: Some(made.clone()),
        result: Some(result),
    };
    tried.calls.extend([again(0), again(-17)]);
    assert_eq!(blames(&faults(&home, approved, &tried)), [Blame::Double]);
    tried.again = 1;
    assert_eq!(faults(&home, approved, &tried), []);
    tried.calls.push(again(0));
    assert_eq!(blames(&faults(&home, approved, &tried)), [Blame::Double]);
    // The file that was made was taken away: one that is there now was made again.
    fs::write(&made, "made").unwrap();
    account.note(&home, approved, Told::default());
    assert_eq!(blames(&faults(&home, approved, &account)), [Blame::Double]);
    // What a person refused may not happen at all.
    let rejected = story("rejected");
    fs::remove_file(&old).unwrap();
    let mut account = Account { status: Some("cancelled".to_owned()), ..Account::default() };
    account.note(&home, rejected, Told::default());
    assert_eq!(blames(&faults(&home, rejected, &account)), [Blame::Loss, Blame::Double]);
}

/// The command that was built beside this test, if one was.
fn command() -> Option<PathBuf> {
    let here = std::env::current_exe().unwrap();
    let command = here.ancestors().nth(2).unwrap().join("portcullis");
    if !command.is_file() {
        skip("the command is not built beside the tests of the grid");
    }
    command.is_file().then_some(command)
}

#[test]
fn a_call_that_a_person_has_made_again_though_it_happened_is_seen() {
    let (Some(command), Some(killer)) = (command(), Killer::compile()) else { return };
    let home = Home::new(&command, &killer);
    let unknown = story("unknown");
    home.begin(unknown);
    let mut account = Account::default();
    let play = |account: &mut Account, verb| {
        let (ended, told) = act(&home, unknown, account, verb, None);
        account.note(&home, unknown, told);
        ended.code
    };
    for (verb, code) in [(Verb::Init, 0), (Verb::RunCut, 137), (Verb::Resume, 3)] {
        assert_eq!(play(&mut account, verb), Some(code));
    }
    assert_eq!(account.happened(unknown.changes[0]), 1);
    let run = home.ask(&["runs", "--json"]).json().unwrap();
    let run = run.pointer("/runs/0/run").and_then(|run| run.as_str()).unwrap().to_owned();
    assert_eq!(home.ask(&["answer", &run, "run-again", "--yes"]).code, Some(0));
    assert_eq!(play(&mut account, Verb::Resume), Some(0));
    assert_eq!(account.happened(unknown.changes[0]), 2);
    account.status = Some("completed".to_owned());
    assert_eq!(blames(&faults(&home, unknown, &account)), [Blame::Double]);
}
