//! The `portcullis` command: runs an agent behind the gate, and lets people see, decide and check.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

mod again;
mod agent;
mod args;
mod assemble;
mod commands;
mod config;
mod drive;
mod exit;
mod failure;
mod half_made;
mod heads;
mod hooks;
mod hosts;
mod http;
mod judges;
mod launch;
mod login;
mod lookup;
mod mcp;
mod model;
mod output;
mod people;
mod place;
mod progress;
mod reading;
mod scratch;
mod signals;
mod start;
mod token;
mod tree;
mod trusted;
mod usage;
mod waits;
mod wire;
mod words;

use args::{Cli, Command, Globals};
use exit::Exit;
use failure::{Code, Failure};

/// Takes a fifth off what a step costs beside its commits; a host of the library chooses its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the end of the process waits for the database to be closed.
const CLOSING: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // Started again by the gate: this process gives up its rights and becomes the agent's program.
    portcullis_sandbox::child::run_if_child();
    keep_pages_small();
    let args: Vec<OsString> = std::env::args_os().collect();
    let (json, ended) = match Cli::try_parse_from(&args) {
        Ok(cli) => {
            // A host takes most ways to end as a yes: this command has one way of its own.
            if let Command::Decide(args) = &cli.command {
                return commands::hook::answer(args, &cli);
            }
            (cli.json, begin(cli))
        }
        Err(error) => {
            let json = usage::wants_json(args.iter().skip(1).map(OsString::as_os_str));
            (json, usage::ended(&error, json))
        }
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.is_quiet() {
                report(&failure, json);
            }
            failure.exit().into()
        }
    }
}

/// The allocator asks for huge pages, of which a process like this one fills a small part: without them a proxy takes half
/// the memory, and no call takes longer. A kernel that has none refuses.
fn keep_pages_small() {
    let _refused = rustix::thread::disable_transparent_huge_pages(true);
}

fn begin(cli: Cli) -> Result<Exit, Failure> {
    let globals = cli.globals()?;
    let mut runtime = match &cli.command {
        Command::Run(_) | Command::Resume(_) | Command::Demo(_) | Command::Proxy(_) => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(2);
            builder
        }
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build().map_err(|error| {
        Failure::new(Code::Io, format!("the runtime cannot start: {}", error.kind()))
    })?;
    let ended = runtime.block_on(perform(cli.command, &globals));
    // Tasks let the database go, so that it is closed in order. A call that outlived its deadline may still
    // have a thread; it is not waited for long, and its outcome is recorded as unknown.
    runtime.shutdown_timeout(CLOSING);
    ended
}

async fn perform(command: Command, globals: &Globals) -> Result<Exit, Failure> {
    // One that is named has to be usable, whether or not the command goes by it; `init` says itself what is wrong, and
    // `hosts` only adds to its text.
    let own = matches!(command, Command::Init(_) | Command::Hosts(_));
    if let (Some(named), false) = (&globals.config_path, own) {
        config::read(named)?;
    }
    match command {
        Command::Demo(args) => commands::demo::run(args, globals).await,
        Command::Init(args) => commands::init::run(args, globals).await,
        Command::Run(args) => commands::run::run(*args, globals).await,
        Command::Resume(args) => commands::resume::run(args, globals).await,
        Command::Runs(args) => commands::runs::run(args, globals).await,
        Command::Show(args) => commands::show::run(args, globals).await,
        Command::Spend(args) => commands::spend::run(args, globals).await,
        Command::Models(args) => commands::models::run(args, globals).await,
        Command::Pin(args) => commands::pin::run(args, globals).await,
        Command::Login(args) => commands::login::run(args, globals).await,
        Command::Check(args) => commands::check::run(args, globals).await,
        Command::Events(args) => commands::events::run(args, globals).await,
        Command::Inbox(args) => commands::inbox::run(args, globals).await,
        Command::Watch(args) => commands::watch::run(args, globals).await,
        Command::Approve(args) => commands::approve::run(args, globals).await,
        Command::Reject(args) => commands::reject::run(args, globals).await,
        Command::Answer(args) => commands::answer::run(args, globals).await,
        Command::Cancel(args) => commands::cancel::run(args, globals).await,
        Command::Explain(args) => commands::explain::run(args, globals).await,
        Command::Diff(args) => commands::diff::run(args, globals).await,
        Command::Proxy(args) => commands::proxy::run(args, globals).await,
        Command::Verify(args) => commands::verify::run(args, globals).await,
        Command::Recheck(args) => commands::recheck::run(args, globals).await,
        // Answered before anything else was looked at; should it come here, it is a block.
        Command::Decide(_) => Ok(Exit::Usage),
        Command::Hosts(args) => commands::hosts::run(&args, globals),
        Command::Key(args) => commands::key::run(args, globals).await,
        Command::Completions(args) => commands::shell::completions(&args),
        Command::Man(args) => commands::shell::man(&args),
    }
}

/// Tells what went wrong, on standard error. Whoever closed it does not want to know.
pub(crate) fn report(failure: &Failure, json: bool) {
    let mut out = std::io::stderr().lock();
    if json {
        let mut error = portcullis_canon::Object::new();
        error.insert("code", failure.code().as_str());
        error.insert("error", failure.sentence());
        error.insert(
            "hint",
            failure.advice().map_or(portcullis_canon::Value::Null, portcullis_canon::Value::from),
        );
        let line = portcullis_canon::Value::Object(error).to_canonical_string();
        let _ = writeln!(out, "{line}");
    } else {
        let _ = writeln!(out, "portcullis: {failure}");
    }
}

/// Tells what is no error, on standard error.
pub(crate) fn note(note: &str, json: bool) {
    if json {
        return warn_json(note);
    }
    let note = portcullis_canon::sanitize::line(note);
    let _ = writeln!(std::io::stderr().lock(), "portcullis: note: {note}");
}

/// Tells a program what is no error, on standard error.
pub(crate) fn warn_json(note: &str) {
    let mut object = portcullis_canon::Object::new();
    object.insert("note", portcullis_canon::sanitize::line(note).as_ref());
    let line = portcullis_canon::Value::Object(object).to_canonical_string();
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes one value to standard output, as one line of JSON.
pub(crate) fn say_json<T: serde::Serialize>(value: &T) -> Result<(), Failure> {
    let mut out = output::Out::new();
    out.json(value).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Writes lines to standard output, each safe for a terminal.
pub(crate) fn say(lines: &[String]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let line = portcullis_canon::sanitize::line(line);
        writeln!(out, "{line}").map_err(|error| Failure::output(&error))?;
    }
    out.flush().map_err(|error| Failure::output(&error))
}
