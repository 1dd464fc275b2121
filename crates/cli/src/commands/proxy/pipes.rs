//! Standard input and output of a process that a host started, as ends of a connection.

use std::io::{Read as _, Write as _};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::oneshot;

use crate::failure::{Code, Failure};

/// Bytes that are read from the host at once.
const CHUNK: usize = 64 * 1024;

/// Standard input, read by a thread that nobody waits for: a read that blocks keeps no process from its end.
pub(super) fn standard_input() -> Result<DuplexStream, Failure> {
    let (read, mut write) = tokio::io::duplex(CHUNK);
    let runtime = tokio::runtime::Handle::current();
    let pump = move || {
        let mut input = std::io::stdin().lock();
        let mut chunk = vec![0_u8; CHUNK];
        while let Ok(count @ 1..) = input.read(&mut chunk) {
            let bytes = chunk.get(..count).unwrap_or_default();
            if runtime.block_on(write.write_all(bytes)).is_err() {
                return;
            }
        }
    };
    beside(pump).map(|()| read)
}

/// Standard output, written by a thread of its own, and the end of what was written.
pub(super) fn standard_output() -> Result<(DuplexStream, oneshot::Receiver<()>), Failure> {
    let (write, mut read) = tokio::io::duplex(CHUNK);
    let (tell, written) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let pump = move || {
        let mut chunk = vec![0_u8; CHUNK];
        while let Ok(count @ 1..) = runtime.block_on(read.read(&mut chunk)) {
            let bytes = chunk.get(..count).unwrap_or_default();
            let mut output = std::io::stdout().lock();
            if output.write_all(bytes).and_then(|()| output.flush()).is_err() {
                break;
            }
        }
        let _ = tell.send(());
    };
    beside(pump).map(|()| (write, written))
}

fn beside(pump: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let begun = std::thread::Builder::new().name("host".to_owned()).spawn(pump);
    begun.map(drop).map_err(|error| {
        Failure::new(Code::Io, format!("no thread can be started for the host: {}", error.kind()))
    })
}
