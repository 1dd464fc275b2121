//! One model at one provider: a dialect over a transport. One attempt is one exchange.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, Value, parse, sanitize};
use portcullis_domain::ports::{
    BoxFuture, Disposition, Model, ModelCall, ModelFailure, ModelFault, ModelName, ModelOutcome,
    ModelReply, Price,
};

use crate::dialect::Dialect;
use crate::reply::{error_in, failure};
use crate::transport::{Answer, Exchange, MAX_REPLY_BYTES, Pieces, Transport, TransportFailure};

/// A provider that asks to wait for longer than this is not waited for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// The most bytes of an error's body that are looked at.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// One model as the operator configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfig {
    /// How the operator names it.
    pub name: ModelName,
    /// What the provider speaks.
    pub dialect: Dialect,
    /// Where it is, without the dialect's path.
    pub base: String,
    /// The credential by name, where one is needed.
    pub credential: Option<String>,
    /// The confidentiality tags that the provider may see: none unless the operator says so.
    pub marked_for: BTreeSet<String>,
    /// What it costs.
    pub price: Price,
}

/// A base that no request can be built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a provider's base is an http or https address without user, query or fragment, such as `https://host/v1`"
)]
pub struct BaseError;

/// A [`Model`] over the network.
pub struct Provider {
    config: ProviderConfig,
    url: String,
    transport: Arc<dyn Transport>,
}

impl Provider {
    /// A model at a provider.
    ///
    /// # Errors
    /// [`BaseError`].
    pub fn new(config: ProviderConfig, transport: Arc<dyn Transport>) -> Result<Self, BaseError> {
        let base = config.base.trim_end_matches('/');
        let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
        let rest =
            rest.filter(|rest| !rest.is_empty() && !rest.starts_with('/')).ok_or(BaseError)?;
        if rest.contains(['@', '?', '#', '\\']) || !rest.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BaseError);
        }
        let url = format!("{base}{}", config.dialect.path());
        Ok(Self { config, url, transport })
    }

    /// What the provider speaks.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.config.dialect
    }

    async fn exchange(&self, call: &ModelCall) -> Result<ModelReply, ModelFailure> {
        admit(call, &self.config.marked_for)?;
        let dialect = self.config.dialect;
        let exchange = Exchange {
            url: self.url.clone(),
            headers: dialect.headers(),
            key: self.config.credential.as_deref().map(|credential| dialect.key(credential)),
            body: dialect.travelling(&call.body, call.watch.is_some()),
        };
        let answer =
            self.transport.exchange(exchange).await.map_err(|lost| from_transport(&lost))?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(answer).await);
        }
        let mut body = answer.body;
        if call.watch.is_none() {
            let raw = whole(body.as_mut(), MAX_REPLY_BYTES).await?;
            return dialect.read(&raw);
        }
        let mut assembler = dialect.assembler();
        while let Some(piece) = next(body.as_mut()).await? {
            assembler.push(&piece, call.watch.as_ref())?;
        }
        assembler.finish()
    }
}

/// A call whose labels carry a tag that the provider is not marked for is not made.
fn admit(call: &ModelCall, marked_for: &BTreeSet<String>) -> Result<(), ModelFailure> {
    if call.labels.tags().is_subset(marked_for) {
        return Ok(());
    }
    let message = "what the run has read carries a label that this provider is not marked for";
    Err(failure(ModelFault::NotMarked, message, None))
}

fn from_transport(lost: &TransportFailure) -> ModelFailure {
    failure(lost.model_fault(), &lost.message, None)
}

/// The next piece. An answer came, so something was sent, whatever the transport believes.
async fn next(body: &mut dyn Pieces) -> Result<Option<Vec<u8>>, ModelFailure> {
    body.next().await.map_err(|lost| from_transport(&TransportFailure { sent: true, ..lost }))
}

async fn whole(body: &mut dyn Pieces, most: usize) -> Result<Vec<u8>, ModelFailure> {
    let mut raw = Vec::new();
    while let Some(piece) = next(body).await? {
        raw.extend_from_slice(&piece);
        if raw.len() > most {
            let message = "the reply is larger than a reply may be";
            return Err(failure(ModelFault::TooLarge, message, None));
        }
    }
    Ok(raw)
}

/// An answer without a good status. Its body is looked at for a sentence, and decides nothing.
async fn refused(mut answer: Answer) -> ModelFailure {
    let status = answer.status;
    let mut fault = fault_of(status);
    let asked = answer.retry_after.filter(|_| fault.disposition() == Disposition::Retry);
    if asked.is_some_and(|wait| wait > MAX_RETRY_AFTER) {
        fault = ModelFault::ThrottledTooLong;
    }
    let words = match fault {
        // What is wrong with a key is never quoted: it may be the key. Elsewhere is never looked at.
        ModelFault::KeyRefused | ModelFault::Redirected => None,
        _ => said(answer.body.as_mut()).await,
    };
    let message = match words {
        Some(words) => format!("the provider answered {status}: {words}"),
        None => format!("the provider answered {status}"),
    };
    let retry_after = asked.filter(|wait| *wait <= MAX_RETRY_AFTER);
    ModelFailure { retry_after, ..failure(fault, &message, None) }
}

const fn fault_of(status: u16) -> ModelFault {
    match status {
        300..=399 => ModelFault::Redirected,
        401 | 403 | 407 => ModelFault::KeyRefused,
        402 => ModelFault::OutOfCredit,
        404 => ModelFault::UnknownModel,
        408 | 409 | 425 => ModelFault::ServerError,
        429 => ModelFault::Throttled,
        503 | 529 => ModelFault::Overloaded,
        // A proxy got no usable answer in time, or none at all, from whoever had the request: it may have been served.
        504 | 524 | 598 | 599 => ModelFault::TimedOut,
        502 | 520 => ModelFault::ConnectionLost,
        500..=599 => ModelFault::ServerError,
        _ => ModelFault::RequestRefused,
    }
}

/// The provider's sentence, where its body is an error in JSON.
async fn said(body: &mut dyn Pieces) -> Option<String> {
    let raw = whole(body, MAX_ERROR_BYTES).await.ok()?;
    let Ok(Value::Object(object)) = parse(&raw, &Limits::BARE) else { return None };
    error_in(&object).map(|words| sanitize::clip(&words, 300))
}

impl Model for Provider {
    fn name(&self) -> &ModelName {
        &self.config.name
    }

    fn price(&self) -> Price {
        self.config.price
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        &self.config.marked_for
    }

    fn attempt(&self, call: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        Box::pin(async move {
            match self.exchange(&call).await {
                Ok(reply) => ModelOutcome::Reply(reply),
                Err(failure) => ModelOutcome::Failed(failure),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use portcullis_domain::ports::Charge;

    use super::*;

    struct Nowhere;

    impl Transport for Nowhere {
        fn exchange(&self, _: Exchange) -> BoxFuture<'_, Result<Answer, TransportFailure>> {
            panic!("nothing is sent here")
        }
    }

    #[track_caller]
    fn check(base: &str, expected: Option<&str>) {
        let config = ProviderConfig {
            name: ModelName::read("a:b").expect("a name"),
            dialect: Dialect::OpenAi,
            base: base.to_owned(),
            credential: None,
            marked_for: BTreeSet::new(),
            price: Price::Unpriced,
        };
        let url = Provider::new(config, Arc::new(Nowhere)).ok().map(|provider| provider.url);
        assert_eq!(url.as_deref(), expected, "{base}");
    }

    #[test]
    fn a_base_is_a_plain_address() {
        check("https://h/v1", Some("https://h/v1/chat/completions"));
        check("http://127.0.0.1:8080/", Some("http://127.0.0.1:8080/chat/completions"));
        for wrong in [
            "ftp://h",
            "h",
            "https://",
            "https:///x",
            "https://u:p@h",
            "https://h?x",
            "https://h#x",
            "https://h h",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn every_status_has_a_fault() {
        for status in 0..=999 {
            let fault = fault_of(status);
            let retried = matches!(status, 408 | 409 | 425 | 429 | 500..=599);
            assert_eq!(fault.disposition() == Disposition::Retry, retried, "{status}");
        }
    }

    #[test]
    fn what_a_proxy_gave_up_waiting_for_may_have_been_served() {
        for status in 0..=999 {
            let ambiguous = matches!(status, 502 | 504 | 520 | 524 | 598 | 599);
            let charged = if ambiguous { Charge::Projection } else { Charge::Nothing };
            assert_eq!(fault_of(status).charge(), charged, "{status}");
        }
    }
}
