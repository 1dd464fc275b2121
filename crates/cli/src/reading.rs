//! What the commands that only look have in hand.

use std::sync::Arc;
use std::time::Duration;

use portcullis::system::SystemClock;
use portcullis_audit::keys::Keyring;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Clock, MAX_PAGE, Page, Processes};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;
use portcullis_sandbox::identity::LinuxProcesses;

use crate::args::Globals;
use crate::assemble::{self, Database};
use crate::config;
use crate::failure::Failure;
use crate::launch::{self, Launch};

/// An existing database, opened to read.
pub(crate) struct Reading {
    pub(crate) db: Arc<dyn Database>,
    pub(crate) scope: Scope,
    clock: SystemClock,
    /// Absent where this process cannot say who it is; then nobody is proven dead.
    processes: Option<LinuxProcesses>,
    globals: Globals,
}

impl Reading {
    pub(crate) fn open(globals: &Globals) -> Result<Self, Failure> {
        Ok(Self {
            db: assemble::reader(globals)?,
            scope: Scope::of_file_owner(),
            clock: SystemClock::new(),
            processes: LinuxProcesses::new().ok(),
            globals: globals.clone(),
        })
    }

    pub(crate) fn db(&self) -> &dyn Database {
        self.db.as_ref()
    }

    /// The time by which questions are judged.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whose keys count for a run: those of the configuration that was named, or that it was begun with, as for `approve`.
    /// Nothing where that cannot be read.
    pub(crate) fn keys_of(&self, run: RunId) -> Option<Keyring> {
        let globals = &self.globals;
        let launch = Launch::recall(&globals.place.launches(), run).ok().flatten();
        let config = launch::configuration(globals, launch.as_ref()).ok()?;
        assemble::ring(&config, &globals.place).ok()
    }

    /// How long before an end people are reminded of it, by the usual configuration or the one that was named.
    pub(crate) fn remind_before(&self) -> Option<Duration> {
        // A list is shown also where the configuration cannot be used; other commands say so.
        config::load(&self.globals).unwrap_or_default().remind_before
    }

    /// Where a run stands: its status, or `interrupted` when it should be driven and nobody does.
    pub(crate) async fn standing(&self, run: &Run) -> Result<&'static str, Failure> {
        if run.status != RunStatus::Running {
            return Ok(run.status.as_str());
        }
        Ok(match self.driver(run).await? {
            Driver::Process { .. } => run.status.as_str(),
            Driver::Nobody { .. } => "interrupted",
        })
    }

    /// Who drives a run.
    pub(crate) async fn driver(&self, run: &Run) -> Result<Driver, Failure> {
        let Some(holder) = &run.holder else { return Ok(Driver::Nobody { since: None }) };
        if self.processes.as_ref().is_some_and(|known| known.is_dead(&holder.process)) {
            return Ok(Driver::Nobody { since: None });
        }
        let term = self.db.lease(&self.scope, run.id).await?;
        let term = term.filter(|term| term.epoch == run.epoch);
        Ok(match term {
            Some(term) if term.until >= self.clock.now() => {
                Driver::Process { process: holder.process.pid, until: term.until }
            }
            term => Driver::Nobody { since: term.map(|term| term.until) },
        })
    }
}

/// Who drives a run, by its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A process whose lease runs, by its number where it runs.
    Process { process: u32, until: Timestamp },
    /// Nobody; the last lease ended then, where it ended by its term.
    Nobody { since: Option<Timestamp> },
}

/// Which part of a list is shown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// Rows to show at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAGE)))]
    pub(crate) limit: u32,
    /// Rows to skip
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

impl PageArgs {
    pub(crate) const fn page(self) -> Page {
        Page { offset: self.offset, limit: self.limit }
    }

    /// True when the list goes on after these rows.
    pub(crate) fn truncates(self, rows: usize, total: u64) -> bool {
        self.offset.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX)) < total
    }

    /// What is said under a list that goes on.
    pub(crate) fn more(self, rows: usize, total: u64) -> Option<String> {
        let next = self.offset.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
        self.truncates(rows, total)
            .then(|| format!("{rows} of {total} shown; more with `--offset {next}`"))
    }
}
