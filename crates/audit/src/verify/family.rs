//! Runs that runs start: both ends of each link, from the events of both streams.

use portcullis_domain::child;
use portcullis_domain::event::{Body, RunCreated};
use portcullis_domain::id::RunId;
use portcullis_domain::run::{EndReason, Run};
use portcullis_domain::stream::{Stream, StreamKind};

use super::report::Break;
use super::{PAGE, Stop, Walk};

/// What the stream of a run says that the other end of a link has to fit.
struct Kin {
    created: RunCreated,
    tenant: String,
    /// It names the run in question as one of its calls.
    names: bool,
    ended: bool,
}

impl Walk<'_> {
    /// A run that a call starts is the one that the call names, with no more than its parent has. Of one that a host started by
    /// itself nothing is known but that it has a parent.
    pub(super) fn check_parent(&mut self, run: &Run) -> Result<(), Stop> {
        let Some(parent) = run.parent.filter(|_| child::is_derived(run.id)) else { return Ok(()) };
        let above = self.kin(parent, run.id)?;
        let fits = above.is_some_and(|above| {
            let given = Run {
                tools: above.created.tools.clone(),
                limits: above.created.limits.clone(),
                unconfined_agent: above.created.unconfined_agent,
                ..run.clone()
            };
            above.names
                && above.tenant == run.tenant.as_str()
                && above.created.root == run.root
                && above.created.owner == run.owner
                && above.created.thread == run.thread
                && child::is_within(&given, &run.tools, &run.limits, run.unconfined_agent)
                && (above.ended || run.reason != Some(EndReason::ParentEnded))
        });
        if fits { Ok(()) } else { self.apart(run.id, parent) }
    }

    /// The run that a call names is there as its child, or was never begun: then the call is not done.
    pub(super) fn check_child(&mut self, run: &Run, child: RunId, done: bool) -> Result<(), Stop> {
        let fits = match self.kin(child, run.id)? {
            Some(below) => below.created.parent == Some(run.id) && (!done || below.ended),
            None => !done,
        };
        if fits { Ok(()) } else { self.apart(child, run.id) }
    }

    fn apart(&mut self, child: RunId, parent: RunId) -> Result<(), Stop> {
        self.broken(Break::FamilyMismatch { child, parent })
    }

    /// What the stream of a run says; nothing when there is none that begins as one. What is wrong with its events is found
    /// where they are walked.
    fn kin(&mut self, run: RunId, other: RunId) -> Result<Option<Kin>, Stop> {
        let stream = Stream { kind: StreamKind::Run, id: *run.as_bytes() };
        let (mut kin, mut after) = (None::<Kin>, 0);
        loop {
            let page = self.reader.read(|ledger| ledger.stream_after(stream, after, PAGE))?;
            let Some(last) = page.last().map(|event| event.stream_seq) else { return Ok(kin) };
            for event in &page {
                let wanted =
                    matches!(event.kind.as_str(), "run.created" | "run.finished" | "child.awaited");
                let version = u32::try_from(event.version).unwrap_or(0);
                let body = wanted.then(|| Body::read(&event.kind, version, &event.payload).ok());
                match (body.flatten(), &mut kin) {
                    (Some(Body::RunCreated(created)), None) => {
                        let tenant = event.tenant.clone();
                        kin = Some(Kin { created, tenant, names: false, ended: false });
                    }
                    (Some(Body::RunFinished(_)), Some(kin)) => kin.ended = true,
                    (Some(Body::ChildAwaited(body)), Some(kin)) => kin.names |= body.child == other,
                    _ => {}
                }
            }
            if last <= after {
                return Ok(kin);
            }
            after = last;
        }
    }
}
