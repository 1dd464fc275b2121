//! What the writer is asked to do: judged first, then written, and remembered once it is committed.

use portcullis_domain::event::Event;
use portcullis_domain::id::RunId;
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::{Append, Durability, LeaseTerm, Reminder, StoreError};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::Tip;
use portcullis_domain::time::Timestamp;
use rusqlite::Connection;

use super::lookup;
use super::write::{Desk, Memory, write, write_reminder, write_term};
use crate::admit::{Admitted, Base as _, Chain, Prepared, admit};
use crate::memory::{can_remind, renewed};

/// A lease that is to be prolonged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    pub(super) run: RunId,
    pub(super) epoch: Epoch,
    pub(super) now: Timestamp,
    pub(super) until: Timestamp,
}

/// What the writer is asked to do.
pub(super) enum Task {
    Append(Tenant, Prepared),
    Renew(Tenant, Renewal),
    Remind(Tenant, Reminder),
}

/// A task that was judged, and what it stores.
pub(super) enum Ready {
    Append(Tenant, Box<Admitted>),
    Term(RunId, LeaseTerm),
    Reminder(Reminder),
}

/// Why a task is not stored.
pub(super) enum Undone {
    /// It was refused before it wrote anything.
    Refused(StoreError),
    /// It failed while it was being written. What it wrote is to be taken back.
    InPart(StoreError),
}

impl Undone {
    pub(super) const fn error(&self) -> &StoreError {
        match self {
            Self::Refused(error) | Self::InPart(error) => error,
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Refused(error) | Self::InPart(error) => error,
        }
    }
}

impl Task {
    /// An append, as its caller hands it over.
    pub(super) fn append(tenant: Tenant, append: Append) -> Result<Self, StoreError> {
        Ok(Self::Append(tenant, Prepared::of(append)?))
    }

    /// About how many bytes it holds.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Append(_, prepared) => {
                let append = &prepared.append;
                let contents = append.contents.iter().map(|content| content.bytes().len());
                let specs = append.specs.iter().map(Vec::len);
                contents.chain(specs).fold(prepared.payload_bytes(), usize::saturating_add)
            }
            Self::Renew(..) | Self::Remind(..) => 0,
        }
    }

    pub(super) const fn is_synced(&self) -> bool {
        match self {
            Self::Append(_, prepared) => matches!(prepared.append.durability, Durability::Synced),
            // A term is soft state: one that is lost ends the lease early.
            Self::Renew(..) => false,
            // One that is lost reminds people twice.
            Self::Remind(..) => true,
        }
    }

    /// Judges and writes it.
    pub(super) fn serve(self, mut desk: Desk<'_>, chain: &Chain) -> Result<Ready, Undone> {
        let ready = self.judge(&mut desk, chain).map_err(Undone::Refused)?;
        ready.write(desk.conn).map_err(Undone::InPart)?;
        Ok(ready)
    }

    /// Judges it. What it changes is forgotten, and not remembered anew before it is committed.
    fn judge(self, desk: &mut Desk<'_>, chain: &Chain) -> Result<Ready, StoreError> {
        match self {
            Self::Append(tenant, prepared) => {
                let admitted = admit(desk, chain, &tenant, prepared)?;
                desk.memory.forget(&admitted);
                Ok(Ready::Append(tenant, Box::new(admitted)))
            }
            Self::Renew(tenant, Renewal { run, epoch, now, until }) => {
                let held = desk.run(run)?.filter(|held| held.run.tenant == tenant);
                let term = desk.lease(run)?;
                let term = renewed(held.as_ref(), term, epoch, now, until)?;
                desk.memory.forget_term(run);
                if let Some(held) = held {
                    desk.memory.keep_run(held);
                }
                Ok(Ready::Term(run, term))
            }
            Self::Remind(tenant, reminder) => {
                let asked = lookup::own_question(desk.conn, &tenant, reminder.question)?;
                let before = lookup::is_reminded(desk.conn, reminder)?;
                can_remind(asked.as_ref(), before, reminder)?;
                Ok(Ready::Reminder(reminder))
            }
        }
    }
}

impl Ready {
    /// Writes it into the open transaction.
    pub(super) fn write(&self, conn: &Connection) -> Result<(), StoreError> {
        match self {
            Self::Append(tenant, admitted) => write(conn, tenant, admitted),
            Self::Term(run, term) => write_term(conn, *run, *term),
            Self::Reminder(reminder) => write_reminder(conn, *reminder),
        }
    }

    /// Where the journal ends after it, if it adds to the journal.
    pub(super) fn tip(&self) -> Option<Tip> {
        match self {
            Self::Append(_, admitted) => Some(admitted.tip),
            Self::Term(..) | Self::Reminder(_) => None,
        }
    }

    /// Remembers what was committed, in the order of the batch; the events that were stored.
    pub(super) fn keep(self, memory: &mut Memory) -> Vec<Event> {
        match self {
            Self::Append(_, mut admitted) => {
                let events = std::mem::take(&mut admitted.events);
                memory.keep(*admitted);
                events
            }
            Self::Term(run, term) => {
                memory.keep_term(run, Some(term));
                Vec::new()
            }
            Self::Reminder(_) => Vec::new(),
        }
    }
}
