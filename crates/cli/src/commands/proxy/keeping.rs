//! Keeping heads while hosts are served: a proxy may run for weeks and be killed, and what is kept bounds what can be cut off unseen.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::event::Event;
use portcullis_domain::ports::Observer;
use tokio::sync::Notify;

use super::Teller;
use crate::assemble::Database;
use crate::failure::{Code, Failure};
use crate::heads::Heads;

/// How long after a commit the head is kept at the latest, beside the time that it takes. The head is synced, as commits are: one
/// for each call would make calls wait for the disk.
const EVERY: Duration = Duration::from_secs(5);

/// Remembers that something was committed since it was last asked.
#[derive(Debug, Default)]
pub(super) struct Commits(Notify);

impl Observer for Commits {
    fn committed(&self, _: &[Event]) {
        self.0.notify_one();
    }
}

/// The heads of the database that is served.
pub(super) struct Keeper {
    heads: Arc<Heads>,
    database: Arc<dyn Database>,
}

impl Keeper {
    pub(super) fn new(heads: Heads, database: Arc<dyn Database>) -> Self {
        Self { heads: Arc::new(heads), database }
    }

    /// Keeps the head, beside the calls.
    pub(super) async fn keep(&self) -> Result<(), Failure> {
        let (heads, database) = (Arc::clone(&self.heads), Arc::clone(&self.database));
        let kept = tokio::task::spawn_blocking(move || heads.keep(database.as_ref())).await;
        kept.unwrap_or_else(|_| Err(Failure::new(Code::Io, "the head could not be kept")))
    }

    /// Keeps the head after commits, until it is dropped. One that cannot be kept is told and tried again with the next commit.
    pub(super) async fn follow(&self, commits: &Commits, teller: &Teller) -> Infallible {
        loop {
            commits.0.notified().await;
            tokio::time::sleep(EVERY).await;
            if let Err(failure) = self.keep().await {
                teller.say(&format!("where the record ends could not be kept: {failure}"), None);
            }
        }
    }
}
