//! The operator: does one thing with the command, and brings a run whose process was killed to its end.

use std::collections::BTreeMap;

use portcullis::canon::Value;
use portcullis_testkit::killer::{Call, Kill, Told};

use super::home::{Ended, Home};
use super::story::{Change, Does, Story, Verb};

/// More than any story needs.
const MOST_ROUNDS: usize = 12;

/// What was done in a home: how often each change happened, what the kernel was asked for, and what was seen on the way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// Of each file, how often its change was found in the folder, and taken out of it again.
    pub(crate) collected: BTreeMap<&'static str, usize>,
    pub(crate) calls: Vec<Call>,
    /// Whether a person was asked what became of a call.
    pub(crate) waited: bool,
    /// How often a person had a call made again.
    pub(crate) again: usize,
    /// The status of the run at its end.
    pub(crate) status: Option<String>,
}

impl Account {
    /// How often the kernel was asked for a change, and how often it made it.
    pub(crate) fn times(&self, home: &Home<'_>, change: Change) -> (usize, usize) {
        let file = home.files().join(change.file);
        let is = |call: &&Call| match change.does {
            Does::Makes => {
                call.to.as_ref() == Some(&file) || (call.name == "create" && call.path == file)
            }
            Does::Removes => {
                call.path == file && ["rename", "unlink"].contains(&call.name.as_str())
            }
        };
        let asked: Vec<&Call> = self.calls.iter().filter(is).collect();
        let made = asked.iter().filter(|call| call.result.is_some_and(|result| result >= 0));
        (asked.len(), made.count())
    }

    /// Takes note of what a process did that has ended, whichever way.
    pub(crate) fn note(&mut self, home: &Home<'_>, story: &Story, told: Told) {
        self.calls.extend(told.calls);
        for change in story.changes.iter().filter(|change| home.collect(**change)) {
            *self.collected.entry(change.file).or_default() += 1;
        }
    }

    pub(crate) fn happened(&self, change: Change) -> usize {
        self.collected.get(change.file).copied().unwrap_or_default()
    }
}

/// Has one process of a story do its part, killed or not. An operator who is asked what became of a call says so by what
/// was found in the folder.
pub(crate) fn act(
    home: &Home<'_>,
    story: &Story,
    account: &Account,
    verb: Verb,
    kill: Option<Kill>,
) -> (Ended, Told) {
    let run = || run_of(home).map(|(run, _)| run).unwrap_or_default();
    match verb {
        Verb::Init => home.run(&["init"], kill),
        Verb::Run => home.drive(&["run"], &["do it"], kill),
        Verb::RunCut => cut(home, story, account),
        Verb::Resume => home.drive(&["resume", &run()], &[], kill),
        Verb::Approve => home.run(&["approve", &run(), "--yes"], kill),
        Verb::Reject => home.run(&["reject", &run(), "--yes"], kill),
        Verb::Cancel => home.run(&["cancel", &run()], kill),
        Verb::Answer => home.run(&["answer", &run(), truth(home, story, account), "--yes"], kill),
    }
}

/// `run`, killed right after its first change: where that is, a run without a kill tells.
fn cut(home: &Home<'_>, story: &Story, account: &Account) -> (Ended, Told) {
    let saved = home.save();
    let (_, told) = act(home, story, account, Verb::Run, None);
    home.restore(&saved);
    let file = home.files().join(story.changes[0].file);
    let nth = told.calls.iter().position(|call| call.to.as_ref() == Some(&file)).unwrap() + 1;
    let after = Kill { nth, side: portcullis_testkit::killer::Side::After };
    act(home, story, account, Verb::Run, Some(after))
}

/// What an operator who looks at the folder says of the call in question, which is the last that was begun: that it
/// happened, or that it shall be made again.
fn truth(home: &Home<'_>, story: &Story, account: &Account) -> &'static str {
    let asked = asked_about(home);
    let change = story.changes.iter().find(|change| asked.as_deref() == Some(change.file));
    if change.is_some_and(|change| account.happened(*change) > 0) {
        "happened"
    } else {
        "run-again"
    }
}

/// The file of the one open question.
fn asked_about(home: &Home<'_>) -> Option<String> {
    let (_, question) = question(home)?;
    let path = question.pointer("/card/arguments/path").and_then(Value::as_str);
    path.map(str::to_owned)
}

/// The run and its status, if one was begun.
fn run_of(home: &Home<'_>) -> Option<(String, String)> {
    let said = home.ask(&["runs", "--json"]).json()?;
    let [run] = said.get("runs")?.as_array()? else { return None };
    let text = |key: &str| run.get(key).and_then(Value::as_str).map(str::to_owned);
    Some((text("run")?, text("status")?))
}

/// The one open question and its kind.
fn question(home: &Home<'_>) -> Option<(String, Value)> {
    let said = home.ask(&["inbox", "--json"]).json()?;
    let [question] = said.get("questions")?.as_array()? else { return None };
    Some((question.get("kind")?.as_str()?.to_owned(), question.clone()))
}

/// Goes on until the run has ended. The error says what the command would not do.
pub(crate) fn bring_to_end(
    home: &Home<'_>,
    story: &Story,
    account: &mut Account,
) -> Result<(), String> {
    for _ in 0..MOST_ROUNDS {
        let Some((_, status)) = run_of(home) else {
            // Whoever was cut off while making a home makes it again.
            did(&home.ask(&["init"]), &[0])?;
            step(home, story, Verb::Run, account, &[0, 1, 3])?;
            continue;
        };
        if ["completed", "failed", "cancelled"].contains(&status.as_str()) {
            account.status = Some(status);
            return did(&home.ask(&["verify"]), &[0]);
        }
        match question(home).map(|(kind, _)| kind).as_deref() {
            Some("unknown_outcome") => {
                account.waited = true;
                account.again += usize::from(truth(home, story, account) == "run-again");
                step(home, story, Verb::Answer, account, &[0])?;
            }
            Some(_) => step(home, story, story.reply, account, &[0])?,
            None => step(home, story, Verb::Resume, account, &[0, 1, 3])?,
        }
    }
    Err("the run does not come to its end".to_owned())
}

fn step(
    home: &Home<'_>,
    story: &Story,
    verb: Verb,
    account: &mut Account,
    codes: &[i32],
) -> Result<(), String> {
    let (ended, told) = act(home, story, account, verb, None);
    account.note(home, story, told);
    did(&ended, codes).map_err(|why| format!("{}: {why}", verb.name()))
}

fn did(ended: &Ended, codes: &[i32]) -> Result<(), String> {
    let panicked = ended.err.contains("panicked");
    if ended.code.is_some_and(|code| codes.contains(&code)) && !panicked {
        return Ok(());
    }
    Err(format!("exit {:?}: {}{}", ended.code, ended.out, ended.err))
}
