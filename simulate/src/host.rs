//! A host that can look outside: the hook that the gate asks when a tool declares nothing that says what became of a call.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::event::Body;
use portcullis_domain::id::StepId;
use portcullis_domain::ports::{BoxFuture, Clock as _, ToolOutput};
use portcullis_domain::question::Card;
use portcullis_domain::recovery::Found;
use portcullis_engine::{Reconcile, Reconciled};

use crate::executor::Pid;
use crate::log::What;
use crate::oracle::rule;
use crate::tools::{DEADLINE_MS, happened};
use crate::world::World;

/// The hook of one process.
pub(crate) struct Host {
    pub(crate) world: Arc<World>,
    pub(crate) pid: Pid,
}

/// What it does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Says what the world shows.
    Look,
    Unsure,
    Conflict,
    /// Panics before it has a future, or in it.
    Panic {
        at_once: bool,
    },
    Never,
    /// Looks, but is long about it, and perhaps longer than it may.
    Dawdle,
}

impl Host {
    fn drawn(&self) -> Does {
        let rate = self.world.mood().tool;
        self.world.draw(|draw| {
            if !draw.chance(rate.saturating_mul(2)) {
                return Does::Look;
            }
            let at_once = draw.chance(500);
            let kinds = [
                (4, Does::Look),
                (3, Does::Unsure),
                (1, Does::Conflict),
                (2, Does::Panic { at_once }),
                (2, Does::Never),
                (2, Does::Dawdle),
            ];
            draw.weighted(&kinds).unwrap_or(Does::Look)
        })
    }

    /// The step whose call is asked about, by what this process recorded, whoever holds the run meanwhile: a card names
    /// none. Nothing where several calls of the tool are.
    fn asked_about(&self, tool: &str) -> Option<StepId> {
        let mut tools: BTreeMap<StepId, String> = BTreeMap::new();
        let mut open: BTreeSet<StepId> = BTreeSet::new();
        self.world.with_log(|log| {
            for entry in log {
                let What::Committed { events, .. } = &entry.what else { continue };
                for event in events {
                    let Some(step) = event.link.step else { continue };
                    match &event.body {
                        Body::StepJudged(body) => {
                            tools.insert(step, body.admitted.tool.clone());
                        }
                        Body::ProbeStarted(body)
                            if body.call.is_none() && entry.pid == self.pid =>
                        {
                            open.insert(step);
                        }
                        Body::ProbeFinished(_) | Body::StepFinished(_) if entry.pid == self.pid => {
                            open.remove(&step);
                        }
                        _ => {}
                    }
                }
            }
        });
        open.retain(|step| tools.get(step).is_some_and(|known| known == tool));
        if open.is_empty() {
            self.world.broke(rule::INTENT, format!("the host is asked about {tool} unrecorded"));
        }
        let mut steps = open.into_iter();
        steps.next().filter(|_| steps.next().is_none())
    }

    fn says(&self, step: StepId, found: Found) {
        self.world.log(What::Told { step, found });
        if self.world.chance(self.world.mood().crash.saturating_mul(6)) {
            self.world.note("the process is going to die before anything else");
            self.world.doom(self.pid, true);
        }
    }

    /// What the world shows now.
    fn look(&self, tool: &str) -> Reconciled {
        let Some(step) = self.asked_about(tool) else { return Reconciled::Unknown };
        if happened(&self.world, step) {
            self.says(step, Found::Happened);
            let content = br#"{"ok":true}"#.to_vec();
            return Reconciled::Happened(ToolOutput { content, labels: None });
        }
        self.says(step, Found::DidNotHappen);
        Reconciled::DidNotHappen
    }
}

impl Reconcile for Host {
    fn reconcile(&self, card: &Card) -> BoxFuture<'_, Reconciled> {
        let (does, tool) = (self.drawn(), card.tool.clone());
        if does == (Does::Panic { at_once: true }) {
            self.world.count("host panicked");
            // Without the hook that would print each of them.
            std::panic::resume_unwind(Box::new("as planned"));
        }
        Box::pin(async move {
            match does {
                Does::Look | Does::Panic { at_once: true } => {}
                Does::Unsure => return Reconciled::Unknown,
                Does::Conflict => {
                    let Some(step) = self.asked_about(&tool) else { return Reconciled::Unknown };
                    self.says(step, Found::Conflict);
                    return Reconciled::Conflict;
                }
                Does::Panic { at_once: false } => {
                    self.world.count("host panicked");
                    std::panic::resume_unwind(Box::new("as planned"))
                }
                Does::Never => {
                    self.world.count("host never answered");
                    return pending().await;
                }
                Does::Dawdle => {
                    let ms = self.world.draw(|draw| draw.between(500, 2 * DEADLINE_MS));
                    self.world.clock.sleep(Duration::from_millis(ms)).await;
                }
            }
            self.look(&tool)
        })
    }
}
