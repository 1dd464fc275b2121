//! Models as the operator names them, `PROVIDER:NAME` or `replay:DIR`, and one that is ready for a run.

pub(crate) mod keys;
pub(crate) mod prices;
pub(crate) mod providers;
pub(crate) mod reach;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis::system::{OsEntropy, SystemClock};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Clock, Model, ModelName, Price, Watch};
use portcullis_engine::{Engaged, Retry};
use portcullis_models::{
    AgentSetup, FenceSeed, Manifest, ModelAgent, OverEgress, Profile, Provider, ProviderConfig,
    Recorder, Replayer, TapeError,
};

use crate::args::Globals;
use crate::config::Config;
use crate::failure::{Code, Failure};

use providers::Entry;

/// The cap on a reply of a recording that does not say it, in tokens.
const REPLAYED_TOKENS: u64 = 8_192;

/// Which model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelChoice {
    /// One at a provider, and where its replies are recorded, if they are.
    Live {
        /// The model.
        name: ModelName,
        /// The folder.
        record: Option<PathBuf>,
    },
    /// A recording.
    Replay(PathBuf),
}

impl ModelChoice {
    /// Reads `PROVIDER:NAME` or `replay:DIR`; a relative folder starts at `base`.
    pub(crate) fn new(text: &str, base: &Path) -> Option<Self> {
        match text.split_once(':') {
            Some(("replay", folder)) if !folder.is_empty() => Some(Self::Replay(base.join(folder))),
            Some(("replay", _)) => None,
            _ => {
                let name = ModelName::read(text).ok()?;
                Some(Self::Live { name, record: None })
            }
        }
    }
}

/// A model that a run can be given, and how it is asked. Nothing was sent yet. A clone is the same model, so that all runs of
/// a tree are in one recording, and are played from one, in the order in which they ask.
#[derive(Clone)]
pub(crate) struct Ready {
    model: Arc<dyn Model>,
    setup: AgentSetup,
    retry: Retry,
    /// What the operator should know, a sentence each.
    pub(crate) remarks: Vec<String>,
}

/// Opens everything that the model needs: its provider, its key, its price, its recording.
pub(crate) fn open(
    choice: &ModelChoice,
    globals: &Globals,
    config: &Config,
    cap: Option<u64>,
) -> Result<Ready, Failure> {
    match choice {
        ModelChoice::Replay(folder) => replay(folder),
        ModelChoice::Live { name, record } => live(name, record.as_deref(), globals, config, cap),
    }
}

fn replay(folder: &Path) -> Result<Ready, Failure> {
    let replayer = Replayer::open(folder).map_err(|error| unusable(&error))?;
    let setup = setup(replayer.manifest());
    Ok(Ready { model: Arc::new(replayer), setup, retry: Retry::default(), remarks: Vec::new() })
}

fn live(
    name: &ModelName,
    record: Option<&Path>,
    globals: &Globals,
    config: &Config,
    cap: Option<u64>,
) -> Result<Ready, Failure> {
    let entry = providers::find(name.provider(), &config.models)?;
    let price = entry.price(name, &prices::list(globals)?);
    let mut remarks = Vec::new();
    if price == Price::Unpriced {
        remarks.push(format!("`{name}` has no price, so its cost is in no sum"));
    }
    let provider = provider(&entry, name, price, globals, config)?;
    let manifest = Manifest {
        model: name.clone(),
        dialect: entry.dialect,
        profile: Profile::LATEST,
        seed: FenceSeed::draw(&OsEntropy),
        max_output_tokens: Some(
            cap.map_or(entry.max_output_tokens, |cap| cap.min(entry.max_output_tokens)),
        ),
        extra: entry.extra.clone(),
    };
    let (model, manifest): (Arc<dyn Model>, Manifest) = match record {
        None => (provider, manifest),
        Some(folder) => {
            let recorder =
                Recorder::open(provider, folder, manifest).map_err(|error| unusable(&error))?;
            let manifest = recorder.manifest().clone();
            (Arc::new(recorder), manifest)
        }
    };
    let setup = setup(&manifest);
    let retry = Retry { deadline: entry.timeout, ..Retry::default() };
    Ok(Ready { model, setup, retry, remarks })
}

fn provider(
    entry: &Entry,
    name: &ModelName,
    price: Price,
    globals: &Globals,
    config: &Config,
) -> Result<Arc<Provider>, Failure> {
    let key = keys::open(entry, &config.credentials, globals)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // Longer than the account waits, so that it is the account that says what was not answered in time.
    let timeout =
        entry.timeout.saturating_add(Duration::from_secs(5)).min(Duration::from_secs(3600));
    let (egress, credential) = key.client(entry, &config.egress, timeout, Arc::clone(&clock))?;
    let own = ProviderConfig {
        name: name.clone(),
        dialect: entry.dialect,
        base: entry.base.clone(),
        credential,
        marked_for: entry.may_see.clone(),
        price,
    };
    let transport = Arc::new(OverEgress::new(egress, clock));
    let provider = Provider::new(own, transport);
    Ok(Arc::new(provider.map_err(|error| Failure::new(Code::Model, error.to_string()))?))
}

fn setup(manifest: &Manifest) -> AgentSetup {
    AgentSetup {
        dialect: manifest.dialect,
        model: manifest.model.name().to_owned(),
        profile: manifest.profile,
        seed: manifest.seed.clone(),
        system: None,
        max_output_tokens: manifest.max_output_tokens.unwrap_or(REPLAYED_TOKENS),
        strict_tools: false,
        extra: manifest.extra.clone(),
        read_only: BTreeSet::new(),
        watch: None,
    }
}

fn unusable(error: &TapeError) -> Failure {
    Failure::new(Code::Recording, error.to_string())
}

impl Ready {
    /// Refuses a limit on cost that could not be kept, before a run is begun.
    pub(crate) fn fits(&self, limits: &Limits, config: &Config) -> Result<(), Failure> {
        let capped = limits.max_estimated_cost_micros.or(config.models.day.cost_micros);
        if capped.is_none() || self.model.price() != Price::Unpriced {
            return Ok(());
        }
        let name = self.model.name();
        let sentence = format!("`{name}` has no price, so a limit on cost could not be kept");
        Err(Failure::usage(sentence).hint(
            "give it one in [models.PROVIDER.prices] or with `portcullis models prices --from FILE`, or limit calls and tokens",
        ))
    }

    /// The agent that asks it, and what its driver engages.
    pub(crate) fn engage(
        self,
        reads: BTreeSet<String>,
        watch: Option<Watch>,
        config: &Config,
    ) -> (ModelAgent, Engaged) {
        let setup = AgentSetup { read_only: reads, watch, ..self.setup };
        let engaged = Engaged { model: self.model, day: config.models.day, retry: self.retry };
        (ModelAgent::driven(setup), engaged)
    }
}
