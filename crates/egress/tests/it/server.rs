//! Servers on plain sockets that answer with scripted bytes, and count what reaches them.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_domain::ports::BoxFuture;
use portcullis_egress::{
    Credentials, Deadlines, Egress, EgressError, EgressRules, Method, Names, Request, Response,
    Target, Unresolved,
};
use portcullis_testkit::ports::ManualClock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// One connection, encrypted or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

type Act = dyn Fn(Seen, Box<dyn Wire>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A server, its port, and what came.
pub(crate) struct Server {
    pub(crate) at: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Answers each request on a connection of its own by writing the same bytes and closing.
    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Vec<u8> = bytes.into();
        Self::acting(move |_, mut wire| {
            let bytes = bytes.clone();
            async move {
                let _ = wire.write_all(&bytes).await;
                let _ = wire.shutdown().await;
            }
        })
        .await
    }

    /// Answers with status 200 and a body of JSON.
    pub(crate) async fn json(body: &str) -> Self {
        Self::answering(ok("application/json", body)).await
    }

    /// Does with each request, read whole, what `act` does.
    pub(crate) async fn acting<F, D>(act: F) -> Self
    where
        F: Fn(Seen, Box<dyn Wire>) -> D + Send + Sync + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        Self::start("127.0.0.1", None, Arc::new(move |seen, wire| Box::pin(act(seen, wire)))).await
    }

    /// As [`Server::answering`], at another address of this machine, on the port of another server.
    pub(crate) async fn beside(
        other: SocketAddr,
        address: &str,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        let bytes: Vec<u8> = bytes.into();
        let act = move |_, mut wire: Box<dyn Wire>| {
            let bytes = bytes.clone();
            Box::pin(async move {
                let _ = wire.write_all(&bytes).await;
                let _ = wire.shutdown().await;
            }) as Pin<Box<dyn Future<Output = ()> + Send>>
        };
        Self::start(&format!("{address}:{}", other.port()), None, Arc::new(act)).await
    }

    /// As [`Server::answering`], behind TLS.
    pub(crate) async fn encrypted(config: ServerConfig, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Vec<u8> = bytes.into();
        let act = move |_, mut wire: Box<dyn Wire>| {
            let bytes = bytes.clone();
            Box::pin(async move {
                let _ = wire.write_all(&bytes).await;
                let _ = wire.shutdown().await;
            }) as Pin<Box<dyn Future<Output = ()> + Send>>
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::start("127.0.0.1", Some(acceptor), Arc::new(act)).await
    }

    async fn start(address: &str, tls: Option<TlsAcceptor>, act: Arc<Act>) -> Self {
        let address =
            if address.contains(':') { address.to_owned() } else { format!("{address}:0") };
        let listener = TcpListener::bind(&address).await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counted, noted) = (Arc::clone(&connections), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, act, noted) = (tls.clone(), Arc::clone(&act), Arc::clone(&noted));
                tokio::spawn(async move {
                    let mut wire: Box<dyn Wire> = match tls {
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                        None => Box::new(stream),
                    };
                    let Ok(request) = read_request(&mut wire).await else { return };
                    noted.lock().expect("not poisoned").push(request.clone());
                    act(request, wire).await;
                });
            }
        });
        Self { at, connections, seen, task }
    }

    pub(crate) fn url(&self, tail: &str) -> String {
        format!("http://{}{tail}", self.at)
    }

    /// How many connections were made to it, whatever came over them.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_request(wire: &mut Box<dyn Wire>) -> io::Result<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if wire.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let body = bytes.split_off(end);
    let mut seen = Seen { head: String::from_utf8_lossy(&bytes).into_owned(), body };
    let length = seen.header("content-length").map_or(0, |text| text.parse().expect("a length"));
    while seen.body.len() < length {
        if wire.read_buf(&mut seen.body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(seen)
}

/// A whole answer with status 200.
pub(crate) fn ok(media: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Names by a list of answers, one a question; the last one stays. Counts the questions.
pub(crate) struct Scripted {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    pub(crate) asked: AtomicUsize,
}

impl Scripted {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |text: &&str| text.parse().expect("an address");
        let answers = answers.iter().rev().map(|one| one.iter().map(parse).collect()).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicUsize::new(0) })
    }
}

impl Names for Scripted {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Unresolved>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().expect("not poisoned");
        let answer = if answers.len() > 1 { answers.pop() } else { answers.first().cloned() };
        Box::pin(std::future::ready(answer.ok_or(Unresolved)))
    }
}

/// Deadlines that a test can wait for. The whole is long, so that a part is what passes.
pub(crate) fn short() -> Deadlines {
    let part = Duration::from_millis(300);
    Deadlines { header: part, idle: part, total: Duration::from_secs(30) }
}

/// A client that reaches this machine, without credentials.
pub(crate) fn local() -> Egress {
    client(EgressRules::closed().loopback(), Credentials::none())
}

pub(crate) fn client(rules: EgressRules, credentials: Credentials) -> Egress {
    Egress::new(rules, credentials, Arc::new(ManualClock::default())).expect("a client")
}

pub(crate) fn named(rules: EgressRules, credentials: Credentials, names: Arc<Scripted>) -> Egress {
    Egress::with_names(rules, credentials, Arc::new(ManualClock::default()), names)
        .expect("a client")
}

pub(crate) fn get(url: &str) -> Request {
    Request::new(Method::Get, Target::parse(url).expect(url))
}

/// What becomes of a request to a server that answers with these bytes.
pub(crate) async fn fetch(bytes: impl Into<Vec<u8>>) -> Result<Response, EgressError> {
    let server = Server::answering(bytes).await;
    let answer = local().send(get(&server.url("/"))).await;
    assert_eq!(server.seen().len(), 1, "the request arrived once");
    answer
}
