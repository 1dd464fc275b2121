//! A policy that fails, panics, dawdles, asks nobody or changes its mind, when a test says so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_domain::ports::{Policy, PolicyFailure, ProposedCall};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::verdict::{Facts, OnRejection, PolicyId, Reviewers, Verdict};

use crate::ports::ManualClock;

/// How a policy behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// As the policy behind it does.
    Well,
    /// It cannot answer.
    Fails,
    /// It panics.
    Panics,
    /// It takes so long, on the clock that it was given, and then answers as the policy behind it does.
    Dawdles(Duration),
    /// It asks no people of a role without a name.
    AsksNobody,
    /// It allows what it is asked first, and denies everything after that.
    Wavers,
}

/// A policy that behaves as a test says, and keeps what it was asked.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_domain::ports::Policy;
/// use portcullis_policy::ClassTable;
/// use portcullis_testkit::doubles::{Conduct, UnrulyPolicy};
/// use portcullis_testkit::ports::ManualClock;
///
/// let policy = UnrulyPolicy::new(Arc::new(ClassTable::default()), ManualClock::default());
/// policy.behave(Conduct::Panics);
/// assert_eq!(policy.id(), ClassTable::default().id(), "it says that it is the one behind it");
/// assert!(policy.asked().is_empty());
/// ```
pub struct UnrulyPolicy {
    inner: Mutex<Arc<dyn Policy>>,
    conduct: Mutex<Conduct>,
    clock: ManualClock,
    asked: Mutex<Vec<(String, Vec<u8>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnrulyPolicy {
    /// Behaves well at first, as `inner` does.
    pub fn new(inner: Arc<dyn Policy>, clock: ManualClock) -> Self {
        let conduct = Mutex::new(Conduct::Well);
        Self { inner: Mutex::new(inner), conduct, clock, asked: Mutex::default() }
    }

    /// Behaves like this from now on.
    pub fn behave(&self, conduct: Conduct) {
        *lock(&self.conduct) = conduct;
    }

    /// Another policy stands behind it from now on.
    pub fn exchange(&self, inner: Arc<dyn Policy>) {
        *lock(&self.inner) = inner;
    }

    /// What it was asked so far: the tools, and the canonical bytes of the arguments.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, Vec<u8>)> {
        lock(&self.asked).clone()
    }
}

impl Policy for UnrulyPolicy {
    fn id(&self) -> PolicyId {
        lock(&self.inner).id()
    }

    #[expect(clippy::panic, reason = "what a test asked for")]
    fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
        let first = {
            let mut asked = lock(&self.asked);
            asked.push((call.tool.name.clone(), call.arguments.to_canonical()));
            asked.len() == 1
        };
        let (conduct, rules) = (*lock(&self.conduct), Vec::new());
        match conduct {
            Conduct::Well => {}
            Conduct::Fails => return Err(PolicyFailure(Refusal::PolicyFailed)),
            Conduct::Panics => panic!("as planned"),
            Conduct::Dawdles(time) => self.clock.advance(time),
            Conduct::AsksNobody => {
                return Ok(Verdict::Ask {
                    reason: Refusal::ClassDenied,
                    rules,
                    reviewers: Reviewers { role: String::new(), count: 0 },
                    on_rejection: OnRejection::Observe,
                });
            }
            Conduct::Wavers if first => return Ok(Verdict::Allow { rules }),
            Conduct::Wavers => return Ok(Verdict::Deny { reason: Refusal::ClassDenied, rules }),
        }
        let inner = Arc::clone(&*lock(&self.inner));
        inner.decide(call, facts)
    }
}
