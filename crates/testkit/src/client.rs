//! One connection to a server, blocking, without anything between the test and the bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::reply::{Reply, decode};

/// How long a reply may take before a test is told that none came.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    pushes: Vec<Reply>,
    patience: Duration,
}

impl Client {
    /// Connects to a port of loopback.
    ///
    /// # Panics
    /// When nobody listens there.
    #[track_caller]
    pub fn connect(port: u16) -> Client {
        Self::try_connect(port).unwrap_or_else(|error| panic!("no connection to port {port}: {error}"))
    }

    /// Connects to a port of loopback.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn try_connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, unread: Vec::new(), pushes: Vec::new(), patience: PATIENCE })
    }

    /// Sets how long [`cmd`](Client::cmd) and [`read`](Client::read) wait for a reply (30 seconds at first).
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends a command and waits for its reply. The macro [`cmd!`](crate::cmd) takes arguments of mixed types.
    ///
    /// # Panics
    /// When the connection ends, or no reply comes.
    #[track_caller]
    pub fn cmd<A: Arg>(&mut self, args: &[A]) -> Reply {
        self.send(args);
        self.read()
    }

    /// As [`cmd`](Client::cmd), for connections that may be lost.
    ///
    /// # Errors
    /// When the connection ends, or no reply comes.
    pub fn try_cmd<A: Arg>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.stream.write_all(&encode(args))?;
        self.try_read()
    }

    /// Sends a command without waiting for its reply.
    ///
    /// # Panics
    /// When the connection has ended.
    #[track_caller]
    pub fn send<A: Arg>(&mut self, args: &[A]) {
        self.send_raw(&encode(args));
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When the connection has ended.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            panic!("the connection is lost: {error}");
        }
    }

    /// Waits for the next reply.
    ///
    /// # Panics
    /// When the connection ends, or no reply comes.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        match self.try_read() {
            Ok(reply) => reply,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// As [`read`](Client::read), for connections that may be lost.
    ///
    /// # Errors
    /// When the connection ends, or no reply comes.
    pub fn try_read(&mut self) -> io::Result<Reply> {
        let patience = self.patience;
        self.try_read_timeout(patience)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, format!("nothing within {patience:?}")))
    }

    /// The next reply, if one comes within the time.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn read_timeout(&mut self, within: Duration) -> Option<Reply> {
        match self.try_read_timeout(within) {
            Ok(reply) => reply,
            Err(error) => panic!("the connection is lost: {error}"),
        }
    }

    /// As [`read_timeout`](Client::read_timeout), for connections that may be lost.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_read_timeout(&mut self, within: Duration) -> io::Result<Option<Reply>> {
        let end = Instant::now() + within;
        loop {
            match self.frame(end)? {
                Some((Reply::Push(items), _)) => self.pushes.push(Reply::Push(items)),
                Some((reply, _)) => return Ok(Some(reply)),
                None => return Ok(None),
            }
        }
    }

    /// The bytes of the next reply (or push), if one comes within the time.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn read_raw_frame(&mut self, within: Duration) -> Option<Vec<u8>> {
        match self.frame(Instant::now() + within) {
            Ok(frame) => frame.map(|(_, bytes)| bytes),
            Err(error) => panic!("the connection is lost: {error}"),
        }
    }

    /// Sends a command and returns the bytes of its reply.
    ///
    /// # Panics
    /// When the connection ends, or no reply comes.
    #[track_caller]
    pub fn raw<A: Arg>(&mut self, args: &[A]) -> Vec<u8> {
        self.send(args);
        let patience = self.patience;
        self.read_raw_frame(patience).unwrap_or_else(|| panic!("no reply within {patience:?}"))
    }

    /// The out of band messages (RESP3) that came so far between replies; forgets them.
    pub fn take_pushes(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.pushes)
    }

    fn frame(&mut self, end: Instant) -> io::Result<Option<(Reply, Vec<u8>)>> {
        loop {
            if let Some((reply, length)) = decode(&self.unread) {
                let bytes = self.unread.drain(..length).collect();
                return Ok(Some((reply, bytes)));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_micros(100))))?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.unread.extend_from_slice(&chunk[..length]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the server ends this connection within the time. Replies that come before are dropped.
    pub fn is_closed_within(&mut self, within: Duration) -> bool {
        let end = Instant::now() + within;
        loop {
            match self.frame(end) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Chooses the protocol version, 2 or 3, and returns what the server says about itself.
    ///
    /// # Panics
    /// When the server refuses.
    #[track_caller]
    pub fn hello(&mut self, protocol: u8) -> Reply {
        let reply = self.cmd(&["HELLO".to_owned(), protocol.to_string()]);
        assert!(!reply.is_error(), "HELLO {protocol}: {reply:?}");
        reply
    }

    /// The server's number for this connection.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn client_id(&mut self) -> i64 {
        self.cmd(&["CLIENT", "ID"]).int()
    }

    /// A field of `INFO`, if there is one.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn info(&mut self, field: &str) -> Option<String> {
        let info = self.cmd(&["INFO", "everything"]);
        let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
        String::from_utf8_lossy(info.bytes()).lines().find_map(value)
    }

    /// The stream below, to do what this type can't.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Ends the connection in order.
    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends the connection by a reset, as a crash of the client's machine would.
    pub fn close_hard(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = libc::socklen_t::try_from(size_of_val(&linger)).expect("small");
        // SAFETY: the descriptor is open, and the pointer and size are those of a live `linger`.
        let done = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size,
            )
        };
        assert_eq!(done, 0, "SO_LINGER: {}", io::Error::last_os_error());
    }
}

fn encode<A: Arg>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.to_arg();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(&arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// What can be an argument of a command.
pub trait Arg {
    /// Its bytes.
    fn to_arg(&self) -> Vec<u8>;
}

impl<T: Arg + ?Sized> Arg for &T {
    fn to_arg(&self) -> Vec<u8> {
        (**self).to_arg()
    }
}

impl Arg for str {
    fn to_arg(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl Arg for String {
    fn to_arg(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }
}

impl Arg for [u8] {
    fn to_arg(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<const N: usize> Arg for [u8; N] {
    fn to_arg(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Arg for Vec<u8> {
    fn to_arg(&self) -> Vec<u8> {
        self.clone()
    }
}

macro_rules! decimal {
    ($($type:ty)*) => {$(
        impl Arg for $type {
            fn to_arg(&self) -> Vec<u8> {
                self.to_string().into_bytes()
            }
        }
    )*};
}

decimal!(i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f64);

/// Sends a command through a [`Client`] and returns its [`Reply`]: `cmd!(client, "LOCK.ACQUIRE", key, owner, 1000)`.
#[macro_export]
macro_rules! cmd {
    ($client:expr, $($arg:expr),+ $(,)?) => {
        $client.cmd(&[$($crate::Arg::to_arg(&$arg)),+])
    };
}

/// Sends a command through a [`Client`] without waiting for the reply.
#[macro_export]
macro_rules! send {
    ($client:expr, $($arg:expr),+ $(,)?) => {
        $client.send(&[$($crate::Arg::to_arg(&$arg)),+])
    };
}

/// Sends a command through a [`Client`] and returns the bytes of its reply.
#[macro_export]
macro_rules! raw {
    ($client:expr, $($arg:expr),+ $(,)?) => {
        $client.raw(&[$($crate::Arg::to_arg(&$arg)),+])
    };
}
