//! The door for hosts over HTTP: its token, its address, and what is told of both.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use portcullis::system::OsEntropy;
use portcullis_mcp::Served;
use portcullis_server::http::{Bounds, ListenError, Listener, PATH};
use portcullis_server::proxy::Proxy;

use super::Teller;
use crate::args::Globals;
use crate::config::ProxyChoice;
use crate::failure::{Code, Failure};
use crate::token;

/// An address that is taken, at which nobody is let in yet.
pub(super) struct Door {
    listener: Listener,
    token_file: PathBuf,
    /// The token was made just now.
    is_new: bool,
}

impl Door {
    /// Takes the address, and reads or makes the token.
    pub(super) async fn open(
        address: SocketAddr,
        choice: &ProxyChoice,
        globals: &Globals,
    ) -> Result<Self, Failure> {
        Listener::check(address, &choice.terms).map_err(|error| unlistened(&error))?;
        let token_file = choice.token_file.clone().unwrap_or_else(|| globals.place.token());
        let (token, is_new) = token::open_or_make(&token_file)?;
        let listener = Listener::bind(address, token, &choice.terms, Bounds::default()).await;
        let listener = listener.map_err(|error| unlistened(&error))?;
        Ok(Self { listener, token_file, is_new })
    }

    /// Lets hosts in until `stop` resolves, and waits for the calls that are on their way.
    pub(super) async fn serve(
        self,
        proxy: &Arc<Proxy>,
        stop: impl Future<Output = ()> + Send,
        teller: &Teller,
    ) -> Result<(), Failure> {
        let url = format!("http://{}{PATH}", self.listener.address());
        let file = self.token_file.display().to_string();
        let made = if self.is_new { "a new token is" } else { "the token is" };
        let tools = proxy.tools().len();
        let note = format!("serving {tools} tools to MCP hosts at {url}; {made} in {file}");
        teller.say_with(&note, None, &[("token_file", file.as_str()), ("url", url.as_str())]);
        let served = Arc::clone(proxy) as Arc<dyn Served>;
        self.listener.serve(served, Arc::new(OsEntropy), stop, proxy.finished()).await;
        // A call whose host is gone is driven to its end.
        proxy.close();
        proxy.finished().await;
        Ok(())
    }
}

fn unlistened(error: &ListenError) -> Failure {
    let hint = match error {
        ListenError::NotLoopback(_) => {
            "put a reverse proxy with TLS in front, and name it as `behind_tls` in [proxy]"
        }
        ListenError::Public(_) => "correct `behind_tls` in [proxy]",
        ListenError::Origin(_) => "correct `origins` in [proxy]",
        ListenError::Bind(..) => "take another port, or 0 for a free one",
    };
    Failure::new(Code::Listen, error.to_string()).hint(hint)
}
