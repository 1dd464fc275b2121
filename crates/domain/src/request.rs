//! Requests of a host: the same call, made again and again, is the same request, and its runs have ids that follow from it.
//!
//! So whoever looks finds what became of a request without a list of its own, and of several processes that begin the
//! same run at once only one does.
//!
//! ```
//! use portcullis_canon::Object;
//! use portcullis_domain::request::Request;
//! use portcullis_domain::thread::conversation;
//!
//! let thread = conversation("ann", "mcp", "editor");
//! let first = Request::new("pay", &Object::new(), None);
//! assert_eq!(first.run(thread, 0), Request::new("pay", &Object::new(), None).run(thread, 0));
//! assert_ne!(first.run(thread, 0), first.run(thread, 1));
//! ```

use portcullis_canon::{Digest, Kind, Object};
use uuid::Version;

use crate::id::{RunId, ThreadId, following};

/// A call as a host asks for it: its tool, its canonical arguments, and the word that tells a deliberate repeat from a
/// blind one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(Digest);

impl Request {
    /// The request for this call. Without a word for it, each call with the same tool and arguments is the same one.
    #[must_use]
    pub fn new(tool: &str, arguments: &Object, repeat: Option<&str>) -> Self {
        let arguments = arguments.to_canonical();
        let whole = [tool.as_bytes(), arguments.as_slice()];
        let parts: Vec<&[u8]> = whole.into_iter().chain(repeat.map(str::as_bytes)).collect();
        Self(Digest::of_parts(Kind::Request, &parts))
    }

    /// The run of this request with this number, from zero, in a thread: a UUID of version 5, which neither a run that is
    /// drawn has nor one that a call starts.
    #[must_use]
    pub fn run(self, thread: ThreadId, number: u64) -> RunId {
        let number = number.to_be_bytes();
        let parts: [&[u8]; 3] = [thread.as_bytes(), self.0.as_bytes(), &number];
        RunId::from_bytes(following(Digest::of_parts(Kind::RequestRun, &parts), Version::Sha1))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_canon::{Limits, Value, parse};

    use super::*;
    use crate::child;
    use crate::thread::conversation;

    fn arguments(text: &str) -> Object {
        let Value::Object(object) = parse(text.as_bytes(), &Limits::BARE).unwrap() else {
            panic!("{text}")
        };
        object
    }

    #[test]
    fn spelling_does_not_matter_and_contents_do() {
        let request = |text: &str, repeat| Request::new("pay", &arguments(text), repeat);
        let one = request(r#"{"to":"ann","sum":10}"#, None);
        assert_eq!(one, request(r#"{ "sum": 1e1, "to": "\u0061nn" }"#, None));
        assert_ne!(one, request(r#"{"to":"ann","sum":11}"#, None));
        assert_ne!(one, request(r#"{"to":"ann","sum":10}"#, Some("2")));
        assert_ne!(one, request(r#"{"to":"ann","sum":10}"#, Some("")));
        assert_ne!(one, Request::new("refund", &arguments(r#"{"to":"ann","sum":10}"#), None));
    }

    #[test]
    fn each_number_in_each_thread_is_a_run_of_its_own() {
        let request = Request::new("pay", &Object::new(), None);
        let (ann, ben) =
            (conversation("ann", "mcp", "editor"), conversation("ben", "mcp", "editor"));
        assert_ne!(ann, ben);
        let ids =
            [(ann, 0), (ann, 1), (ben, 0)].map(|(thread, number)| request.run(thread, number));
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
        assert!(!ids.iter().any(|id| child::is_derived(*id)), "a child's id is nobody else's");
        // The text of a stored id: it never changes.
        assert_eq!(request.run(ann, 0).to_string().as_bytes().get(16), Some(&b'5'));
    }
}
