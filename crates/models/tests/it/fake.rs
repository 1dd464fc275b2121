//! A provider on loopback that answers each connection with what the test says, and remembers what it was sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// What the server does with one connection, after the whole request was read.
pub(crate) type Act = Box<dyn FnOnce(&mut TcpStream) + Send>;

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Fake {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Serves one connection for each act, and no other.
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        let thread = thread::spawn(move || {
            for act in acts {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read_request(&mut stream);
                kept.lock().unwrap().push(request);
                act(&mut stream);
            }
        });
        Self { address, received, thread: Some(thread) }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What came, once every act was done.
    pub(crate) fn finish(mut self) -> Vec<Received> {
        self.thread.take().unwrap().join().unwrap();
        self.received.lock().unwrap().clone()
    }
}

fn read_request(stream: &mut TcpStream) -> Received {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..count]);
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length: usize = header(&head, "content-length").unwrap().parse().unwrap();
            let mut body = bytes[end + 4..].to_vec();
            while body.len() < length {
                let count = stream.read(&mut piece).unwrap();
                body.extend_from_slice(&piece[..count]);
            }
            return Received { head, body };
        }
    }
}

pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.rfind(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_owned())
}

/// A whole answer.
pub(crate) fn answer(status: &str, headers: &str, body: impl Into<Vec<u8>>) -> Act {
    let body = body.into();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    Box::new(move |stream| {
        // A client that refuses what it reads may be gone already.
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    })
}

pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Act {
    answer("200 OK", "content-type: application/json\r\n", body)
}

/// A body in small chunks, to its end.
pub(crate) fn chunked(body: impl Into<Vec<u8>>) -> Act {
    let body = body.into();
    Box::new(move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        for piece in body.chunks(7) {
            let _ = stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes());
            let _ = stream.write_all(&[piece, b"\r\n"].concat());
        }
        let _ = stream.write_all(b"0\r\n\r\n");
    })
}

/// The beginning of a body whose rest never comes: the connection ends.
pub(crate) fn cut(body: impl Into<Vec<u8>>) -> Act {
    let body = body.into();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len() + 100);
    Box::new(move |stream| {
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    })
}

/// A body without an end: `piece`, until the client goes.
pub(crate) fn endless(piece: impl Into<Vec<u8>>) -> Act {
    let piece = piece.into();
    Box::new(move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&piece).is_ok() {}
    })
}

/// Nothing, until the client goes.
pub(crate) fn silent() -> Act {
    Box::new(|stream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    })
}
