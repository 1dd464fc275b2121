//! Where `rmcp` meets what carries a session: it queues what it wants to say, and gets what was asked for.

use std::future::Future;
use std::sync::Arc;

use portcullis_canon::to_vec;
use portcullis_domain::standing::Standing;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions as _, GetMeta as _, JsonRpcMessage,
    ProgressToken, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::sync::{mpsc, oneshot};

use super::ledger::{Ledger, What};

/// A line to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) line: Vec<u8>,
    /// The number of a request, which is entered in the ledger.
    pub(super) id: Option<i64>,
    /// Told once it was written; nothing when it was not.
    pub(super) written: Option<oneshot::Sender<()>>,
}

/// Messages that wait to be sent, and answers that wait to be looked at.
pub(super) const QUEUE: usize = 64;

/// A message did not go out.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the message was not written")]
pub(super) struct NotWritten;

/// One end of what carries a session.
pub(super) struct Wire {
    pub(super) ledger: Arc<Ledger>,
    pub(super) outgoing: mpsc::Sender<Outgoing>,
    pub(super) incoming: mpsc::Receiver<ServerJsonRpcMessage>,
}

/// The number of a request, which `rmcp` counts.
pub(super) fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(_) => None,
    }
}

fn what(request: &ClientRequest) -> What {
    match request {
        ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_) => What::Handshake,
        ClientRequest::SubscriptionsListenRequest(_) => What::Listen,
        _ => What::Kept,
    }
}

impl Wire {
    /// Enters a message in the ledger and makes its line.
    fn prepare(
        &self,
        message: &ClientJsonRpcMessage,
    ) -> Result<(Vec<u8>, Option<i64>), NotWritten> {
        let mut line = to_vec(message).map_err(|_| NotWritten)?;
        line.push(b'\n');
        let JsonRpcMessage::Request(request) = message else { return Ok((line, None)) };
        let id = number(&request.id).ok_or(NotWritten)?;
        let standing = match (request.request.extensions().get::<Standing>(), &request.request) {
            (Some(standing), _) => standing.clone(),
            // A call without it is not one of ours.
            (None, ClientRequest::CallToolRequest(_)) => return Err(NotWritten),
            (None, _) => Standing::always(),
        };
        if !self.ledger.ask(id, what(&request.request), standing) {
            return Err(NotWritten);
        }
        if let Some(ProgressToken(RequestId::Number(token))) =
            request.request.get_meta().get_progress_token()
        {
            self.ledger.mark(id, token);
        }
        Ok((line, Some(id)))
    }
}

impl Transport<RoleClient> for Wire {
    type Error = NotWritten;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), NotWritten>> + Send + 'static {
        let (prepared, outgoing) = (self.prepare(&message), self.outgoing.clone());
        async move {
            let (line, id) = prepared?;
            let (written, wait) = oneshot::channel();
            let outgoing_line = Outgoing { line, id, written: Some(written) };
            outgoing.send(outgoing_line).await.map_err(|_| NotWritten)?;
            wait.await.map_err(|_| NotWritten)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        tokio::select! {
            biased;
            message = self.incoming.recv() => message,
            () = self.ledger.over() => None,
        }
    }

    async fn close(&mut self) -> Result<(), NotWritten> {
        Ok(())
    }
}
