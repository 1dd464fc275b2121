//! Whose keys `verify` judges answers with: those of the configuration that was named; else those of the usual one and
//! of each that the runs of this database were begun with.

use std::collections::BTreeSet;
use std::path::PathBuf;

use portcullis_audit::keys::{KeyEntry, Keyring};
use portcullis_domain::approval::KeyId;
use portcullis_domain::ports::Ledger;
use portcullis_domain::row::{Cell, Row as _};
use portcullis_domain::run::Run;

use crate::args::Globals;
use crate::assemble;
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::launch::{self, Launch};

/// One place where reviewers are named.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// A configuration, the folder of keys, or the memory of how a run was started.
    pub(crate) from: PathBuf,
    /// How many keys it names, or why it is not used.
    pub(crate) keys: Result<usize, String>,
}

/// Sets of keys, each of which judges alone, and where they come from.
#[derive(Debug, Default)]
pub(crate) struct Judges {
    /// The sets that name anybody.
    pub(crate) rings: Vec<Keyring>,
    /// Every place that was looked at.
    pub(crate) sources: Vec<Source>,
}

impl Judges {
    /// Those of the record behind this ledger.
    ///
    /// The configuration that was named, or the usual one, has to be usable; a remembered one is left out when it is
    /// not, and the sources say so.
    pub(crate) fn of(globals: &Globals, ledger: &mut dyn Ledger) -> Result<Self, Failure> {
        let mut judges = Self::default();
        let usual = config::load(globals)?;
        judges.add(&usual, globals)?;
        if globals.config_path.is_some() {
            return Ok(judges);
        }
        for path in judges.remembered(globals, ledger)? {
            let added = config::read(&path).and_then(|config| judges.add(&config, globals));
            if let Err(failure) = added {
                judges.leave_out(path, &failure);
            }
        }
        judges.revoke_everywhere()?;
        Ok(judges)
    }

    fn add(&mut self, config: &Config, globals: &Globals) -> Result<(), Failure> {
        let named = config.path.clone().filter(|_| !config.reviewers.is_empty());
        let from = named.unwrap_or_else(|| globals.place.keys.clone());
        if self.sources.iter().any(|source| source.from == from) {
            return Ok(());
        }
        let ring = assemble::ring(config, &globals.place)?;
        let keys = ring.entries().count();
        self.sources.push(Source { from, keys: Ok(keys) });
        if keys > 0 {
            self.rings.push(ring);
        }
        Ok(())
    }

    fn leave_out(&mut self, from: PathBuf, failure: &Failure) {
        self.sources.push(Source { from, keys: Err(failure.sentence()) });
    }

    /// The configurations that runs of this record were begun with. One state folder may serve several databases.
    fn remembered(
        &mut self,
        globals: &Globals,
        ledger: &mut dyn Ledger,
    ) -> Result<BTreeSet<PathBuf>, Failure> {
        let folder = globals.place.launches();
        let mut configs = BTreeSet::new();
        for run in launch::runs(&folder)? {
            let row = ledger.row(Run::TABLE, &[Cell::Blob(run.as_bytes().to_vec())]);
            if matches!(row, Ok(None)) {
                continue;
            }
            match Launch::recall(&folder, run) {
                Ok(launch) => configs.extend(launch.and_then(|launch| launch.config)),
                Err(failure) => self.leave_out(launch::file(&folder, run), &failure),
            }
        }
        Ok(configs)
    }

    /// A key that one of them revokes counts in none: who forgot to revoke it elsewhere did not mean to keep it.
    fn revoke_everywhere(&mut self) -> Result<(), Failure> {
        let entries = self.rings.iter().flat_map(Keyring::entries);
        let revoked: BTreeSet<KeyId> =
            entries.filter(|(_, entry)| entry.revoked).map(|(id, _)| *id).collect();
        for ring in &mut self.rings {
            let entries = ring.entries().map(|(id, entry)| KeyEntry {
                revoked: entry.revoked || revoked.contains(id),
                ..entry.clone()
            });
            *ring = Keyring::new(entries.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
