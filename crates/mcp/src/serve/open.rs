//! Calls of sessions over HTTP that are waited for: a host gives one up by a message of its own, on another connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use portcullis_canon::Value;
use tokio::sync::Notify;

/// The session, and the canonical text of the request's number.
type Key = (String, String);

/// Which calls are waited for. Each is forgotten when nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls(Arc<Mutex<BTreeMap<Key, Weak<OpenCall>>>>);

/// A call that is waited for, as long as this is held.
#[derive(Debug)]
pub(super) struct OpenCall {
    key: Key,
    all: OpenCalls,
    given_up: Notify,
}

impl OpenCalls {
    /// Begins to wait. Of two with one number the later one is heard.
    pub(super) fn begin(&self, session: &str, id: &Value) -> Arc<OpenCall> {
        let key = (session.to_owned(), id.to_canonical_string());
        let call = OpenCall { key: key.clone(), all: self.clone(), given_up: Notify::new() };
        let call = Arc::new(call);
        self.lock().insert(key, Arc::downgrade(&call));
        call
    }

    /// The host does not wait for it any more.
    pub(super) fn give_up(&self, session: &str, id: &Value) {
        let key = (session.to_owned(), id.to_canonical_string());
        let call = self.lock().get(&key).and_then(Weak::upgrade);
        if let Some(call) = call {
            // Kept where nobody listens yet.
            call.given_up.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Weak<OpenCall>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCall {
    /// Resolves once the host has given it up.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // A later call may have taken the number.
        if all.get(&self.key).is_some_and(|call| call.strong_count() == 0) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_call_is_given_up_by_its_session_and_number_alone() {
        let open = OpenCalls::default();
        let call = open.begin("a", &Value::from(1_i64));
        for (session, id) in
            [("b", Value::from(1_i64)), ("a", Value::from("1")), ("a", Value::from(2_i64))]
        {
            open.give_up(session, &id);
        }
        assert_eq!(call.given_up().now_or_never(), None, "nobody gave it up");
        open.give_up("a", &Value::from(1_i64));
        assert_eq!(call.given_up().now_or_never(), Some(()));
        drop(call);
        assert!(open.lock().is_empty());
    }

    #[test]
    fn a_number_that_is_used_again_stays_until_its_last_call_ends() {
        let open = OpenCalls::default();
        let first = open.begin("a", &Value::from(1_i64));
        let second = open.begin("a", &Value::from(1_i64));
        drop(first);
        assert_eq!(open.lock().len(), 1);
        drop(second);
        assert!(open.lock().is_empty());
    }
}
