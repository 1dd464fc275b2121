//! Streams on which a server tells that its tools changed, kept open: what was told while one was down is lost, so each
//! gap counts as a change.

use std::time::Duration;

use portcullis_egress::Incoming;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::super::ledger::Fault;
use super::super::line;
use super::super::sort::Over;
use super::events::{Events, Item};
use super::head::Message;
use super::post::End;
use super::site::{Site, media};

/// The first wait before a stream is opened again; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// A stream that lasted so long is good: the next one is opened after the first wait again.
const GOOD: Duration = Duration::from_secs(10);

/// How often in a row a stream may fail before nobody believes any more that changes are told.
const MAX_FAILED: u32 = 5;

/// How long the session waits for the stream to stand before it goes on without.
const STANDS_WAIT: Duration = Duration::from_secs(1);

/// A subscription: its number, and the message that asks for it.
type Asked<'a> = (i64, &'a [u8], &'a Message);

impl Site {
    /// Follows the stream that a server with a handshake may offer, and says when it stands, so that nothing is listed
    /// before. A server that says that it offers none is left alone; whatever else comes instead of the stream is a gap.
    pub(super) async fn follow(&self, written: Option<oneshot::Sender<()>>) {
        let (ready, stands) = oneshot::channel();
        let announce = async {
            let _in_time = timeout(STANDS_WAIT, stands).await;
            let _ = written.map(|written| written.send(()));
        };
        let ((), followed) = tokio::join!(announce, self.keep(None, Some(ready)));
        if let Err(End::Over(fault)) = followed {
            self.ledger.fail(fault);
        }
    }

    /// Follows the subscription of a stateless server. An error before it brought anything is the request's own.
    pub(super) async fn subscribe(
        &self,
        id: i64,
        line: &[u8],
        message: &Message,
    ) -> Result<(), End> {
        self.keep(Some((id, line, message)), None).await
    }

    /// Keeps one stream open until it is answered, which ends it, or cannot be kept.
    async fn keep(
        &self,
        asked: Option<Asked<'_>>,
        mut ready: Option<oneshot::Sender<()>>,
    ) -> Result<(), End> {
        let (mut heard, mut failed) = (false, 0);
        loop {
            let (begun, mut stood) = (Instant::now(), false);
            let end = match self.once(asked, ready.take(), heard, &mut stood).await {
                Ok(true) => return Ok(()),
                Ok(false) => End::Unknown("the stream of notices ended".to_owned()),
                Err(end) => end,
            };
            heard |= stood;
            let is_answer = asked.is_some() && !heard;
            if is_answer || matches!(end, End::Over(_)) {
                return Err(end);
            }
            tracing::debug!("an MCP server tells of no changes for a while: {end:?}");
            self.ledger.changed();
            failed = if stood && begun.elapsed() >= GOOD { 0 } else { failed + 1 };
            if failed >= MAX_FAILED {
                return Err(Fault::Unsubscribed.into());
            }
            tokio::time::sleep(PAUSE * 2_u32.pow(failed)).await;
        }
    }

    /// One stream, from its request to its end. True when what asked for it was answered, or there is none to be had.
    async fn once(
        &self,
        asked: Option<Asked<'_>>,
        ready: Option<oneshot::Sender<()>>,
        heard: bool,
        stood: &mut bool,
    ) -> Result<bool, End> {
        let request = match asked {
            Some((_, line, message)) => self.post(line, message),
            None => self.get(None),
        };
        let request = request.map_err(|fault| End::Unsent(fault.to_string()))?;
        let incoming = self.egress.open(request).await.map_err(|error| self.failed(error))?;
        match (incoming.status, media(&incoming).as_str()) {
            (200, "text/event-stream") => {
                let waited_for = ready.is_some_and(|ready| ready.send(()).is_ok());
                if heard || (asked.is_none() && !waited_for) {
                    // Whatever was told before it stood was told to nobody.
                    self.ledger.changed();
                }
                *stood |= asked.is_none();
                self.notice(incoming, asked.map(|(id, ..)| id), stood).await
            }
            (404, _) if self.has_session() => Err(Fault::Ended.into()),
            (404 | 405, _) if asked.is_none() && !heard => Ok(true),
            _ => Err(End::Refused(self.refused(&incoming))),
        }
    }

    /// Hears one stream to its end, or to the answer.
    async fn notice(
        &self,
        mut incoming: Incoming,
        id: Option<i64>,
        stood: &mut bool,
    ) -> Result<bool, End> {
        let over = id.map_or(Over::Notices, Over::Request);
        let broken = |fault: Fault| End::Unknown(fault.to_string());
        let mut events = Events::default();
        while let Some(piece) = incoming.piece().await? {
            events.push(&piece).map_err(|_| broken(Fault::LongLine))?;
            while let Some(item) = events.next() {
                match item {
                    Item::Nothing(bytes) => self.sorter.unasked(bytes)?,
                    Item::Message(data) => {
                        let line = line::read(&data).map_err(broken)?;
                        *stood = true;
                        if self.sorter.sort(line, data.len(), over).await? {
                            return Ok(true);
                        }
                    }
                }
            }
        }
        Ok(false)
    }
}
