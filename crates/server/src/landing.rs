//! Where a browser comes back to after a login: an address of this machine that takes one answer, and then is gone.
//!
//! Every page that a browser shows can send a request here, so what does not fit is turned away and waited past.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The path of the answer.
const PATH: &str = "/callback";

/// The port of HTTP.
const HTTP_PORT: u16 = 80;

/// The most connections at once. Others wait.
const MAX_CONNECTIONS: usize = 16;

/// How long the head of a request may take, and the most bytes and headers of it.
const HEAD_WAIT: Duration = Duration::from_secs(10);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// How long the last page may take to be written.
const LAST_PAGE: Duration = Duration::from_secs(2);

/// How long it is waited where the system has no connection to give.
const NO_CONNECTION: Duration = Duration::from_millis(100);

const TAKEN: &str =
    "Portcullis has the answer. Close this page; the command says what came of it.\n";
const OTHER: &str = "This is no answer to the login that Portcullis waits for.\n";

/// A query that came, and where it is told whether it was the answer.
type Came = (String, oneshot::Sender<bool>);

/// An address of this machine that waits for one answer.
pub struct Landing {
    socket: TcpListener,
    address: SocketAddr,
}

impl Landing {
    /// Takes a port of 127.0.0.1; port 0 takes one that is free. Nothing is answered yet.
    ///
    /// # Errors
    /// When the system does not give it.
    pub async fn bind(port: u16) -> io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// The address that an answer is sent to.
    #[must_use]
    pub fn redirect(&self) -> String {
        redirect(self.address)
    }

    /// The address that an answer would be sent to, at which nobody waits: the port is only named. Port 0 names one that was
    /// free.
    ///
    /// # Errors
    /// When the system has no free one.
    pub async fn unattended(port: u16) -> io::Result<String> {
        if port == 0 {
            return Ok(Self::bind(port).await?.redirect());
        }
        Ok(redirect((Ipv4Addr::LOCALHOST, port).into()))
    }

    /// Waits for an answer: the query of a request from which `judge` makes something. There may be none for ever.
    pub async fn answer<T>(self, judge: impl Fn(&str) -> Option<T>) -> T {
        let address = self.address;
        let (came, mut coming) = mpsc::channel::<Came>(MAX_CONNECTIONS);
        let door = Arc::new(Door { address, came });
        let mut open = JoinSet::new();
        let taken = loop {
            tokio::select! {
                Some((query, told)) = coming.recv() => {
                    let taken = judge(&query);
                    // Whoever asked may be gone.
                    let _ = told.send(taken.is_some());
                    if let Some(taken) = taken {
                        break taken;
                    }
                }
                Some(_) = open.join_next(), if !open.is_empty() => {}
                accepted = self.socket.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => drop(open.spawn(attend(stream, Arc::clone(&door)))),
                    Err(_) => sleep(NO_CONNECTION).await,
                },
            }
        };
        drop(self.socket);
        let _ = timeout(LAST_PAGE, async { while open.join_next().await.is_some() {} }).await;
        taken
    }
}

fn redirect(address: SocketAddr) -> String {
    format!("http://{address}{PATH}")
}

/// Whether a request's `Host` is this address. A browser leaves out the port that is HTTP's own.
fn names(host: &[u8], address: SocketAddr) -> bool {
    let bare = address.ip().to_string();
    host == address.to_string().as_bytes()
        || (address.port() == HTTP_PORT && host == bare.as_bytes())
}

struct Door {
    address: SocketAddr,
    came: mpsc::Sender<Came>,
}

/// One request.
async fn attend(stream: TcpStream, door: Arc<Door>) {
    let service = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok::<_, Infallible>(door.answer(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // How it ended is the browser's to know.
    let _ = connection.await;
}

impl Door {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let host = request.headers().get(HOST);
        let of_ours = host.is_some_and(|host| names(host.as_bytes(), self.address));
        if request.method() != Method::GET || request.uri().path() != PATH || !of_ours {
            return page(StatusCode::NOT_FOUND, OTHER);
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (told, taken) = oneshot::channel();
        if self.came.send((query, told)).await.is_err() {
            return page(StatusCode::NOT_FOUND, OTHER);
        }
        match taken.await {
            Ok(true) => page(StatusCode::OK, TAKEN),
            Ok(false) | Err(_) => page(StatusCode::BAD_REQUEST, OTHER),
        }
    }
}

/// A page that loads nothing, is kept nowhere, and tells nobody the address that it stands at.
fn page(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *page.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        page.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    page
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn asks(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(address: SocketAddr, target: &str, host: &str) -> String {
        asks(address, &format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
    }

    #[test]
    fn a_browser_says_no_port_where_it_is_that_of_http() {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        for (host, port, expected) in [
            ("127.0.0.1:4711", 4711, true),
            ("127.0.0.1", 4711, false),
            ("127.0.0.1", 80, true),
            ("127.0.0.1:80", 80, true),
            ("127.0.0.1:4711", 80, false),
            ("localhost", 80, false),
            ("evil.example", 80, false),
            ("", 80, false),
        ] {
            assert_eq!(names(host.as_bytes(), at(port)), expected, "{host} {port}");
        }
    }

    #[tokio::test]
    async fn an_address_at_which_nobody_waits_takes_no_port() {
        let taken = Landing::bind(0).await.unwrap();
        let port = taken.address.port();
        assert_eq!(Landing::unattended(port).await.unwrap(), taken.redirect());
        let named = Landing::unattended(0).await.unwrap();
        let rest = named.strip_prefix("http://127.0.0.1:").and_then(|r| r.strip_suffix(PATH));
        assert_ne!(rest.unwrap().parse::<u16>().unwrap(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_one_answer_is_taken_and_everything_else_is_waited_past() {
        let landing = Landing::bind(0).await.unwrap();
        let (address, own) = (landing.address, landing.address.to_string());
        assert_eq!(landing.redirect(), format!("http://{own}/callback"));
        let asking = tokio::task::spawn_blocking(move || {
            // One that says nothing holds nobody up.
            let silent = std::net::TcpStream::connect(address).unwrap();
            let mut answers = vec![
                get(address, "/", &own),
                get(address, "/callback/x?code=good", &own),
                get(address, "/callback?code=good", "evil.example"),
                asks(
                    address,
                    &format!(
                        "POST /callback?code=good HTTP/1.1\r\nhost: {own}\r\ncontent-length: 0\r\n\r\n"
                    ),
                ),
                get(address, "/callback?code=bad", &own),
                get(address, "/callback", &own),
            ];
            answers.push(get(address, "/callback?code=good", &own));
            drop(silent);
            answers
        });
        let judge = |query: &str| (query == "code=good").then(|| query.to_owned());
        assert_eq!(landing.answer(judge).await, "code=good");
        let answers = asking.await.unwrap();
        let statuses: Vec<_> = answers.iter().map(|answer| answer.get(9..12).unwrap()).collect();
        assert_eq!(statuses, ["404", "404", "404", "404", "400", "400", "200"]);
        assert!(
            answers.iter().all(|answer| answer.contains("no-store") && !answer.contains("good"))
        );
        assert!(std::net::TcpStream::connect(address).is_err(), "it is gone");
    }
}
