//! `portcullis recheck`: hands what was decided back to a policy, and says what it would decide.

use std::io;
use std::path::PathBuf;

use portcullis_domain::id::RunId;
use portcullis_domain::ports::Policy;
use portcullis_domain::verdict::Verdict;
use portcullis_engine::Tools;
use portcullis_engine::recheck::{
    Against, Answer, Evaluation, Finding, Obstacle, Recheck, Rules, Totals,
};
use portcullis_policy::ClassTable;

use crate::args::Globals;
use crate::assemble;
use crate::config::{self, Config};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::http::For;
use crate::launch::Launch;
use crate::lookup::{self, RunArg, Typed};
use crate::output::{Out, screen, text, verdict};
use crate::reading::Reading;
use crate::wire::{EvaluationJson, RecheckedJson};

/// The most bytes of a tool's name in a row.
const TOOL_BYTES: usize = 60;

/// Where the rules of a verdict begin.
const LABEL_COLUMNS: usize = 12;

/// How wide the place of an evaluation is at least.
const PLACE_COLUMNS: usize = 22;

/// Arguments of `recheck`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run: `run_…`, or at least 8 of its digits
    #[arg(value_name = "RUN", value_parser = lookup::run_arg, required_unless_present = "all", conflicts_with = "all")]
    run: Option<RunArg>,
    /// Every run of the database
    #[arg(long)]
    all: bool,
    /// Ask the rules of this configuration, about the tools as they were
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

/// Which rules are asked.
enum Asked {
    /// Those that answered.
    Recorded,
    /// Those of the configuration that was named with `-c`, about its tools.
    Configured(Box<Config>),
    /// Those of this file.
    Policy(Box<Config>),
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let asked = asked(&args, globals)?;
    let reading = Reading::open(globals)?;
    let runs = match &args.run {
        // Whether a run has a row is nothing to go by.
        Some(Typed::Whole(id)) => vec![*id],
        Some(begins) => vec![lookup::run_id(reading.db(), &reading.scope, begins).await?],
        None => lookup::recorded_runs(reading.db(), &reading.scope).await?,
    };
    let mut telling =
        Telling { out: Out::new(), json: globals.json, columns: screen::columns(), hidden: 0 };
    let (mut all, mut failed) = (Totals::default(), false);
    for run in &runs {
        match one(&reading, *run, &asked, globals, &mut telling).await {
            Ok(totals) => all.add(&totals),
            Err(failure) if args.all && !failure.is_quiet() => {
                telling.flush()?;
                crate::report(&failure, globals.json);
                failed = true;
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.all {
        telling.all(runs.len(), &all)?;
    }
    telling.end(&all)?;
    Ok(if all.holds() && !failed { Exit::Done } else { Exit::Refused })
}

fn asked(args: &Args, globals: &Globals) -> Result<Asked, Failure> {
    match (&args.policy, &globals.config_path) {
        (Some(_), Some(_)) => Err(Failure::usage("-c and --policy name two sets of rules")
            .hint("name -c for today's rules and tools, or --policy for the rules alone")),
        (Some(policy), None) => Ok(Asked::Policy(Box::new(config::read(policy)?))),
        (None, Some(config)) => Ok(Asked::Configured(Box::new(config::read(config)?))),
        (None, None) => Ok(Asked::Recorded),
    }
}

async fn one(
    reading: &Reading,
    run: RunId,
    asked: &Asked,
    globals: &Globals,
    telling: &mut Telling,
) -> Result<Totals, Failure> {
    let launch = Launch::recall(&globals.place.launches(), run).ok().flatten();
    let known = match asked {
        Asked::Recorded => known_rules(globals, launch.as_ref()),
        Asked::Configured(_) | Asked::Policy(_) => Vec::new(),
    };
    let known: Vec<&dyn Policy> = known.iter().map(|table| table as &dyn Policy).collect();
    let (rules, tools) = match asked {
        Asked::Recorded => (Rules::Recorded(&known), None),
        Asked::Policy(config) => (Rules::These(&config.classes), None),
        Asked::Configured(config) => {
            let tools = todays_tools(globals, config, launch.as_ref()).await?;
            (Rules::These(&config.classes), tools)
        }
    };
    let against = Against { rules, tools: tools.as_ref() };
    let mut recheck = Recheck::of(reading.db(), &reading.scope, run, against);
    let mut first = true;
    while let Some(evaluation) = recheck.next().await? {
        if first {
            telling.begin(run)?;
        }
        first = false;
        telling.evaluation(run, &evaluation)?;
    }
    if !recheck.is_there() {
        return Err(Failure::new(Code::Unknown, "there is no such run")
            .hint("list what there is with `portcullis runs`"));
    }
    if first {
        telling.begin(run)?;
    }
    telling.run(run, recheck.totals())?;
    Ok(*recheck.totals())
}

/// The rules among which the ones that answered are looked for. One that cannot be read is not at hand.
fn known_rules(globals: &Globals, launch: Option<&Launch>) -> Vec<ClassTable> {
    let began_with = launch.and_then(|launch| launch.config.as_deref());
    let began_with = began_with.and_then(|path| config::read(path).ok());
    let usual = config::load(globals).ok();
    let configured = began_with.into_iter().chain(usual).map(|config| config.classes);
    configured.chain([ClassTable::default()]).collect()
}

/// The tools that `resume` would give the run; none where neither a folder nor a place nor a server is named.
async fn todays_tools(
    globals: &Globals,
    config: &Config,
    launch: Option<&Launch>,
) -> Result<Option<Tools>, Failure> {
    let files = match launch {
        Some(launch) => launch.files.clone(),
        None => config.files.clone(),
    };
    if files.is_none() && config.http.is_none() && config.mcp.is_empty() {
        return Ok(None);
    }
    let (tools, _) = assemble::tools(globals, config, files.as_deref(), None, For::Specs).await?;
    Ok(Some(tools))
}

struct Telling {
    out: Out,
    json: bool,
    columns: usize,
    /// Evaluations whose rules are not at hand.
    hidden: u64,
}

impl Telling {
    fn begin(&mut self, run: RunId) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.lines([format!("RUN {run}")]) }
    }

    fn evaluation(&mut self, run: RunId, evaluation: &Evaluation) -> Result<(), Failure> {
        if evaluation.finding == Finding::NotRecheckable(Obstacle::PolicyNotAtHand) {
            self.hidden = self.hidden.saturating_add(1);
        }
        if self.json {
            return self.written(|out| out.json(&EvaluationJson::of(run, evaluation)));
        }
        let rows = rows(evaluation, self.columns);
        self.lines(rows)
    }

    fn run(&mut self, run: RunId, totals: &Totals) -> Result<(), Failure> {
        if self.json {
            return self.written(|out| out.json(&RecheckedJson::of(Some(run), totals)));
        }
        let mut rows = vec![format!("  {}", counted(totals))];
        rows.extend(totals.broken.map(|broken| format!("  BROKEN: {broken}")));
        self.lines(rows)
    }

    fn all(&mut self, runs: usize, totals: &Totals) -> Result<(), Failure> {
        if self.json {
            return self.written(|out| out.json(&RecheckedJson::of(None, totals)));
        }
        self.lines([format!("{}: {}", text::counted(runs, "run"), counted(totals))])
    }

    fn end(mut self, totals: &Totals) -> Result<(), Failure> {
        if !self.json {
            let hidden = usize::try_from(self.hidden).unwrap_or(usize::MAX);
            let advice = (hidden > 0).then(|| {
                let count = text::counted(hidden, "evaluation");
                format!("the rules that answered {count} are not at hand: name them with `--policy FILE`")
            });
            let broken =
                totals.broken.map(|_| "look at the record with `portcullis verify`".to_owned());
            let nothing = (totals.rechecked() == 0).then(|| "nothing was asked again".to_owned());
            self.lines(advice.into_iter().chain(broken).chain(nothing))?;
        }
        self.flush()
    }

    fn lines(&mut self, rows: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        self.written(|out| rows.into_iter().try_for_each(|row| out.line(&row)))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.written(Out::flush)
    }

    fn written(&mut self, write: impl FnOnce(&mut Out) -> io::Result<()>) -> Result<(), Failure> {
        write(&mut self.out).map_err(|error| Failure::output(&error))
    }
}

fn counted(totals: &Totals) -> String {
    let Totals { same, different, not_recheckable, .. } = totals;
    format!("{same} same, {different} different, {not_recheckable} not re-checkable")
}

/// One evaluation: a row, and beneath it what differs. Foreign text stands at a row's end or behind a bar.
fn rows(evaluation: &Evaluation, columns: usize) -> Vec<String> {
    let recorded = verdict::words(&evaluation.recorded);
    let found = match &evaluation.finding {
        Finding::Same => format!("same       {recorded}"),
        Finding::Different(now) => format!("DIFFERENT  {recorded}; now {}", answer_words(now)),
        Finding::NotRecheckable(why) => {
            format!("not asked  {recorded} ({}: {why})", why.as_str())
        }
    };
    let spec = if evaluation.spec_changed { " (the tool's spec has changed)" } else { "" };
    let tool = text::one_line(&evaluation.tool, TOOL_BYTES);
    let (index, seq) = (evaluation.index, evaluation.seq);
    let place = format!("step {index} (event {seq})");
    let mut rows = vec![format!("  {place:<PLACE_COLUMNS$}  {found}{spec}  | {tool}")];
    if let Finding::Different(now) = &evaluation.finding {
        rules(&mut rows, "rule then", &evaluation.recorded, columns);
        if let Answer::Verdict(now) = now {
            rules(&mut rows, "rule now", now, columns);
        }
    }
    rows
}

fn answer_words(answer: &Answer) -> String {
    match answer {
        Answer::Verdict(now) => verdict::words(now),
        Answer::NotAdmitted(refusal) => {
            format!("not admitted by today's tools: {}", refusal.as_str())
        }
    }
}

fn rules(rows: &mut Vec<String>, label: &str, verdict: &Verdict, columns: usize) {
    let room = columns.saturating_sub(LABEL_COLUMNS.saturating_add(6));
    if verdict.rules().is_empty() {
        rows.push(format!("    {label:<LABEL_COLUMNS$}none"));
    }
    for rule in verdict.rules() {
        for (at, row) in text::quote(rule, room).0.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            rows.push(format!("    {label:<LABEL_COLUMNS$}| {row}"));
        }
    }
}
