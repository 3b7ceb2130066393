//! The server versions that the module is tested on, and what each of them can do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

/// One of the servers under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Redis 6.2, built on libc malloc.
    Redis62,
    /// Redis 7.0, as Debian ships it.
    Redis70,
    /// Redis 8.2.
    Redis82,
    /// Valkey 8.1, built on libc malloc.
    Valkey81,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: [Version; 4] = [Version::Redis62, Version::Redis70, Version::Redis82, Version::Valkey81];

    /// The name used for folders and for `REDISLOCK_SERVERS`, such as `redis-6.2`.
    pub fn name(self) -> &'static str {
        match self {
            Version::Redis62 => "redis-6.2",
            Version::Redis70 => "redis-7.0",
            Version::Redis82 => "redis-8.2",
            Version::Valkey81 => "valkey-8.1",
        }
    }

    /// The server's executable.
    ///
    /// # Panics
    /// When it isn't there: a missing server fails a test, it never skips one.
    pub fn binary(self) -> PathBuf {
        server_binary(self.name())
    }

    /// The versions to test: all, unless the environment variable `REDISLOCK_SERVERS` names some
    /// (`REDISLOCK_SERVERS=redis-7.0,valkey-8.1`).
    ///
    /// # Panics
    /// When the variable names an unknown server.
    pub fn selected() -> Vec<Version> {
        let Ok(list) = std::env::var("REDISLOCK_SERVERS") else { return Self::ALL.to_vec() };
        let named = |name: &str| {
            Self::ALL.into_iter().find(|version| version.name() == name).unwrap_or_else(|| {
                let known = Self::ALL.map(Version::name).join(", ");
                panic!("REDISLOCK_SERVERS names {name:?}; known are {known}")
            })
        };
        let versions: Vec<_> = list.split([',', ' ']).filter(|name| !name.is_empty()).map(named).collect();
        if versions.is_empty() { Self::ALL.to_vec() } else { versions }
    }

    /// Whether this version is among [`Version::selected`].
    pub fn is_selected(self) -> bool {
        Self::selected().contains(&self)
    }

    /// Whether this is Valkey, not Redis.
    pub fn is_valkey(self) -> bool {
        self == Version::Valkey81
    }

    fn at_least_7_0(self) -> bool {
        self != Version::Redis62
    }

    fn at_least_7_2(self) -> bool {
        matches!(self, Version::Redis82 | Version::Valkey81)
    }

    /// Whether modules have `CONFIG` settings (7.0).
    pub fn has_config(self) -> bool {
        self.at_least_7_0()
    }

    /// Whether there is `FUNCTION` and `FCALL` (7.0).
    pub fn has_functions(self) -> bool {
        self.at_least_7_0()
    }

    /// Whether `LOCK.GUARD` can work: a module's call can run in script mode, as the caller's user (7.0).
    pub fn has_guard(self) -> bool {
        self.at_least_7_0()
    }

    /// Whether modules can describe their commands for `COMMAND DOCS` (7.0).
    pub fn has_command_docs(self) -> bool {
        self.at_least_7_0()
    }

    /// Whether ACL categories cover module commands (7.2).
    pub fn has_acl_categories(self) -> bool {
        self.at_least_7_2()
    }

    /// Whether a module can act in the unit of a keyspace event (`RM_AddPostNotificationJob`, 7.2).
    pub fn has_post_notification_jobs(self) -> bool {
        self.at_least_7_2()
    }

    /// Whether this build is on libc malloc, which valgrind can follow.
    pub fn runs_under_valgrind(self) -> bool {
        matches!(self, Version::Redis62 | Version::Valkey81)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The executable of a server by the name of its folder, also of one that is no [`Version`].
///
/// # Panics
/// When it isn't there: a missing server fails a test, it never skips one.
pub fn server_binary(name: &str) -> PathBuf {
    let servers = std::env::var_os("REDISLOCK_SERVERS_DIR")
        .map_or_else(|| crate::module::workspace().join("target/servers"), PathBuf::from);
    let binary = servers.join(name).join("redis-server");
    assert!(binary.exists(), "{name} is missing ({}): run `make setup` to get the servers", binary.display());
    binary
}

/// Runs `body` on each selected server, one after the other, and says which of them failed.
///
/// # Panics
/// With the panic of the first server that fails.
pub fn on_every_server(body: impl Fn(Version)) {
    for version in Version::selected() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(version))) {
            eprintln!("failed on {version}");
            resume_unwind(panic);
        }
    }
}

/// Makes a module of four tests, one a server version, out of each function.
///
/// The functions take the [`Version`]. Attributes (doc comments, `#[ignore]`, `#[should_panic]`) go to each of the
/// tests. They are reported as `name::redis_6_2`, `name::redis_7_0`, `name::redis_8_2` and `name::valkey_8_1`.
#[macro_export]
macro_rules! every_server {
    ($($(#[$meta:meta])* fn $name:ident($version:ident $(: $type:ty)?) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn on(version: $crate::Version) {
                fn body($version: $crate::Version) $body
                if version.is_selected() {
                    body(version);
                }
            }

            $(#[$meta])*
            #[test]
            fn redis_6_2() {
                on($crate::Version::Redis62);
            }

            $(#[$meta])*
            #[test]
            fn redis_7_0() {
                on($crate::Version::Redis70);
            }

            $(#[$meta])*
            #[test]
            fn redis_8_2() {
                on($crate::Version::Redis82);
            }

            $(#[$meta])*
            #[test]
            fn valkey_8_1() {
                on($crate::Version::Valkey81);
            }
        }
    )*};
}
