//! The door for hosts that speak HTTP: a listener on this machine, which lets in whoever has the token.
//!
//! What a host says is read by `portcullis_mcp`; here is who may say anything, and how much of it at once.

mod connection;
mod front;
mod token;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::ports::Entropy;
use portcullis_mcp::{HttpDoor, HttpTerms, Served};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use connection::{Door, attend};
use front::Front;
pub use front::PATH;
pub use token::{Token, TokenError};

/// How long it is waited where the system has no connection to give.
const NO_CONNECTION: Duration = Duration::from_millis(100);

/// Who is let in beside those whose names are the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Origins of pages that may send requests, as a browser writes them. None where nothing is said.
    pub origins: Vec<String>,
    /// The name by which hosts know what ends TLS in front of this address. Only with it may the address be one that other
    /// machines reach.
    pub behind_tls: Option<String>,
}

/// How much there is at once, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once. Others wait until one ends.
    pub connections: usize,
    /// How long the head of a request may take, and how long a connection may be silent between two.
    pub head: Duration,
    /// How long the body of a request may take, and how long it may wait for room.
    pub body: Duration,
    /// How long a host may take nothing of what is written to it.
    pub stalled: Duration,
    /// Bytes of messages in memory at once. A message waits until there is room for it.
    pub message_bytes: usize,
    /// How long the last answers may take when all calls have ended.
    pub leaving: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 128,
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            stalled: Duration::from_secs(30),
            message_bytes: 32 * 1024 * 1024,
            leaving: Duration::from_secs(2),
        }
    }
}

/// Why nobody can be let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Other machines would reach it, in the clear.
    #[error(
        "{0} is reached from other machines, and nothing here ends TLS; listen on 127.0.0.1, or name what ends TLS in front of it"
    )]
    NotLoopback(SocketAddr),
    /// What was said to end TLS is no name of a host.
    #[error("`{0}` is no name of a host, such as `gate.example` or `gate.example:8443`")]
    Public(String),
    /// It is no origin.
    #[error("`{0}` is no origin, such as `https://app.example`")]
    Origin(String),
    /// The system does not give the address.
    #[error("it is not possible to listen on {0}: {1}")]
    Bind(SocketAddr, io::ErrorKind),
}

/// An address at which requests are waited for.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    front: Front,
    token: Token,
    bounds: Bounds,
}

impl Listener {
    /// Whether hosts could be let in there on these terms. Nothing is opened.
    ///
    /// # Errors
    /// [`ListenError`], but for the one of the system.
    pub fn check(address: SocketAddr, terms: &Terms) -> Result<(), ListenError> {
        front::names(address, terms).map(drop)
    }

    /// Takes the address; port 0 takes one that is free. Nobody is let in yet.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn bind(
        address: SocketAddr,
        token: Token,
        terms: &Terms,
        bounds: Bounds,
    ) -> Result<Self, ListenError> {
        Self::check(address, terms)?;
        let fault = |error: io::Error| ListenError::Bind(address, error.kind());
        let socket = TcpListener::bind(address).await.map_err(fault)?;
        let address = socket.local_addr().map_err(fault)?;
        let front = Front::new(address, token.clone(), terms)?;
        Ok(Self { socket, address, front, token, bounds })
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets hosts in until `stop` resolves. Then no further request is taken, and answers are written until `finished` has
    /// resolved and a moment has passed.
    pub async fn serve(
        self,
        served: Arc<dyn Served>,
        entropy: Arc<dyn Entropy>,
        stop: impl Future<Output = ()> + Send,
        finished: impl Future<Output = ()> + Send,
    ) {
        let terms = HttpTerms {
            sessions: self.token.for_sessions(),
            unnamed: self.token.conversation(),
            entropy,
        };
        let places = Arc::new(Semaphore::new(self.bounds.connections));
        let leaving = self.bounds.leaving;
        let door = Arc::new(Door {
            front: self.front,
            http: HttpDoor::new(served, terms),
            room: Arc::new(Semaphore::new(self.bounds.message_bytes)),
            bounds: self.bounds,
        });
        let (leave, _) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let next = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, self.socket.accept().await)
            };
            let (place, accepted) = tokio::select! {
                next = next => next,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let attended = attend(stream, Arc::clone(&door), leave.subscribe());
                    connections.spawn(async move {
                        attended.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(kind = %error.kind(), "no connection could be taken");
                    sleep(NO_CONNECTION).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
        drop(self.socket);
        leave.send_replace(true);
        tokio::select! {
            () = async { while connections.join_next().await.is_some() {} } => {}
            () = async { finished.await; sleep(leaving).await } => {}
        }
        // Whatever is still open then is cut off with the set.
    }
}
