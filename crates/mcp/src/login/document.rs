//! One document of metadata: a short piece of JSON that is there, or is not.

use std::time::Duration;

use portcullis_canon::{Limits, from_slice};
use portcullis_egress::{Deadlines, Egress, Method, Request, Target};
use serde::de::DeserializeOwned;

use super::error::LoginError;

/// The longest document, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The deadlines of each request of a login.
pub(super) const fn short() -> Deadlines {
    Deadlines { header: PATIENCE, idle: PATIENCE, total: PATIENCE }
}

/// Reads one. Nothing at a status from 400 to 499, by which servers say that there is none in more ways than one; whatever else
/// is not a document is an error.
pub(super) async fn fetch<T: DeserializeOwned>(
    egress: &Egress,
    at: Target,
    what: &'static str,
) -> Result<Option<T>, LoginError> {
    let request = Request::new(Method::Get, at).deadlines(short()).max_body(MAX_BYTES);
    let request = request.header("accept", "application/json");
    let request = request.map_err(|_| LoginError::Odd(what, "it cannot be asked for"))?;
    let answer = egress.send(request).await;
    let answer = answer.map_err(|error| LoginError::Unread(what, Box::new(error)))?;
    match answer.status {
        200 => match from_slice(&answer.body, &Limits::BARE) {
            Ok(document) => Ok(Some(document)),
            Err(_) => Err(LoginError::Odd(what, "it is no such document")),
        },
        400..=499 => Ok(None),
        _ => Err(LoginError::Odd(what, "the status of its answer is none of a document")),
    }
}
