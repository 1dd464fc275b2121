//! Everything that implements the tool source port: the files beneath one folder, and HTTP to named places.
//!
//! ```
//! use portcullis_domain::{ports::ToolSource, tool::EffectClass};
//! use portcullis_tools::Files;
//!
//! let folder = tempfile::tempdir()?;
//! let governed = folder.path().join("governed");
//! let state = folder.path().join("state");
//! std::fs::create_dir(&governed)?;
//! std::fs::create_dir(&state)?;
//!
//! let files = Files::open(&governed, std::slice::from_ref(&state))?;
//! let delete = files.specs().into_iter().find(|spec| spec.name == "files.delete").unwrap();
//! assert_eq!(delete.effect, EffectClass::Destructive);
//!
//! // A folder that holds the state of the gate is never handed to an agent.
//! assert!(Files::open(folder.path(), &[state]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate knows nothing of policies, stores, runs or agents: a call arrives with a permit, happens or does not,
//! and says which.
//!
//! In reading order: [`files`], whose verbs stand one in a file; [`http`], whose rules come first.

#![forbid(unsafe_code)]

mod arguments;
mod encoding;
mod schema;

pub mod files;
pub mod host;
pub mod http;

pub use files::{Files, FilesError};
pub use host::HostTools;
pub use http::{Http, HttpFault, HttpPlace, HttpRules};
