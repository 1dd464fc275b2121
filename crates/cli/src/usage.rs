//! A command line that cannot be read, told as every other error is: a code, one sentence, and what to do.

use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use portcullis_canon::sanitize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// The most bytes of an argument that are said again.
const MAX_ECHO: usize = 80;

/// The most bytes of a reason, which may name every value that fits.
const MAX_REASON: usize = 300;

/// True when the arguments ask for JSON, readable as a whole or not.
pub(crate) fn wants_json<'a>(args: impl Iterator<Item = &'a OsStr>) -> bool {
    args.take_while(|arg| *arg != "--").any(|arg| arg == "--json")
}

/// What became of a command line that is none: a text that was asked for, or a refusal.
pub(crate) fn ended(error: &clap::Error, json: bool) -> Result<Exit, Failure> {
    // Nothing at all was said: people are helped, programs are told.
    let helps = !json && error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && !helps {
        return Err(failure(error));
    }
    // Whoever closed the output does not want to know.
    let _ = error.print();
    Ok(if error.use_stderr() { Exit::Usage } else { Exit::Done })
}

fn failure(error: &clap::Error) -> Failure {
    let failure = Failure::unread(sentence(error));
    match advice(error) {
        Some(advice) => failure.hint(advice),
        None => failure.hint("`portcullis COMMAND --help` lists what can be said"),
    }
}

/// What does not fit. Nothing of it is clap's own text, which says the argument again as it came.
fn sentence(error: &clap::Error) -> String {
    let said = |kind| error.get(kind).map(echo).unwrap_or_default();
    let argument = said(ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::UnknownArgument => format!("there is no argument {argument} here"),
        ErrorKind::InvalidSubcommand => {
            format!("there is no command {}", said(ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "a command is missing".to_owned()
        }
        ErrorKind::MissingRequiredArgument => format!("what is needed is missing: {argument}"),
        ErrorKind::ArgumentConflict => {
            match error.get(ContextKind::PriorArg).map(echo).filter(|prior| *prior != argument) {
                Some(prior) => format!("{argument} does not go with {prior}"),
                None => format!("{argument} can be given once"),
            }
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => misfit(error, &argument),
        ErrorKind::InvalidUtf8 => "an argument is not UTF-8 text".to_owned(),
        ErrorKind::NoEquals | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!("{argument} needs a value")
        }
        ErrorKind::TooManyValues => format!("{argument} takes no such value"),
        _ => "the command line cannot be read".to_owned(),
    }
}

fn misfit(error: &clap::Error, argument: &str) -> String {
    let value = error.get(ContextKind::InvalidValue);
    if matches!(value, None | Some(ContextValue::None))
        || matches!(value, Some(ContextValue::String(text)) if text.is_empty())
    {
        return format!("{argument} needs a value");
    }
    let value = value.map(echo).unwrap_or_default();
    let why =
        std::error::Error::source(error).map(|why| text::one_line(&why.to_string(), MAX_REASON));
    let why = why.map(|why| in_words(&why).unwrap_or(why));
    let fit = error.get(ContextKind::ValidValue).map(echo);
    let why = why.or(fit.map(|fit| format!("expected one of {fit}")));
    match why {
        Some(why) => format!("{argument} cannot be {value}: {why}"),
        None => format!("{argument} cannot be {value}"),
    }
}

/// A range in words; clap writes it as Rust does.
fn in_words(why: &str) -> Option<String> {
    let (least, most) = why.split_once(" is not in ")?.1.split_once("..=")?;
    Some(format!("expected a whole number, {least} to {most}"))
}

/// What clap thinks was meant; else how the command is used. Neither holds what was typed.
fn advice(error: &clap::Error) -> Option<String> {
    for kind in
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
    {
        if let Some(meant) = error.get(kind) {
            return Some(format!("perhaps {} is meant", echo(meant)));
        }
    }
    if names_a_run_or_question(error) {
        return Some(
            "`portcullis runs` and `portcullis inbox` list what can be named here".to_owned(),
        );
    }
    if error.kind() == ErrorKind::ArgumentConflict {
        // That usage shows what was typed, conflict and all.
        return None;
    }
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    // A command that can be used in two ways has a line for each.
    let usage = usage.to_string();
    let ways: Vec<String> = usage
        .lines()
        .map(|line| line.trim().trim_start_matches("Usage:").trim())
        .filter(|line| !line.is_empty())
        .map(|line| format!("`{line}`"))
        .collect();
    Some(format!("it is used so: {}", ways.join(" or ")))
}

/// True of a value that was to be an id.
fn names_a_run_or_question(error: &clap::Error) -> bool {
    let argument = error.get(ContextKind::InvalidArg);
    error.kind() == ErrorKind::ValueValidation
        && matches!(argument, Some(ContextValue::String(name)) if name.contains("RUN"))
}

/// A word of the command line, or several, each in quotes, safe and short.
fn echo(value: &ContextValue) -> String {
    let quoted = |word: &String| format!("`{}`", text::one_line(word, MAX_ECHO));
    match value {
        ContextValue::String(word) => quoted(word),
        ContextValue::Strings(words) => {
            sanitize::clip(&words.iter().map(quoted).collect::<Vec<_>>().join(", "), MAX_REASON)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[track_caller]
    fn check(args: &[&str], words: &[&str]) {
        let error = Cli::try_parse_from(["portcullis"].iter().chain(args)).unwrap_err();
        let failure = ended(&error, true).unwrap_err();
        let (sentence, advice) = (failure.sentence(), failure.advice().unwrap());
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(sentence.len() < 500, "{sentence}");
        for text in [&sentence, &advice] {
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        for word in words {
            assert!(sentence.contains(word) || advice.contains(word), "{sentence}; {advice}");
        }
    }

    #[test]
    fn each_misuse_is_one_sentence_that_says_what_to_do() {
        check(&[], &["a command is missing", "portcullis"]);
        check(&["nonsense"], &["there is no command `nonsense`"]);
        let two_ways = "`portcullis models [OPTIONS]` or `portcullis models <COMMAND>`";
        check(&["models", "nonsense"], &["there is no command `nonsense`", two_ways]);
        check(&["verfy"], &["there is no command `verfy`", "perhaps `verify` is meant"]);
        check(&["runs", "--al"], &["there is no argument `--al` here"]);
        check(&["runs", "--limt", "1"], &["perhaps `--limit` is meant"]);
        check(&["run"], &["what is needed is missing: `<GOAL>`", "portcullis run"]);
        check(&["resume", "--all", "run_0123456789"], &["`--all` does not go with `[RUN]`"]);
        check(&["runs", "--json", "--json"], &["`--json` can be given once"]);
        check(
            &["show", "run_x"],
            &["`<RUN>` cannot be `run_x`: expected `run_`", "`portcullis runs` and"],
        );
        for args in [&["approve", "42"], &["resume", "run_1"]] {
            check(args, &["`portcullis runs` and `portcullis inbox` list"]);
        }
        check(&["answer", "q_01234567"], &["missing: `<happened|did-not-happen|run-again>`"]);
        check(&["runs", "--limit"], &["`--limit <N>` needs a value"]);
        check(
            &["runs", "--limit", "501"],
            &["`--limit <N>` cannot be `501`: expected a whole number, 1 to 500"],
        );
        check(&["answer", "q_01234567", "yes"], &["cannot be `yes`: expected one of `happened`"]);
    }

    #[test]
    fn what_was_typed_is_said_again_safe_and_short() {
        let hostile = format!("\u{1b}[2J\n\u{202e}{}", "x".repeat(100_000));
        for args in [
            &[hostile.as_str()][..],
            &["show", &hostile],
            &["runs", &format!("--{hostile}")],
            &["runs", "--limit", &hostile],
            &["approve", "q_01234567", "--digest", &hostile],
            &["key", "new", &hostile],
        ] {
            check(args, &["\\x1B[2J"]);
        }
    }

    #[test]
    fn json_is_asked_for_among_the_options_alone() {
        let wants = |args: &[&str]| wants_json(args.iter().map(OsStr::new));
        assert!(wants(&["runs", "--json"]) && wants(&["--json", "nonsense"]));
        assert!(!wants(&["runs"]) && !wants(&["run", "--", "--json"]));
    }
}
