//! The two messages between parent and helper: orders down, a report up. Each is a length and a body; both ends
//! are the same build of this crate, and still every length is bounded and every surplus byte refused.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::allow::{Access, Rule};
use super::{Bounds, Confinement, Network, Stage};

/// Arguments and environment are bounded by Linux at 2 MiB or so; the rest is the allow list.
const MAX_ORDERS: usize = 16 << 20;
const MAX_REPORT: usize = 64;
/// The byte that carries the descriptor.
const GREETING: u8 = 0xC0;

/// What the helper is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) parent: u32,
    pub(super) confined: bool,
    pub(super) network: Network,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) scratch: PathBuf,
    pub(super) rules: Vec<Rule>,
    pub(super) forbidden: Vec<PathBuf>,
    pub(super) bounds: Bounds,
}

/// What the helper says before it becomes the program, and, if it cannot, once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Confined(Confinement),
    Failed(Stage, i32),
}

/// Sends the agent's own standard input along.
pub(super) fn send_stdin(socket: &UnixStream, stdin: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [stdin];
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(malformed());
    }
    let sent = sendmsg(socket, &[IoSlice::new(&[GREETING])], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

pub(super) fn receive_stdin(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8];
    let received = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes != 1 || byte != [GREETING] {
        return Err(malformed());
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            return fds.next().ok_or_else(malformed);
        }
    }
    Err(malformed())
}

impl Orders {
    pub(super) fn send(&self, socket: &mut UnixStream) -> io::Result<()> {
        let mut out = Encoder(Vec::new());
        out.number(self.parent);
        out.number(u32::from(self.confined));
        out.number(u32::from(self.network == Network::Open));
        out.bytes(self.program.as_os_str())?;
        out.bytes(self.scratch.as_os_str())?;
        out.list(&self.args, |out, arg| out.bytes(arg))?;
        out.list(&self.env, |out, (name, value)| out.bytes(name).and_then(|()| out.bytes(value)))?;
        out.list(&self.rules, |out, rule| {
            out.number(u32::from(rule.access as u8));
            out.bytes(rule.path.as_os_str())
        })?;
        out.list(&self.forbidden, |out, path| out.bytes(path.as_os_str()))?;
        let Bounds { memory, file_size, processes, open_files } = self.bounds;
        [memory, file_size, processes, open_files].into_iter().for_each(|bound| out.wide(bound));
        send_frame(socket, &out.0, MAX_ORDERS)
    }

    pub(super) fn receive(socket: &mut UnixStream) -> io::Result<Self> {
        let frame = receive_frame(socket, MAX_ORDERS)?.ok_or_else(malformed)?;
        let mut body = Decoder(&frame);
        let orders = Self {
            parent: body.number()?,
            confined: body.number()? != 0,
            network: if body.number()? == 1 { Network::Open } else { Network::Denied },
            program: body.bytes()?.into(),
            scratch: body.bytes()?.into(),
            args: body.list(Decoder::bytes)?,
            env: body.list(|body| Ok((body.bytes()?, body.bytes()?)))?,
            rules: body.list(|body| {
                let code = u8::try_from(body.number()?).map_err(|_| malformed())?;
                let access = Access::from_code(code).ok_or_else(malformed)?;
                Ok(Rule { access, path: body.bytes()?.into() })
            })?,
            forbidden: body.list(|body| body.bytes().map(PathBuf::from))?,
            bounds: Bounds {
                memory: body.wide()?,
                file_size: body.wide()?,
                processes: body.wide()?,
                open_files: body.wide()?,
            },
        };
        if body.0.is_empty() { Ok(orders) } else { Err(malformed()) }
    }
}

impl Report {
    pub(super) fn send(self, socket: &mut UnixStream) -> io::Result<()> {
        let mut out = Encoder(Vec::new());
        match self {
            Self::Confined(found) => {
                out.number(1);
                out.number(found.landlock_abi);
                for flag in [found.fully_enforced, found.network_denied, found.signals_scoped] {
                    out.number(u32::from(flag));
                }
            }
            Self::Failed(stage, errno) => {
                out.number(2);
                out.number(u32::from(stage as u8));
                out.number(errno.unsigned_abs());
            }
        }
        send_frame(socket, &out.0, MAX_REPORT)
    }

    /// None when the other end closed the socket, which is what becoming the program does.
    pub(super) fn receive(socket: &mut UnixStream) -> io::Result<Option<Self>> {
        let Some(frame) = receive_frame(socket, MAX_REPORT)? else { return Ok(None) };
        let mut body = Decoder(&frame);
        let report = match body.number()? {
            1 => Self::Confined(Confinement {
                landlock_abi: body.number()?,
                fully_enforced: body.number()? == 1,
                network_denied: body.number()? == 1,
                signals_scoped: body.number()? == 1,
            }),
            2 => {
                let code = u8::try_from(body.number()?).map_err(|_| malformed())?;
                let stage = Stage::from_code(code).ok_or_else(malformed)?;
                Self::Failed(stage, i32::try_from(body.number()?).map_err(|_| malformed())?)
            }
            _ => return Err(malformed()),
        };
        if body.0.is_empty() { Ok(Some(report)) } else { Err(malformed()) }
    }
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn number(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn wide(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, text: &OsStr) -> io::Result<()> {
        self.number(u32::try_from(text.len()).map_err(|_| malformed())?);
        self.0.extend(text.as_bytes());
        Ok(())
    }

    fn list<T>(
        &mut self,
        items: &[T],
        each: impl Fn(&mut Self, &T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.number(u32::try_from(items.len()).map_err(|_| malformed())?);
        items.iter().try_for_each(|item| each(self, item))
    }
}

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn number(&mut self) -> io::Result<u32> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*head))
    }

    fn wide(&mut self) -> io::Result<u64> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*head))
    }

    fn bytes(&mut self) -> io::Result<OsString> {
        let length = usize::try_from(self.number()?).map_err(|_| malformed())?;
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(OsString::from_vec(head.to_vec()))
    }

    fn list<T>(&mut self, each: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let count = self.number()?;
        // Every item takes bytes, so a false count ends at the end of the frame.
        (0..count).map(|_| each(self)).collect()
    }
}

fn send_frame(socket: &mut UnixStream, body: &[u8], max: usize) -> io::Result<()> {
    if body.len() > max {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let length = u32::try_from(body.len()).map_err(|_| malformed())?;
    socket.write_all(&length.to_le_bytes())?;
    socket.write_all(body)
}

fn receive_frame(socket: &mut UnixStream, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0_u8; 4];
    let first = loop {
        match socket.read(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    socket.read_exact(length.get_mut(first..).unwrap_or_default())?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| malformed())?;
    if length > max {
        return Err(malformed());
    }
    let mut body = vec![0_u8; length];
    socket.read_exact(&mut body)?;
    Ok(Some(body))
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn orders_and_reports_arrive_as_they_were_sent() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let orders = Orders {
            parent: 7,
            confined: true,
            network: Network::Open,
            program: "/bin/x".into(),
            args: vec!["a".into(), "".into(), OsString::from_vec(vec![0xff])],
            env: vec![("N".into(), "v=w".into())],
            scratch: "/s".into(),
            rules: vec![Rule { path: "/usr".into(), access: Access::Tree }],
            forbidden: vec!["/key".into()],
            bounds: Bounds { memory: u64::MAX, file_size: 1 << 40, processes: 2, open_files: 1 },
        };
        orders.send(&mut one).unwrap();
        assert_eq!(Orders::receive(&mut other).unwrap(), orders);
        let found = Confinement { landlock_abi: 6, fully_enforced: true, ..Confinement::default() };
        for report in [Report::Confined(found), Report::Failed(Stage::Exec, 13)] {
            report.send(&mut one).unwrap();
            assert_eq!(Report::receive(&mut other).unwrap(), Some(report));
        }
        drop(one);
        assert_eq!(Report::receive(&mut other).unwrap(), None);
    }

    #[test]
    fn a_frame_that_is_cut_too_long_or_has_a_surplus_is_refused() {
        for bytes in [
            &[1, 0][..],
            &[255, 255, 255, 255],
            &[4, 0, 0, 0, 9, 0, 0, 0],
            &[8, 0, 0, 0, 2, 0],
            &[16, 0, 0, 0, 2, 0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ] {
            let (mut one, mut other) = UnixStream::pair().unwrap();
            one.write_all(bytes).unwrap();
            drop(one);
            assert!(Report::receive(&mut other).is_err(), "{bytes:?}");
        }
    }
}
