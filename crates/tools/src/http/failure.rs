//! Which failures prove that nothing happened, and how they are said.

use portcullis_canon::sanitize;
use portcullis_domain::ports::ToolFailure;
use portcullis_egress::{EgressError, Sent};

use super::rules::HttpPlace;
use crate::arguments::refused;

/// The longest message, in bytes: a host may have 253.
const MAX_MESSAGE: usize = 600;

/// A request that only reads: whatever went wrong, nothing was changed.
pub(super) fn of_read(error: &EgressError) -> ToolFailure {
    refused(said(error))
}

/// A request that changes something. Only what was never sent did not happen: what was answered with a redirect, or
/// with a body that cannot be read, may have been carried out first.
pub(super) fn of_send(error: &EgressError) -> ToolFailure {
    let message = said(error);
    match error.sent {
        Sent::Nothing => ToolFailure::NothingHappened { message },
        Sent::Perhaps | Sent::Answered => ToolFailure::Unknown { message },
    }
}

/// Whether an answer with this status leaves open whether a change was made: the server gave up on it, or a gateway
/// before it did.
pub(super) const fn leaves_open(status: u16) -> bool {
    status == 408 || status >= 500
}

/// What is said of such an answer.
pub(super) fn open(place: &HttpPlace, status: u16) -> ToolFailure {
    let host = place.host();
    let message = format!("`{host}` answered {status}, which leaves open whether it acted");
    ToolFailure::Unknown { message }
}

/// One sentence. The client's own names hosts and limits and nothing else.
fn said(error: &EgressError) -> String {
    let text = error.to_string();
    sanitize::clip(&sanitize::line(&text), MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_egress::{Fault, Phase};

    #[track_caller]
    fn check(fault: Fault, sent: Sent, nothing: bool) {
        let error = EgressError { fault, sent };
        let message = error.to_string();
        let expected = if nothing {
            ToolFailure::NothingHappened { message: message.clone() }
        } else {
            ToolFailure::Unknown { message: message.clone() }
        };
        assert_eq!(of_send(&error), expected);
        assert_eq!(of_read(&error), ToolFailure::NothingHappened { message });
    }

    #[test]
    fn only_what_was_never_sent_did_not_happen() {
        let host = || "a.example".to_owned();
        check(Fault::Connect { host: host() }, Sent::Nothing, true);
        check(Fault::Deadline { host: host(), phase: Phase::Connect }, Sent::Nothing, true);
        check(Fault::Deadline { host: host(), phase: Phase::Header }, Sent::Perhaps, false);
        check(Fault::Lost { host: host() }, Sent::Perhaps, false);
        check(Fault::Redirect { host: host(), status: 303 }, Sent::Answered, false);
        check(Fault::Cut { host: host() }, Sent::Answered, false);
    }

    #[test]
    fn what_a_server_or_a_gateway_gave_up_on_is_open() {
        for open in [408, 500, 502, 503, 504, 524, 599] {
            assert!(leaves_open(open), "{open}");
        }
        for told in [200, 204, 400, 401, 404, 409, 422, 425, 429, 499] {
            assert!(!leaves_open(told), "{told}");
        }
    }
}
