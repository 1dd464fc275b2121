//! `portcullis check`: starts each MCP server and says what of it could be called in a run.

use std::io;

use portcullis_canon::{Object, Value};
use portcullis_mcp::{OfferFate, OfferLine};

use crate::args::Globals;
use crate::assemble::{self, Report};
use crate::config::{self, ServerChoice};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Out, text};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command. No tool is called.
pub(crate) async fn run(_: Args, globals: &Globals) -> Result<Exit, Failure> {
    let config = config::load(globals)?;
    let reports = assemble::reports(globals, &config).await?;
    let checked: Vec<_> = config.mcp.iter().zip(&reports).collect();
    let mut out = Out::new();
    let written = if globals.json { json(&mut out, &checked) } else { told(&mut out, &checked) };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    let good = |report: &Result<Report, Failure>| {
        report.as_ref().is_ok_and(|(tools, offers)| {
            tools.registered() > 0 || offers.iter().any(|line| line.fate == OfferFate::Shown)
        })
    };
    Ok(if reports.iter().all(good) { Exit::Done } else { Exit::Refused })
}

type Checked<'a> = (&'a ServerChoice, &'a Result<Report, Failure>);

fn json(out: &mut Out, checked: &[Checked<'_>]) -> io::Result<()> {
    let servers = checked.iter().map(|(choice, report)| {
        let (mut object, code, error) = match report {
            Ok((tools, _)) => (tools.value(), Value::Null, Value::Null),
            Err(failure) => {
                let mut object = Object::new();
                object.insert("server", choice.name.as_str());
                object.insert("registered", 0_i64);
                object.insert("tools", Vec::<Value>::new());
                let code = Value::from(failure.code().as_str());
                (Value::Object(object), code, Value::from(failure.sentence()))
            }
        };
        if let Value::Object(object) = &mut object {
            let offers = report.as_ref().map_or(&[][..], |(_, offers)| offers.as_slice());
            object.insert("offers", offers.iter().map(OfferLine::value).collect::<Vec<_>>());
            object.insert("code", code);
            object.insert("error", error);
        }
        object
    });
    let mut whole = Object::new();
    whole.insert("servers", servers.collect::<Vec<_>>());
    out.json(&Value::Object(whole))
}

fn told(out: &mut Out, checked: &[Checked<'_>]) -> io::Result<()> {
    if checked.is_empty() {
        return out.line("no MCP servers are configured ([mcp.servers.NAME])");
    }
    for (choice, report) in checked {
        match report {
            Ok((report, offers)) => {
                let all = text::counted(report.lines.len(), "tool");
                let registered = report.registered();
                out.line(&format!("`{}`: {registered} of {all} can be called", choice.name))?;
                report.lines.iter().try_for_each(|line| out.line(&format!("  {line}")))?;
                offers.iter().try_for_each(|line| out.line(&format!("  {line}")))?;
            }
            Err(failure) => out.line(&format!("`{}`: {failure}", choice.name))?,
        }
    }
    Ok(())
}
