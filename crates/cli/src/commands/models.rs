//! `portcullis models`: which providers are configured and reachable, and what models cost.

mod prices;

use std::io;

use portcullis_models::Dialect;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::args::Globals;
use crate::config::{self, Config};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::model::keys::{self, KeyState};
use crate::model::providers::{self, Entry};
use crate::model::reach::{self, Reach};
use crate::output::Out;
use crate::output::table::Columns;

/// The most names that stand in a cell.
const MAX_SHOWN: usize = 8;

/// Arguments of `models`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Ask nobody: say only what is configured
    #[arg(long)]
    offline: bool,
    #[command(subcommand)]
    then: Option<Then>,
}

#[derive(Debug, clap::Subcommand)]
enum Then {
    /// Show the prices in force, or put another list in force
    Prices(prices::Args),
}

/// Runs the command. It sends at most one request for a list to each provider, and never a prompt.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    if let Some(Then::Prices(args)) = args.then {
        return prices::run(&args, globals);
    }
    let config = config::load(globals)?;
    let mut all = Vec::new();
    let mut asked = JoinSet::new();
    for (place, name) in providers::names(&config.models).enumerate() {
        let entry = match providers::find(name, &config.models) {
            Ok(entry) => entry,
            Err(failure) => {
                all.push(ProviderJson::broken(name, &failure));
                continue;
            }
        };
        all.push(ProviderJson::of(&entry, &config, globals));
        if !args.offline {
            let (known, way) = (config.credentials.clone(), config.egress.clone());
            let globals = globals.clone();
            asked.spawn(async move { (place, reach::ask(&entry, &known, &way, &globals).await) });
        }
    }
    while let Some(joined) = asked.join_next().await {
        let (place, reach) =
            joined.map_err(|_| Failure::new(Code::Bug, "asking a provider panicked"))?;
        if let Some(provider) = all.get_mut(place) {
            provider.learns(reach);
        }
    }
    let mut out = Out::new();
    let written =
        if globals.json { out.json(&ModelsJson { providers: all }) } else { text(&mut out, &all) };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

/// `models`.
#[derive(Debug, Serialize)]
struct ModelsJson {
    providers: Vec<ProviderJson>,
}

#[derive(Debug, Serialize)]
struct ProviderJson {
    provider: String,
    dialect: Option<&'static str>,
    address: Option<String>,
    local: bool,
    configured: bool,
    may_see: Vec<String>,
    key: Option<String>,
    state: &'static str,
    detail: Option<String>,
    models: Option<Vec<String>>,
}

impl ProviderJson {
    fn broken(name: &str, failure: &Failure) -> Self {
        Self {
            provider: name.to_owned(),
            dialect: None,
            address: None,
            local: false,
            configured: true,
            may_see: Vec::new(),
            key: None,
            state: "unusable",
            detail: Some(failure.sentence()),
            models: None,
        }
    }

    fn of(entry: &Entry, config: &Config, globals: &Globals) -> Self {
        let (key, missing) = match keys::find(entry, &config.credentials, globals) {
            KeyState::NotNeeded => (None, None),
            KeyState::At(source) => (Some(source.place()), None),
            KeyState::Missing { variable, file } => {
                (None, Some(format!("no key: set {variable}, or write `{}`", file.display())))
            }
        };
        Self {
            provider: entry.name.clone(),
            dialect: Some(Dialect::as_str(entry.dialect)),
            address: Some(entry.base.clone()),
            local: entry.local,
            configured: config.models.providers.contains_key(&entry.name),
            may_see: entry.may_see.iter().cloned().collect(),
            key,
            state: if missing.is_some() { "no_key" } else { "not_asked" },
            detail: missing,
            models: None,
        }
    }

    fn learns(&mut self, reach: Result<Reach, Failure>) {
        let (state, detail, models) = match reach {
            Ok(Reach::Reachable(models)) => ("reachable", None, models),
            Ok(Reach::Refused(why)) => ("key_refused", Some(why), None),
            Ok(Reach::Unreachable(why)) => ("unreachable", Some(why), None),
            Ok(Reach::NoKey(why)) => ("no_key", Some(why), None),
            Err(failure) => ("unusable", Some(failure.sentence()), None),
        };
        (self.state, self.detail, self.models) = (state, detail, models);
    }

    /// What stands in the last column.
    fn told(&self) -> String {
        match (&self.detail, &self.models) {
            (Some(detail), _) => detail.clone(),
            (None, Some(models)) => {
                let shown: Vec<&str> = models.iter().take(MAX_SHOWN).map(String::as_str).collect();
                let more = models.len().saturating_sub(shown.len());
                let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                format!("{}{more}", shown.join(", "))
            }
            (None, None) => String::new(),
        }
    }
}

fn text(out: &mut Out, all: &[ProviderJson]) -> io::Result<()> {
    let mut table = Columns::new(&["PROVIDER", "STATE", "KEY", "ADDRESS", "MODELS"]);
    for provider in all {
        let key = provider.key.as_deref().unwrap_or("-");
        let address = provider.address.as_deref().unwrap_or("-");
        let state = provider.state.replace('_', " ");
        let cells = [provider.provider.as_str(), state.as_str(), key, address];
        table.row(cells.map(str::to_owned).into_iter().chain([provider.told()]));
    }
    table.lines().iter().try_for_each(|line| out.line(line))
}
