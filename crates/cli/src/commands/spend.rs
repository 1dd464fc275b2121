//! `portcullis spend`: what models cost, from recorded facts.

use std::collections::BTreeMap;
use std::io;

use portcullis_domain::budget::{Amounts, BudgetScope, Caps, Day};
use portcullis_engine::spend::{self, Spend};
use portcullis_models::show_amount;
use serde::Serialize;

use crate::args::Globals;
use crate::assemble;
use crate::config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{self, RunArg};
use crate::output::Out;
use crate::output::table::Columns;
use crate::reading::Reading;

/// Arguments of `spend`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run, with all runs that it started: `run_…`, or at least 8 of its digits
    #[arg(value_name = "RUN", value_parser = lookup::run_arg, conflicts_with_all = ["day", "owner"])]
    run: Option<RunArg>,
    /// A day in UTC, such as 2026-01-31 [default: today]
    #[arg(long, value_name = "DATE", value_parser = day)]
    day: Option<Day>,
    /// Whose day [default: the person of your key, else your user name]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
}

fn day(text: &str) -> Result<Day, String> {
    Day::try_from(text.to_owned()).map_err(|error| error.to_string())
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let of = match args.run {
        Some(run) => {
            let run = lookup::run(reading.db(), &reading.scope, &run).await?;
            BudgetScope::Run { run: run.id }
        }
        None => {
            let owner = match args.owner {
                Some(owner) => owner,
                None => assemble::own_person(globals, &config::load(globals)?),
            };
            let day = args.day.unwrap_or_else(|| Day::of(reading.now()));
            BudgetScope::Day { owner, day }
        }
    };
    let spend = spend::spend(reading.db(), &reading.scope, &of).await?;
    let mut out = Out::new();
    let written = if globals.json {
        out.json(&SpendJson::of(&of, spend.as_ref()))
    } else {
        text(&mut out, &of, spend.as_ref())
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

/// `spend`.
#[derive(Debug, Serialize)]
struct SpendJson<'a> {
    of: &'a BudgetScope,
    caps: Option<Caps>,
    spent: Amounts,
    excess: Amounts,
    held: Amounts,
    unpriced_calls: u64,
    by_run: Vec<PartJson>,
    by_tool: Vec<PartJson>,
    by_model: Vec<PartJson>,
    outcomes: Vec<OutcomeJson>,
}

/// A part of what was spent; without a name, that of steps which called no tool.
#[derive(Debug, Serialize)]
struct PartJson {
    name: Option<String>,
    used: Amounts,
}

/// How many attempts went so.
#[derive(Debug, Serialize)]
struct OutcomeJson {
    outcome: &'static str,
    attempts: u64,
}

impl<'a> SpendJson<'a> {
    fn of(of: &'a BudgetScope, spend: Option<&Spend>) -> Self {
        let budget = spend.map(|spend| &spend.budget);
        let sum = |part: fn(&portcullis_domain::budget::Budget) -> Amounts| {
            budget.map_or(Amounts::NONE, part)
        };
        Self {
            of,
            caps: budget.map(|budget| budget.caps),
            spent: sum(|budget| budget.spent),
            excess: sum(|budget| budget.excess),
            held: sum(portcullis_domain::budget::Budget::held),
            unpriced_calls: budget.map_or(0, |budget| budget.unpriced),
            by_run: spend
                .map(|s| parts(&s.by_run, |run| Some(run.to_string())))
                .unwrap_or_default(),
            by_tool: spend.map(|s| parts(&s.by_tool, Clone::clone)).unwrap_or_default(),
            by_model: spend.map(|s| parts(&s.by_model, |m| Some(m.clone()))).unwrap_or_default(),
            outcomes: spend
                .iter()
                .flat_map(|spend| &spend.by_outcome)
                .map(|(outcome, attempts)| OutcomeJson { outcome, attempts: *attempts })
                .collect(),
        }
    }
}

fn parts<K>(sums: &BTreeMap<K, Amounts>, name: impl Fn(&K) -> Option<String>) -> Vec<PartJson> {
    sums.iter().map(|(key, used)| PartJson { name: name(key), used: *used }).collect()
}

fn text(out: &mut Out, of: &BudgetScope, spend: Option<&Spend>) -> io::Result<()> {
    let whose = match of {
        BudgetScope::Run { run } => format!("{run} and the runs that it started"),
        BudgetScope::Day { owner, day } => format!("the runs of {owner} on {day} (UTC)"),
    };
    let Some(spend) = spend else {
        return out
            .line(&crate::output::text::one_line(&format!("no model was called by {whose}"), 400));
    };
    let mut table = Columns::new(&["PART", "CALLS", "INPUT", "OUTPUT", "COST", "WHAT"]);
    let budget = &spend.budget;
    let mut row = |part: &str, used: &Amounts, what: String| {
        let Amounts { calls, input_tokens, output_tokens, cost_micros } = used;
        let cost = show_amount(*cost_micros);
        let numbers = [calls, input_tokens, output_tokens].map(u64::to_string);
        let [calls, input, output] = numbers;
        table.row([part.to_owned(), calls, input, output, cost, what]);
    };
    row("all", &budget.spent.plus(budget.excess), whose);
    if budget.excess != Amounts::NONE {
        row("excess", &budget.excess, "beyond what was reserved for it, in all".to_owned());
    }
    if !budget.holds.is_empty() {
        row("held", &budget.held(), "for calls that are under way, not in all".to_owned());
    }
    for (run, used) in &spend.by_run {
        row("run", used, run.to_string());
    }
    for (tool, used) in &spend.by_tool {
        row("tool", used, tool.clone().unwrap_or_else(|| "(none was called)".to_owned()));
    }
    for (model, used) in &spend.by_model {
        row("model", used, model.clone());
    }
    for line in table.lines() {
        out.line(&line)?;
    }
    if budget.unpriced > 0 {
        out.line(&format!(
            "{} calls of models without a price; their cost is in no sum",
            budget.unpriced
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date() {
        assert!(day("2026-01-31").is_ok());
        assert!(day("yesterday").is_err());
    }
}
