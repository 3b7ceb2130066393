//! Replies of a server, decoded from both protocol versions, with accessors that assert.

use std::fmt;

/// One reply.
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// Null, in any of its forms.
    Nil,
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// A status, such as `OK`.
    Simple(String),
    /// An error, its code first.
    Error(String),
    /// An array.
    Array(Vec<Reply>),
    /// A map (RESP3).
    Map(Vec<(Reply, Reply)>),
    /// A set (RESP3).
    Set(Vec<Reply>),
    /// A floating point number (RESP3).
    Double(f64),
    /// A boolean (RESP3).
    Bool(bool),
    /// A number of any size, in digits (RESP3).
    BigNumber(String),
    /// Out of band data (RESP3).
    Push(Vec<Reply>),
}

impl Reply {
    /// The integer.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(n) => *n,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// Whether it is Null.
    pub fn is_nil(&self) -> bool {
        matches!(self, Reply::Nil)
    }

    /// Asserts that it is Null.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn nil(&self) {
        assert!(self.is_nil(), "expected Null, got {self:?}");
    }

    /// Asserts that it is the status `OK`.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn ok(&self) {
        assert!(matches!(self, Reply::Simple(text) if text == "OK"), "expected OK, got {self:?}");
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The error, whole.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// The first word of the error.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn error_code(&self) -> &str {
        let text = self.error();
        text.split_once(' ').map_or(text, |(code, _)| code)
    }

    /// The bytes of a string or status.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Simple(text) | Reply::BigNumber(text) => text.as_bytes(),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// A string or status as text.
    ///
    /// # Panics
    /// When it is something else, or not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => text,
            Err(_) => panic!("expected text, got {self:?}"),
        }
    }

    /// The elements of an array, set or push.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The elements of an array as integers.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn ints(&self) -> Vec<i64> {
        let mut ints = Vec::new();
        for item in self.array() {
            ints.push(item.int());
        }
        ints
    }

    /// The elements of an array as text.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn texts(&self) -> Vec<&str> {
        let mut texts = Vec::new();
        for item in self.array() {
            texts.push(item.text());
        }
        texts
    }

    /// The pairs of a map, or of the flat array that stands for one in RESP2.
    ///
    /// # Panics
    /// When it is neither.
    #[track_caller]
    pub fn pairs(&self) -> Vec<(&Reply, &Reply)> {
        match self {
            Reply::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
            Reply::Array(items) if items.len().is_multiple_of(2) => {
                items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()
            }
            other => panic!("expected a map, got {other:?}"),
        }
    }

    /// The value of a field of a map (or flat array), if it has the field.
    ///
    /// # Panics
    /// When it is no map.
    #[track_caller]
    pub fn get(&self, name: &str) -> Option<&Reply> {
        let named = |field: &Reply| {
            matches!(field, Reply::Bulk(_) | Reply::Simple(_)) && field.bytes() == name.as_bytes()
        };
        self.pairs().into_iter().find(|(field, _)| named(field)).map(|(_, value)| value)
    }

    /// The value of a field of a map (or flat array).
    ///
    /// # Panics
    /// When it is no map or lacks the field.
    #[track_caller]
    pub fn field(&self, name: &str) -> &Reply {
        match self.get(name) {
            Some(value) => value,
            None => panic!("no field {name:?} in {self:?}"),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nil => f.write_str("Null"),
            Reply::Int(n) => write!(f, "{n}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
            Reply::Map(pairs) => {
                f.debug_map().entries(pairs.iter().map(|(name, value)| (name, value))).finish()
            }
            Reply::Set(items) => f.debug_set().entries(items).finish(),
            Reply::Double(n) => write!(f, ",{n}"),
            Reply::Bool(b) => write!(f, "#{b}"),
            Reply::BigNumber(digits) => write!(f, "({digits}"),
            Reply::Push(items) => f.write_str(">").and_then(|()| f.debug_list().entries(items).finish()),
        }
    }
}

/// Decodes one frame at the start of `bytes`: the reply and how long its frame is. `None`: it is not complete yet.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Reply, usize)> {
    let mut cursor = Cursor { bytes, at: 0 };
    let reply = cursor.reply()?;
    Some((reply, cursor.at))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn line(&mut self) -> Option<String> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        self.at += end + 2;
        Some(line)
    }

    /// A string of so many bytes, and the line end after it; `Some(None)` stands for Null.
    fn blob(&mut self, length: &str) -> Option<Option<Vec<u8>>> {
        let Some(length) = count(length) else { return Some(None) };
        let blob = self.bytes.get(self.at..self.at + length + 2)?[..length].to_vec();
        self.at += length + 2;
        Some(Some(blob))
    }

    fn list(&mut self, length: &str) -> Option<Option<Vec<Reply>>> {
        let Some(length) = count(length) else { return Some(None) };
        (0..length).map(|_| self.reply()).collect::<Option<Vec<_>>>().map(Some)
    }

    fn map(&mut self, length: &str) -> Option<Option<Vec<(Reply, Reply)>>> {
        let Some(length) = count(length) else { return Some(None) };
        (0..length).map(|_| Some((self.reply()?, self.reply()?))).collect::<Option<Vec<_>>>().map(Some)
    }

    fn reply(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_else(|| panic!("not a reply: {line:?}"));
        Some(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(rest.parse().unwrap_or_else(|_| panic!("not an integer: {rest:?}"))),
            "$" => self.blob(rest)?.map_or(Reply::Nil, Reply::Bulk),
            "*" => self.list(rest)?.map_or(Reply::Nil, Reply::Array),
            "_" => Reply::Nil,
            "%" => self.map(rest)?.map_or(Reply::Nil, Reply::Map),
            "~" => self.list(rest)?.map_or(Reply::Nil, Reply::Set),
            ">" => self.list(rest)?.map_or(Reply::Nil, Reply::Push),
            "," => Reply::Double(rest.parse().unwrap_or_else(|_| panic!("not a number: {rest:?}"))),
            "#" => Reply::Bool(rest == "t"),
            "(" => Reply::BigNumber(rest.to_owned()),
            // Verbatim text: three letters and a colon before it say its format.
            "=" => {
                self.blob(rest)?.map_or(Reply::Nil, |text| Reply::Bulk(text.get(4..).unwrap_or(&[]).to_vec()))
            }
            "!" => self
                .blob(rest)?
                .map_or(Reply::Nil, |text| Reply::Error(String::from_utf8_lossy(&text).into())),
            // Attributes describe the reply that follows them.
            "|" => {
                self.map(rest)?;
                self.reply()?
            }
            _ => panic!("not a reply: {line:?}"),
        })
    }
}

fn count(text: &str) -> Option<usize> {
    if text == "-1" { None } else { Some(text.parse().unwrap_or_else(|_| panic!("not a length: {text:?}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_every_kind() {
        let check = |bytes: &str, debug: &str| {
            let (reply, length) = decode(bytes.as_bytes()).unwrap_or_else(|| panic!("{bytes:?} is complete"));
            assert_eq!((format!("{reply:?}").as_str(), length), (debug, bytes.len()), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes.as_bytes()[..cut]), None, "{bytes:?} cut at {cut}");
            }
        };
        check(":-12\r\n", "-12");
        check("$-1\r\n", "Null");
        check("*-1\r\n", "Null");
        check("_\r\n", "Null");
        check("$4\r\na\r\nb\r\n", r#""a\r\nb""#);
        check("+OK\r\n", "+OK");
        check("-ERR no\r\n", "-ERR no");
        check("*2\r\n:1\r\n*1\r\n$0\r\n\r\n", r#"[1, [""]]"#);
        check("%1\r\n+a\r\n#t\r\n", "{+a: #true}");
        check("~1\r\n,1.5\r\n", "{,1.5}");
        check(">1\r\n(123\r\n", ">[(123]");
        check("=6\r\ntxt:hi\r\n", r#""hi""#);
        check("!5\r\nERR x\r\n", "-ERR x");
        check("|1\r\n+a\r\n:1\r\n:2\r\n", "2");
    }

    #[test]
    fn fields_are_found_in_maps_and_flat_arrays() {
        for bytes in ["%1\r\n$4\r\nmode\r\n:7\r\n", "*2\r\n$4\r\nmode\r\n:7\r\n"] {
            let (reply, _) = decode(bytes.as_bytes()).expect("complete");
            assert_eq!(reply.field("mode").int(), 7);
            assert_eq!(reply.get("other"), None);
        }
    }
}
