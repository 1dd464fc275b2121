//! A transport for tests on plain sockets: loopback only, one connection for each exchange, a deadline on each read.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use portcullis_domain::ports::BoxFuture;
use portcullis_models::{
    Answer, Exchange, KeyHeader, Pieces, Transport, TransportFailure, TransportFault,
};

use crate::fake::header;

#[derive(Default)]
pub(crate) struct Plain {
    pub(crate) keys: BTreeMap<String, String>,
}

fn failed(fault: TransportFault, sent: bool, message: impl ToString) -> TransportFailure {
    TransportFailure { fault, sent, message: message.to_string() }
}

fn lost(error: &std::io::Error) -> TransportFailure {
    let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    let fault = if late { TransportFault::TimedOut } else { TransportFault::Lost };
    failed(fault, true, error)
}

impl Plain {
    fn request(
        &self,
        exchange: &Exchange,
        host: &str,
        path: &str,
    ) -> Result<Vec<u8>, TransportFailure> {
        let mut head = format!(
            "POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            exchange.body.len()
        );
        for (name, value) in &exchange.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(key) = &exchange.key {
            let missing = || failed(TransportFault::NoCredential, false, "no such credential");
            let value = self.keys.get(&key.credential).ok_or_else(missing)?;
            head.push_str(&match key.header {
                KeyHeader::Bearer => format!("authorization: Bearer {value}\r\n"),
                KeyHeader::ApiKey => format!("x-api-key: {value}\r\n"),
            });
        }
        Ok([head.as_bytes(), b"\r\n", &exchange.body].concat())
    }

    fn go(&self, exchange: &Exchange) -> Result<Answer, TransportFailure> {
        let rest = exchange.url.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let request = self.request(exchange, host, path)?;
        let mut stream = TcpStream::connect(host)
            .map_err(|error| failed(TransportFault::Unreachable, false, error))?;
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.write_all(&request).map_err(|error| lost(&error))?;
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break end;
            }
            if more(&mut stream, &mut bytes)? == 0 {
                return Err(failed(TransportFault::Lost, true, "no answer"));
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let waiting = bytes[end + 4..].to_vec();
        let length = header(&head, "content-length").map(|length| length.parse().unwrap());
        let framing = if header(&head, "transfer-encoding").is_some() {
            Framing::Chunked
        } else {
            length.map_or(Framing::Close, Framing::Length)
        };
        let retry_after = header(&head, "retry-after").and_then(|text| text.parse().ok());
        Ok(Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            retry_after: retry_after.map(Duration::from_secs),
            body: Box::new(Body {
                stream,
                waiting,
                framing,
                gzip: header(&head, "content-encoding").is_some(),
            }),
        })
    }
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<usize, TransportFailure> {
    let mut piece = [0; 65536];
    let count = stream.read(&mut piece).map_err(|error| lost(&error))?;
    bytes.extend_from_slice(&piece[..count]);
    Ok(count)
}

enum Framing {
    Length(usize),
    Chunked,
    Close,
    Done,
}

struct Body {
    stream: TcpStream,
    waiting: Vec<u8>,
    framing: Framing,
    gzip: bool,
}

impl Body {
    fn go(&mut self) -> Result<Option<Vec<u8>>, TransportFailure> {
        // No decoder stands in these tests: they only send what is none.
        if self.gzip {
            return Err(failed(TransportFault::BadEncoding, true, "the body is not gzip"));
        }
        match self.framing {
            Framing::Done | Framing::Length(0) => Ok(None),
            Framing::Close => self.fill().map(|()| self.take(usize::MAX)),
            Framing::Length(left) => {
                self.fill()?;
                let piece = self.take(left);
                let got = piece.as_ref().map_or(0, Vec::len);
                if got == 0 {
                    return Err(failed(TransportFault::Lost, true, "the body is cut"));
                }
                self.framing = Framing::Length(left - got);
                Ok(piece)
            }
            Framing::Chunked => self.chunk(),
        }
    }

    fn fill(&mut self) -> Result<(), TransportFailure> {
        if self.waiting.is_empty() {
            more(&mut self.stream, &mut self.waiting)?;
        }
        Ok(())
    }

    fn take(&mut self, most: usize) -> Option<Vec<u8>> {
        let count = self.waiting.len().min(most);
        let piece: Vec<u8> = self.waiting.drain(..count).collect();
        (!piece.is_empty()).then_some(piece)
    }

    fn chunk(&mut self) -> Result<Option<Vec<u8>>, TransportFailure> {
        loop {
            if let Some(end) = self.waiting.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8(self.waiting[..end].to_vec()).unwrap();
                let size = usize::from_str_radix(&line, 16).unwrap();
                if self.waiting.len() >= end + 4 + size {
                    let piece = self.waiting[end + 2..end + 2 + size].to_vec();
                    self.waiting.drain(..end + 4 + size);
                    if size == 0 {
                        self.framing = Framing::Done;
                        return Ok(None);
                    }
                    return Ok(Some(piece));
                }
            }
            if more(&mut self.stream, &mut self.waiting)? == 0 {
                return Err(failed(TransportFault::Lost, true, "the chunks are cut"));
            }
        }
    }
}

impl Pieces for Body {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, TransportFailure>> {
        Box::pin(async move { self.go() })
    }
}

impl Transport for Plain {
    fn exchange(&self, exchange: Exchange) -> BoxFuture<'_, Result<Answer, TransportFailure>> {
        Box::pin(async move { self.go(&exchange) })
    }
}
