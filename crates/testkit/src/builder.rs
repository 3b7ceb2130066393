//! How a server is to be started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{self, Clock};
use crate::server::Server;
use crate::version::Version;

/// When the append-only file is forced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second.
    EverySec,
    /// When the system likes.
    No,
}

/// Settings of a server to start, from [`Server::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) version: Version,
    pub(crate) module: Option<PathBuf>,
    pub(crate) module_args: Vec<String>,
    pub(crate) configs: Vec<(String, String)>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) wrapper: Vec<String>,
    pub(crate) password: Option<String>,
    pub(crate) patience: Duration,
    pub(crate) bugs_allowed: bool,
}

impl Builder {
    pub(crate) fn new(version: Version) -> Self {
        let builder = Builder {
            version,
            module: None,
            module_args: Vec::new(),
            configs: Vec::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
            password: None,
            patience: Duration::from_secs(30),
            bugs_allowed: false,
        };
        let builder = builder
            .config("bind", "127.0.0.1")
            .config("save", "\"\"")
            .config("appendonly", "no")
            .config("repl-diskless-sync", "yes")
            .config("repl-diskless-sync-delay", "0")
            .config("repl-ping-replica-period", "1");
        if version == Version::Redis62 {
            return builder;
        }
        builder
            .config("enable-debug-command", "yes")
            .config("enable-module-command", "yes")
            .config("enable-protected-configs", "yes")
    }

    /// Adds arguments of the module, after those added before: `["max-ttl", "1000"]`.
    #[must_use]
    pub fn module_args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.module_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Loads this shared object instead of [`module_path`](crate::module_path).
    #[must_use]
    pub fn module(mut self, path: impl Into<PathBuf>) -> Self {
        self.module = Some(path.into());
        self
    }

    /// Starts without the module.
    #[must_use]
    pub fn without_module(mut self) -> Self {
        self.module = Some(PathBuf::new());
        self
    }

    /// Sets a line of the configuration; the value is written as in a configuration file, quotes included. A setting
    /// named again replaces the former one, except `loadmodule`, `user` and others that add up.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        let name = name.into();
        let adds_up = ["loadmodule", "user", "rename-command", "client-output-buffer-limit", "include"];
        if !adds_up.contains(&name.as_str()) {
            self.configs.retain(|(known, _)| *known != name);
        }
        self.configs.push((name, value.to_string()));
        self
    }

    /// Keeps an append-only file.
    #[must_use]
    pub fn aof(self, fsync: Fsync) -> Self {
        let word = match fsync {
            Fsync::Always => "always",
            Fsync::EverySec => "everysec",
            Fsync::No => "no",
        };
        self.config("appendonly", "yes").config("appendfsync", word)
    }

    /// Whether a rewrite of the append-only file begins with an RDB image (the default), or is commands alone.
    #[must_use]
    pub fn aof_preamble(self, preamble: bool) -> Self {
        self.config("aof-use-rdb-preamble", if preamble { "yes" } else { "no" })
    }

    /// Keeps an RDB file, written when the server is terminated in order (and by `SAVE` in any case).
    #[must_use]
    pub fn save(self) -> Self {
        self.config("save", "86400 1000000")
    }

    /// Puts the server on a [`Clock`] that can be stepped.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.environment.extend(clock::environment(&clock.file()));
        self
    }

    /// Makes it a node of a cluster, without slots and without peers. See [`Cluster`](crate::Cluster).
    #[must_use]
    pub fn cluster(self) -> Self {
        self.config("cluster-enabled", "yes")
            .config("cluster-config-file", "nodes.conf")
            .config("cluster-node-timeout", "3000")
    }

    /// Makes it a replica. [`wait_in_sync`](crate::wait_in_sync) tells when it has everything.
    #[must_use]
    pub fn replica_of(self, primary: &Server) -> Self {
        let replica = match primary.password() {
            Some(password) => self.config("masterauth", password),
            None => self,
        };
        replica.config("replicaof", format!("127.0.0.1 {}", primary.port()))
    }

    /// Makes it a replica of whatever is behind a port of loopback, such as that of a [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn replica_of_port(self, port: u16) -> Self {
        self.config("replicaof", format!("127.0.0.1 {port}"))
    }

    /// Has the server ask clients for a password. [`Server::connect`] gives it.
    #[must_use]
    pub fn requires_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Runs the server under another program: `["valgrind", "--error-exitcode=99"]`.
    #[must_use]
    pub fn wrapper<A: Into<String>>(mut self, command: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = command.into_iter().map(Into::into).collect();
        self.patience = Duration::from_secs(120);
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets how long the server may take until it answers (30 seconds, under a wrapper 120).
    #[must_use]
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Lets the log tell of bugs: of panics that a test causes on purpose. Otherwise one fails the test.
    #[must_use]
    pub fn allow_bugs(mut self) -> Self {
        self.bugs_allowed = true;
        self
    }

    /// Starts it and waits until it has loaded its data and answers.
    ///
    /// # Panics
    /// When it doesn't, with the end of its log.
    #[track_caller]
    pub fn start(self) -> Server {
        let version = self.version;
        match self.try_start() {
            Ok(server) => server,
            Err(log) => panic!("{version} does not start:\n{log}"),
        }
    }

    /// Starts it and waits until it has loaded its data and answers.
    ///
    /// # Errors
    /// When it doesn't: its log.
    pub fn try_start(self) -> Result<Server, String> {
        Server::from_builder(self)
    }

    pub(crate) fn file(&self, port: u16, dir: &Path) -> String {
        let mut lines = vec![format!("port {port}"), format!("dir {}", quoted(&dir.display().to_string()))];
        lines.extend(self.configs.iter().map(|(name, value)| format!("{name} {value}")));
        let module = self.module.clone().unwrap_or_else(crate::module_path);
        if !module.as_os_str().is_empty() {
            let mut line = format!("loadmodule {}", quoted(&module.display().to_string()));
            for arg in &self.module_args {
                line.push(' ');
                line.push_str(&quoted(arg));
            }
            lines.push(line);
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
