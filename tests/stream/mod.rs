//! What travels: to replicas, as one of them sees it, and into the append-only file.

#![allow(dead_code, reason = "each test file uses what it needs of it")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use redislock_core::record::decode_record;
use redislock_core::{Change, Mode, Offset};
use redislock_testkit::{Client, Server, cmd};

/// One command as it travels.
pub(crate) type Command = Vec<Vec<u8>>;

/// A connection that plays a replica.
pub(crate) struct Stream {
    link: TcpStream,
    unread: Vec<u8>,
    primary: Client,
    marks: usize,
}

impl Stream {
    /// Begins to follow a server. What happened before does not count.
    pub(crate) fn of(server: &Server) -> Stream {
        let mut link = TcpStream::connect(server.addr()).expect("the server listens");
        link.set_read_timeout(Some(Duration::from_secs(30))).expect("a duration above zero");
        link.write_all(b"*1\r\n$4\r\nSYNC\r\n").expect("a connection");
        let mut stream = Stream { link, unread: Vec::new(), primary: server.connect(), marks: 0 };
        stream.skip_image();
        stream
    }

    /// A replica that does not tell what it can do gets the image with its length before it.
    fn skip_image(&mut self) {
        let head = loop {
            let line = self.unread.windows(2).position(|two| two == b"\r\n");
            match line {
                Some(end) => break self.unread.drain(..end + 2).collect::<Vec<_>>(),
                None => self.read(),
            }
        };
        let head = String::from_utf8(head).expect("a length");
        let length: usize = head.trim().trim_start_matches('$').parse().expect("a length");
        while self.unread.len() < length {
            self.read();
        }
        self.unread.drain(..length);
    }

    fn read(&mut self) {
        let mut bytes = [0; 65_536];
        let length = self.link.read(&mut bytes).expect("the stream goes on");
        assert!(length > 0, "the server ended the stream");
        // While the server makes its image, it sends line ends to show that it lives.
        let idle = self.unread.is_empty() && bytes[..length].iter().all(|byte| *byte == b'\n');
        if !idle {
            self.unread.extend_from_slice(&bytes[..length]);
        }
    }

    /// All that travelled since the last time, but for the server's own chatter.
    pub(crate) fn take(&mut self) -> Vec<Command> {
        self.marks += 1;
        let mark = format!("mark {}", self.marks);
        cmd!(self.primary, "PUBLISH", "stream", &mark).int();
        let mut commands = Vec::new();
        loop {
            let Some((command, length)) = decode(&self.unread) else {
                self.read();
                continue;
            };
            self.unread.drain(..length);
            match word(&command, 0).to_uppercase().as_str() {
                "PUBLISH" if word(&command, 2) == mark => return commands,
                "PING" | "SELECT" | "REPLCONF" => {}
                _ => commands.push(command),
            }
        }
    }

    /// The same in words, as [`told`] has them.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.take().iter().map(told).collect()
    }
}

/// The file that commands are appended to.
pub(crate) fn append_only_file(server: &Server) -> PathBuf {
    let folder = server.dir().join("appendonlydir");
    if !folder.exists() {
        return server.dir().join("appendonly.aof");
    }
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().expect("a file to append to")
}

/// What was appended to the append-only file since it was begun. With [`Fsync::Always`](redislock_testkit::Fsync) it
/// is there when the answer is.
pub(crate) fn appended(server: &Server) -> Vec<String> {
    let bytes = std::fs::read(append_only_file(server)).expect("an append-only file");
    let (mut at, mut commands) = (0, Vec::new());
    while let Some((command, length)) = decode(&bytes[at..]) {
        at += length;
        commands.push(command);
    }
    assert_eq!(at, bytes.len(), "half a command at the end");
    commands.iter().filter(|command| word(command, 0) != "SELECT").map(told).collect()
}

/// A command in words: of a record, who holds now, or no longer.
pub(crate) fn told(command: &Command) -> String {
    let words: Vec<String> = (0..command.len()).map(|index| word(command, index)).collect();
    if words[0] != "LOCK.APPLY" {
        return words.join(" ");
    }
    let record = decode_record(&command[2], Offset::default()).expect("a record");
    let owner = record.owner.escape_ascii();
    match record.change {
        Change::Gone => format!("{}: {owner} gone", words[1]),
        Change::Held(lease) => {
            let mode = match lease.mode {
                Mode::Exclusive => "alone".to_owned(),
                Mode::Shared(limit) => {
                    limit.get().map_or("shared".to_owned(), |most| format!("shared/{most}"))
                }
            };
            format!("{}: {owner} {mode} x{}", words[1], lease.holds.get())
        }
    }
}

/// How many bytes a command is.
pub(crate) fn size(command: &Command) -> usize {
    command.iter().map(Vec::len).sum()
}

fn word(command: &Command, index: usize) -> String {
    command.get(index).map_or(String::new(), |word| word.escape_ascii().to_string())
}

/// One command at the beginning of some bytes, and its length; `None` while it is not whole.
fn decode(bytes: &[u8]) -> Option<(Command, usize)> {
    let mut at = 0;
    let number = |at: &mut usize, sign: u8| {
        let end = *at + bytes.get(*at..)?.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[*at..end]).ok()?;
        assert!(line.starts_with(char::from(sign)), "not a command: {line}");
        *at = end + 2;
        Some(line[1..].parse::<usize>().expect("a number"))
    };
    let words = number(&mut at, b'*')?;
    let mut command = Vec::new();
    for _ in 0..words {
        let length = number(&mut at, b'$')?;
        command.push(bytes.get(at..at + length + 2)?[..length].to_vec());
        at += length + 2;
    }
    Some((command, at))
}
