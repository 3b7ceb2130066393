//! What the server is told of a command, and what LOCK.HELP and COMMAND DOCS make of it.

use std::ffi::CStr;

/// What the server is told of a command.
pub(crate) struct Spec {
    pub(crate) name: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    /// Flags that every supported server knows.
    pub(crate) flags: &'static CStr,
    /// ACL categories, on servers that know such for modules.
    pub(crate) categories: &'static CStr,
    /// The number of arguments with the name; negative for a least number.
    pub(crate) arity: i32,
    pub(crate) keys: Keys,
    pub(crate) access: Access,
    pub(crate) params: &'static [Param],
}

impl Spec {
    /// How many arguments there must be behind counted keys: all but the name, the number and one key.
    pub(crate) fn behind_keys(&self) -> usize {
        usize::try_from(self.arity.abs()).map_or(0, |arity| arity.saturating_sub(3))
    }

    /// The help line: name and arguments as a user would write them.
    pub(crate) fn usage(&self) -> String {
        let words = self.params.iter().map(Param::usage);
        let name = self.name.to_string_lossy().into_owned();
        std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// Where the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// There are none.
    None,
    /// The first argument is the only one.
    First,
    /// The first argument says how many follow.
    Counted,
    /// The first argument, and the keys of the command that is guarded.
    Guarded,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// It looks.
    Read,
    /// It makes or changes a lock.
    Write,
    /// It may delete the key.
    Remove,
}

/// An argument, for the documentation.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) kind: ParamKind,
    /// The word before it, or the word that it is.
    pub(crate) token: &'static str,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
}

/// The kind of an argument.
#[derive(Clone, Copy)]
pub(crate) enum ParamKind {
    Key,
    Text,
    Integer,
    /// The token alone.
    Word,
    /// These, one after the other.
    Block(&'static [Param]),
    /// One of these.
    OneOf(&'static [Param]),
}

impl Param {
    pub(super) const fn new(name: &'static str, kind: ParamKind) -> Self {
        Self { name, kind, token: "", optional: false, multiple: false }
    }

    pub(super) const fn word(name: &'static str, token: &'static str) -> Self {
        Self { token, ..Self::new(name, ParamKind::Word) }
    }

    pub(super) const fn number(name: &'static str, token: &'static str) -> Self {
        Self { token, ..Self::new(name, ParamKind::Integer) }
    }

    pub(super) const fn many(self) -> Self {
        Self { multiple: true, ..self }
    }

    pub(super) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(super) const KEY: Self = Self::new("key", ParamKind::Key);
    pub(super) const KEYS: Self = Self::KEY.many();
    pub(super) const NUMKEYS: Self = Self::new("numkeys", ParamKind::Integer);
    pub(super) const OWNER: Self = Self::new("owner", ParamKind::Text);
    pub(super) const TTL: Self = Self::new("ttl", ParamKind::Integer);
    pub(super) const SHARED: Self = Self::new(
        "sharing",
        ParamKind::Block(&[Self::word("shared", "SHARED"), Self::number("n", "LIMIT").optional()]),
    )
    .optional();
    pub(super) const WAIT: Self = Self::number("timeout", "WAIT").optional();
    pub(super) const SESSION: Self = Self::word("session", "SESSION").optional();
    pub(super) const HOLD: Self = Self::number("n", "HOLD");

    /// The argument as a user would write it.
    fn usage(&self) -> String {
        let list =
            |params: &[Self], between| params.iter().map(Self::usage).collect::<Vec<_>>().join(between);
        let word = match self.kind {
            ParamKind::Block(params) => list(params, " "),
            ParamKind::OneOf(params) => list(params, " | "),
            ParamKind::Word => self.token.to_owned(),
            _ if self.token.is_empty() => self.name.to_owned(),
            _ => format!("{} {}", self.token, self.name),
        };
        match (self.optional, self.multiple) {
            (false, false) => word,
            (true, false) => format!("[{word}]"),
            (false, true) => format!("{word} [{word} ...]"),
            (true, true) => format!("[{word} ...]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::TABLE;

    #[test]
    fn help_shows_how_arguments_go_together() {
        let usage = |name: &str| {
            let mut specs = TABLE.iter().map(|(_, spec)| spec.usage());
            specs.find(|usage| usage.split(' ').next() == Some(name)).expect("there is such a command")
        };
        let expected = [
            "LOCK.ACQUIRE key owner ttl [SHARED [LIMIT n]] [WAIT timeout] [SESSION]",
            "LOCK.REENTER key owner ttl [SHARED [LIMIT n]] [WAIT timeout] [SESSION] [HOLD n]",
            "LOCK.RENEW key owner ttl [SESSION]",
            "LOCK.RELEASE key owner [HOLD n | ALL]",
            "LOCK.MACQUIRE numkeys key [key ...] owner ttl [WAIT timeout] [SESSION]",
            "LOCK.GUARD key owner command [arg ...]",
            "LOCK.BREAK key [owner [fence]]",
            "LOCK.WAITERS key [COUNT n]",
        ];
        for line in expected {
            let name = line.split(' ').next().expect("a name");
            assert_eq!(usage(name), line);
        }
    }
}
