//! One running server.

use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::builder::Builder;
use crate::client::Client;
use crate::port::Port;
use crate::process::{Process, spawn};
use crate::reply::Reply;
use crate::version::Version;

/// What a server logs when the module has caught a panic of its own, or when it crashed itself.
const BUGS: [&str; 2] = ["a bug in ", "BUG REPORT START"];

/// A server on loopback with a folder of its own. Dropping it kills it and removes the folder, unless the test is
/// panicking: then the folder stays and the end of the log is printed. A bug that the log tells of fails the test.
#[derive(Debug)]
pub struct Server {
    settings: Builder,
    port: Port,
    dir: Option<TempDir>,
    process: Mutex<Option<Process>>,
}

impl Server {
    /// Starts a server with the module and no persistence.
    ///
    /// # Panics
    /// When it doesn't start, with the end of its log.
    #[track_caller]
    pub fn start(version: Version) -> Server {
        Self::builder(version).start()
    }

    /// Settings for a server, as [`Server::start`] has them until told otherwise.
    pub fn builder(version: Version) -> Builder {
        Builder::new(version)
    }

    pub(crate) fn from_builder(settings: Builder) -> Result<Server, String> {
        // Asked first, so that a missing server or module is told as such.
        settings.version.binary();
        let prefix = format!("redislock-{}-", settings.version);
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary folder");
        let server = Server { settings, port: Port::take(), dir: Some(dir), process: Mutex::new(None) };
        let config = server.settings.file(server.port(), server.dir());
        std::fs::write(server.config_file(), config).expect("the configuration can be written");
        server.launch()?;
        Ok(server)
    }

    fn launch(&self) -> Result<(), String> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).expect("a log");
        let binary = self.settings.version.binary();
        let mut command = match self.settings.wrapper.split_first() {
            Some((wrapper, args)) => {
                let mut command = Command::new(wrapper);
                command.args(args).arg(binary);
                command
            }
            None => Command::new(binary),
        };
        command
            .arg(self.config_file())
            .current_dir(self.dir())
            .envs(self.settings.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        let child = spawn(command).map_err(|error| format!("it can't be run: {error}"))?;
        *self.process() = Some(Process::new(child));
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<(), String> {
        let end = Instant::now() + self.settings.patience;
        loop {
            if let Some(status) = self.wait_for_exit(Duration::ZERO) {
                return Err(format!("{}\n{status}", self.log()));
            }
            if self.answers() {
                return Ok(());
            }
            if Instant::now() > end {
                self.kill9();
                return Err(format!("{}\nno answer within {:?}", self.log(), self.settings.patience));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut client) = self.try_connect() else { return false };
        client.set_patience(self.settings.patience);
        matches!(client.try_cmd(&["PING"]), Ok(Reply::Simple(text)) if text == "PONG")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.settings.version
    }

    /// Its port, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port()))
    }

    /// Its address as a URL, with the password where one is asked for.
    pub fn url(&self) -> String {
        let login = self.password().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{login}127.0.0.1:{}/", self.port())
    }

    /// The password it asks for.
    pub fn password(&self) -> Option<&str> {
        self.settings.password.as_deref()
    }

    /// Its folder, with its data, its configuration and its log.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().expect("it is there until the drop").path()
    }

    fn config_file(&self) -> PathBuf {
        self.dir().join("redis.conf")
    }

    fn log_file(&self) -> PathBuf {
        self.dir().join("server.log")
    }

    /// What it logged so far, in all its runs.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<_> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// A new connection, logged in where a password is asked for.
    ///
    /// # Panics
    /// When the server doesn't listen.
    #[track_caller]
    pub fn connect(&self) -> Client {
        match self.try_connect() {
            Ok(client) => client,
            Err(error) => panic!("no connection to {}: {error}\n{}", self.version(), self.log_tail(20)),
        }
    }

    /// A new connection, logged in where a password is asked for.
    ///
    /// # Errors
    /// When the server doesn't listen.
    pub fn try_connect(&self) -> io::Result<Client> {
        let mut client = Client::try_connect(self.port())?;
        if let Some(password) = self.password() {
            client.try_cmd(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// A field of its `INFO`, over a connection of its own.
    ///
    /// # Panics
    /// When the server doesn't answer, or has no such field.
    #[track_caller]
    pub fn info(&self, field: &str) -> String {
        match self.connect().info(field) {
            Some(value) => value,
            None => panic!("{} has no {field} in INFO", self.version()),
        }
    }

    /// The number of its process (under a wrapper, the wrapper's).
    ///
    /// # Panics
    /// Never, once started.
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("it was started").pid()
    }

    /// Whether its process runs (or is stopped by a signal).
    pub fn is_alive(&self) -> bool {
        self.process().as_mut().is_some_and(|process| process.status().is_none())
    }

    /// Waits for its process to end by itself, and tells how it did.
    pub fn wait_for_exit(&self, within: Duration) -> Option<ExitStatus> {
        self.process().as_mut().and_then(|process| process.wait(within))
    }

    fn signal(&self, signal: libc::c_int) {
        if let Some(process) = self.process().as_mut() {
            process.signal(signal);
        }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill9(&self) {
        if let Some(process) = self.process().as_mut() {
            process.kill();
        }
    }

    /// Ends it in order, with SIGTERM, and waits until it is gone; it saves when [`Builder::save`] was asked for.
    ///
    /// # Panics
    /// When it takes more than a minute.
    #[track_caller]
    pub fn terminate(&self) -> ExitStatus {
        self.resume();
        self.signal(libc::SIGTERM);
        match self.wait_for_exit(Duration::from_secs(60)) {
            Some(status) => status,
            None => panic!("{} does not end:\n{}", self.version(), self.log_tail(20)),
        }
    }

    /// Starts it again on the same port, folder and configuration; ends it in order first if it still runs.
    ///
    /// # Panics
    /// When it doesn't start, with the end of its log.
    #[track_caller]
    pub fn restart(&self) {
        if let Err(log) = self.try_restart() {
            panic!("{} does not start again:\n{log}", self.version());
        }
    }

    /// As [`restart`](Server::restart).
    ///
    /// # Errors
    /// When it doesn't start: its log.
    pub fn try_restart(&self) -> Result<(), String> {
        if self.is_alive() {
            self.terminate();
        }
        self.launch()
    }

    /// Stops its process where it is (SIGSTOP): its peers see a server that says nothing.
    pub fn stop_signal(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets a stopped process go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let how = self.process().as_mut().and_then(Process::status);
        self.kill9();
        let log = self.log();
        let bug = log.lines().find(|line| BUGS.iter().any(|bug| line.contains(bug)));
        let bug = bug.filter(|_| !self.settings.bugs_allowed && !std::thread::panicking());
        if bug.is_some() || std::thread::panicking() {
            let state = how.map_or("was running".to_owned(), |status| status.to_string());
            eprintln!("---- {} ({state}), last of {}:", self.version(), self.log_file().display());
            eprintln!("{}\n----", self.log_tail(60));
            if let Some(dir) = self.dir.take() {
                let _ = dir.keep();
            }
        }
        if let Some(bug) = bug {
            panic!("{} met a bug: {bug}", self.version());
        }
    }
}
