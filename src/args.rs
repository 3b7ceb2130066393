//! The arguments of a command, read one by one. All are read and checked before anything happens.

use crate::error::Error;
use crate::ffi::Str;
use crate::ffi::string::Argv;
use crate::settings;
use redislock_core::{Fence, HOLDS_MAX, Holds, Limit, Mode, Owner, Ttl};

/// The longest wait, in milliseconds: what every client's number type holds.
const WAIT_MAX: u64 = (1 << 53) - 1;

/// A cursor over the arguments.
pub(crate) struct Args<'a> {
    argv: Argv<'a>,
    next: usize,
}

impl<'a> Args<'a> {
    /// Begins behind the command's name.
    pub(crate) fn new(argv: Argv<'a>) -> Self {
        Self { argv, next: 1 }
    }

    pub(crate) fn next(&mut self) -> Option<Str<'a>> {
        let found = self.argv.get(self.next)?;
        self.next += 1;
        Some(found)
    }

    /// The position of the argument that comes next.
    pub(crate) fn position(&self) -> usize {
        self.next
    }

    pub(crate) fn key(&mut self) -> Result<Str<'a>, Error> {
        self.next().ok_or(Error::Arity)
    }

    pub(crate) fn owner(&mut self) -> Result<&'a [u8], Error> {
        let owner = self.next().ok_or(Error::Arity)?.as_bytes();
        Owner::is_valid(owner).then_some(owner).ok_or(Error::Owner)
    }

    pub(crate) fn ttl(&mut self) -> Result<Ttl, Error> {
        let max = settings::max_ttl();
        self.must_follow()?;
        let value = self.number("ttl", 1, max, " milliseconds")?;
        // A request comes in the middle of a millisecond. As that of any key, a lease lasts to the end of the one in
        // which its time is up, and so is never shorter than asked.
        Ttl::new(value + 1).ok_or(Error::Range { name: "ttl", min: 1, max, unit: " milliseconds" })
    }

    pub(crate) fn fence(&mut self, name: &'static str) -> Result<Fence, Error> {
        let max = Fence::MAX.get();
        self.must_follow()?;
        Fence::new(self.number(name, 0, max, "")?).ok_or(Error::Range { name, min: 0, max, unit: "" })
    }

    pub(crate) fn holds(&mut self) -> Result<Holds, Error> {
        let (name, max) = ("HOLD", u64::from(HOLDS_MAX));
        let value = self.number(name, 1, max, "")?;
        let value = u32::try_from(value).ok().and_then(Holds::new);
        value.ok_or(Error::Range { name, min: 1, max, unit: "" })
    }

    fn limit(&mut self) -> Result<Limit, Error> {
        let (name, max) = ("LIMIT", u64::from(HOLDS_MAX));
        let value = self.number(name, 1, max, "")?;
        let value = u32::try_from(value).ok().and_then(Limit::new);
        value.ok_or(Error::Range { name, min: 1, max, unit: "" })
    }

    /// Whether there is one more argument, which no option's name announced.
    fn must_follow(&self) -> Result<(), Error> {
        if self.next < self.argv.len() { Ok(()) } else { Err(Error::Arity) }
    }

    /// A plain decimal number within its bounds.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        min: u64,
        max: u64,
        unit: &'static str,
    ) -> Result<u64, Error> {
        let word = self.next().ok_or(Error::NoValue(name))?;
        let value = decimal(word.as_bytes()).filter(|value| (min..=max).contains(value));
        value.ok_or(Error::Range { name, min, max, unit })
    }

    /// Several keys behind their number, with at least so many arguments behind them. None may be named twice.
    pub(crate) fn keys(&mut self, behind: usize) -> Result<Vec<Str<'a>>, Error> {
        self.must_follow()?;
        let most = u64::try_from(self.argv.len().saturating_sub(self.next + 1 + behind)).unwrap_or(0).max(1);
        let count = self.number("numkeys", 1, most, ", the number of keys that follow")?;
        let mut keys: Vec<Str<'a>> = Vec::new();
        for _ in 0..count {
            keys.push(self.next().ok_or(Error::Arity)?);
        }
        let mut names: Vec<&[u8]> = keys.iter().map(Str::as_bytes).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::KeyTwice);
        }
        Ok(keys)
    }

    /// The rest, as options of which the command knows these.
    pub(crate) fn options(&mut self, known: &[&'static str]) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut seen: Vec<&'static str> = Vec::new();
        while let Some(word) = self.next() {
            let word = word.as_bytes();
            let Some(name) = known.iter().copied().find(|name| name.as_bytes().eq_ignore_ascii_case(word))
            else {
                return Err(Error::UnknownOption(word.to_vec()));
            };
            if seen.contains(&name) {
                return Err(Error::Repeated(name));
            }
            seen.push(name);
            match name {
                "SHARED" => options.shared = true,
                "LIMIT" => options.limit = Some(self.limit()?),
                "WAIT" => options.wait = Some(self.number("WAIT", 0, WAIT_MAX, " milliseconds")?),
                "SESSION" => options.session = true,
                "HOLD" => options.hold = Some(self.holds()?),
                "ALL" => options.all = true,
                "COUNT" => options.count = Some(self.number("COUNT", 1, u64::from(HOLDS_MAX), "")?),
                _ => return Err(Error::UnknownOption(word.to_vec())),
            }
        }
        if options.limit.is_some() && !options.shared {
            return Err(Error::Contradiction("LIMIT goes with SHARED"));
        }
        if options.all && options.hold.is_some() {
            return Err(Error::Contradiction("HOLD and ALL don't go together"));
        }
        Ok(options)
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.next < self.argv.len() { Err(Error::Arity) } else { Ok(()) }
    }
}

/// Options, in any order and letter case.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) shared: bool,
    pub(crate) limit: Option<Limit>,
    pub(crate) wait: Option<u64>,
    pub(crate) session: bool,
    pub(crate) hold: Option<Holds>,
    pub(crate) all: bool,
    pub(crate) count: Option<u64>,
}

impl Options {
    pub(crate) fn mode(&self) -> Mode {
        if self.shared { Mode::Shared(self.limit.unwrap_or(Limit::NONE)) } else { Mode::Exclusive }
    }
}

/// A plain decimal number: digits alone, without leading zeros.
pub(crate) fn decimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() || (word.len() > 1 && word[0] == b'0') {
        return None;
    }
    word.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn numbers_are_plain_decimals() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "-1", "+5", "05", " 5", "5 ", "1e3", "0x10", "1.0", "18446744073709551616", "\u{663}"]
        {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
