//! The library's public face: what a builder depends on to put the gate before their own agent.
//!
//! [`engine`] is the gate and the driver, [`domain`] the words and the ports, [`store`], [`tools`], [`policy`],
//! [`agents`], [`models`], [`egress`] and [`audit`] what stands behind them. [`system`] has the ports that a real process needs.
//!
//! ```
//! use portcullis::policy::ClassTable;
//! use portcullis::system::{OsEntropy, SystemClock};
//!
//! let clock = SystemClock::new();
//! let entropy = OsEntropy;
//! let policy = ClassTable::default();
//! # let _ = (clock, entropy, policy);
//! ```
//!
//! A run that a model drives, here one that a script plays; [`models`] has those of providers, over [`egress`]:
//!
//! ```
//! use std::collections::BTreeSet;
//! use std::sync::Arc;
//!
//! use portcullis::canon::Object;
//! use portcullis::domain::ports::{ModelName, ModelOutcome, ModelReply, Price, Stop};
//! use portcullis::domain::{limits::Limits, run::EndReason, scope::Scope};
//! use portcullis::engine::{Driven, Driving, Engaged, Gate, Task};
//! use portcullis::models::{AgentSetup, Dialect, FenceSeed, ModelAgent, Profile, ScriptedModel};
//! use portcullis::system::OsEntropy;
//!
//! # fn parts() -> Result<portcullis::engine::Parts, Box<dyn std::error::Error>> {
//! #     use portcullis::audit::keys::Keyring;
//! #     use portcullis::engine::{Parts, Timing, Tools};
//! #     use portcullis::domain::ports::Clock as _;
//! #     use portcullis::store::memory::MemoryStore;
//! #     use portcullis::system::{SystemClock, TokioSpawn};
//! #     use portcullis_testkit::ports::FixedProcesses;
//! #     let clock = Arc::new(SystemClock::new());
//! #     Ok(Parts {
//! #         store: Arc::new(MemoryStore::new(clock.now(), &OsEntropy)),
//! #         clock, entropy: Arc::new(OsEntropy),
//! #         spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), 4)),
//! #         processes: Arc::new(FixedProcesses::new(1)),
//! #         keys: Arc::new(Keyring::default()),
//! #         policy: Arc::new(portcullis::policy::ClassTable::default()),
//! #         tools: Arc::new(Tools::register(Vec::new())?),
//! #         reconcile: None, timing: Timing::default(),
//! #         conversation: None,
//! #     })
//! # }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let done = ModelReply {
//!     stop: Stop::EndTurn,
//!     text: "There is nothing to tidy.".to_owned(),
//!     uses: Vec::new(),
//!     verbatim: None,
//!     usage: None,
//!     raw: Arc::from([]),
//! };
//! let model = ScriptedModel::new(ModelName::read("script:one")?, [ModelOutcome::Reply(done)]);
//! let agent = ModelAgent::driven(AgentSetup {
//!     dialect: Dialect::OpenAi,
//!     model: "one".to_owned(),
//!     profile: Profile::LATEST,
//!     seed: FenceSeed::draw(&OsEntropy),
//!     system: None,
//!     max_output_tokens: 1_000,
//!     strict_tools: false,
//!     extra: Object::new(),
//!     read_only: BTreeSet::new(),
//!     watch: None,
//! });
//! let task = Task {
//!     goal: "tidy up".to_owned(),
//!     owner: "ann".to_owned(),
//!     thread: None,
//!     parent: None,
//!     limits: Limits { max_model_calls: Some(5), ..Limits::default() },
//!     agent: "model:script:one".to_owned(),
//!     unconfined_agent: false,
//! };
//! let held = Gate::new(parts()?).begin(&Scope::of_file_owner(), task).await?;
//! let engaged = Engaged::new(Arc::new(model));
//! let mut driving = Driving::start_with(held, Box::new(agent), Some(engaged)).await?;
//! assert_eq!(driving.finished().await?, Driven::Ended(EndReason::GoalCompleted));
//! # Ok(())
//! # }
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
//! # runtime.block_on(example()).unwrap();
//! ```
//!
//! It knows nothing of the command, of configuration files or of a terminal.

#![forbid(unsafe_code)]

pub mod system;

/// The examples of the guide compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/adding.md")]
struct Adding;

pub use portcullis_agents as agents;
pub use portcullis_audit as audit;
pub use portcullis_canon as canon;
pub use portcullis_domain as domain;
pub use portcullis_egress as egress;
pub use portcullis_engine as engine;
pub use portcullis_models as models;
pub use portcullis_policy as policy;
pub use portcullis_sandbox as sandbox;
pub use portcullis_store as store;
pub use portcullis_tools as tools;
