//! What the README and the manual show of `redis-cli` is what happens.
//!
//! Every block that is fenced as `redis-cli` is run by the real `redis-cli`, as one session on an empty server. A line
//! `127.0.0.1:6379> COMMAND` is typed in, and the lines below it, up to the next one, are what must be printed, with
//! these liberties:
//!
//! - A number of 16 digits is a fencing token. The first time that a block shows one, it stands for whatever is printed
//!   there; from then on for the same, also in commands. Of two of them, the greater one stands for the greater one.
//! - Times that pass stand for any time of the same kind: the replies of PTTL and TTL, and the numbers below `"ttl"`,
//!   `"held"`, `"waited"` and `"timeout"`.
//! - A line `...` stands for any lines.
//! - A line `# N ms later` lets this time pass; other lines that begin with `#` and empty ones are not read.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redislock_testkit::{Server, Version, cmd};

const FENCE: &str = "```";
const DIGITS_OF_A_TOKEN: usize = 16;

/// A block of a document: where it begins, and its lines.
#[derive(Debug)]
struct Block {
    place: String,
    lines: Vec<String>,
}

fn blocks(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match &mut open {
            None if line.trim() == format!("{FENCE}redis-cli") => {
                let place = format!("{}:{}", path.display(), index + 1);
                open = Some(Block { place, lines: Vec::new() });
            }
            None => {}
            Some(_) if line.trim() == FENCE => blocks.extend(open.take()),
            Some(block) => block.lines.push(line.trim_end().to_owned()),
        }
    }
    assert!(open.is_none(), "{}: a block does not end", path.display());
    blocks
}

/// One thing to do, and what is to be seen then.
#[derive(Debug, PartialEq)]
enum Act {
    Pass(Duration),
    Type { command: String, expected: Vec<String> },
}

fn acts(lines: &[String]) -> Vec<Act> {
    let mut acts = Vec::new();
    for line in lines {
        if let Some(note) = line.strip_prefix('#') {
            let words: Vec<_> = note.split_whitespace().collect();
            if let [number, "ms", "later"] = words[..] {
                acts.push(Act::Pass(Duration::from_millis(
                    number.parse().expect("a number of milliseconds"),
                )));
            }
        } else if let Some(command) = typed(line) {
            acts.push(Act::Type { command: command.to_owned(), expected: Vec::new() });
        } else if !line.is_empty() {
            match acts.last_mut() {
                Some(Act::Type { expected, .. }) => expected.push(line.clone()),
                _ => panic!("a reply without a command: {line}"),
            }
        }
    }
    acts
}

/// The command of a line that begins with the prompt, in any database and in a transaction.
fn typed(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("127.0.0.1:6379")?;
    rest.split_once("> ").map(|(_, command)| command)
}

/// Which token of the document stands for which token of this run.
#[derive(Default)]
struct Tokens(BTreeMap<u64, u64>);

impl Tokens {
    fn real(&self, shown: u64) -> u64 {
        self.0.get(&shown).copied().unwrap_or(shown)
    }

    /// Takes a token of the document for one of this run, if that fits all those before.
    fn stands_for(&mut self, shown: u64, printed: u64) -> bool {
        if let Some(known) = self.0.get(&shown) {
            return *known == printed;
        }
        let below = self.0.range(..shown).next_back().is_none_or(|(_, known)| *known < printed);
        let above = self.0.range(shown..).next().is_none_or(|(_, known)| *known > printed);
        if below && above {
            self.0.insert(shown, printed);
        }
        below && above
    }
}

/// A line in parts: what is a token, and what is between.
fn parts(line: &str) -> Vec<Result<u64, &str>> {
    let mut parts = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let length = rest[start..].chars().take_while(char::is_ascii_digit).count();
        let end = start + length;
        if length == DIGITS_OF_A_TOKEN {
            parts.push(Err(&rest[..start]));
            parts.push(Ok(rest[start..end].parse().expect("16 digits")));
        } else {
            parts.push(Err(&rest[..end]));
        }
        rest = &rest[end..];
    }
    parts.push(Err(rest));
    parts
}

fn with_real_tokens(command: &str, tokens: &Tokens) -> String {
    let part = |part| match part {
        Ok(token) => tokens.real(token).to_string(),
        Err(text) => String::from(text),
    };
    parts(command).into_iter().map(part).collect()
}

fn line_fits(expected: &str, printed: &str, tokens: &mut Tokens) -> bool {
    let (expected, printed) = (parts(expected), parts(printed));
    expected.len() == printed.len()
        && expected.into_iter().zip(printed).all(|pair| match pair {
            (Ok(shown), Ok(real)) => tokens.stands_for(shown, real),
            (Err(shown), Err(real)) => shown == real,
            _ => false,
        })
}

/// Whether the number in this line is a time that passes: by the command, or by the line above it.
fn tells_time(command: &str, above: Option<&String>) -> bool {
    let name = command.split(' ').next().unwrap_or_default().to_uppercase();
    let times = ["\"ttl\"", "\"held\"", "\"waited\"", "\"timeout\""];
    matches!(name.as_str(), "PTTL" | "TTL")
        || above.is_some_and(|above| times.iter().any(|time| above.ends_with(time)))
}

/// A line up to its integer, if it ends with one that is not negative.
fn before_integer(line: &str) -> Option<&str> {
    let (before, number) = line.rsplit_once("(integer) ")?;
    number.parse::<u64>().ok().map(|_| before)
}

fn fits(command: &str, expected: &[String], printed: &[String], tokens: &mut Tokens) -> bool {
    if let Some(at) = expected.iter().position(|line| line.trim() == "...") {
        let rest = expected.len() - at - 1;
        return printed.len() >= at + rest
            && fits(command, &expected[..at], &printed[..at], tokens)
            && fits(command, &expected[at + 1..], &printed[printed.len() - rest..], tokens);
    }
    expected.len() == printed.len()
        && (0..expected.len()).all(|index| {
            let above = index.checked_sub(1).map(|above| &expected[above]);
            let (shown, real) = (&expected[index], &printed[index]);
            if tells_time(command, above) && before_integer(shown).is_some() {
                before_integer(shown) == before_integer(real)
            } else {
                line_fits(shown, real, tokens)
            }
        })
}

/// A session of redis-cli that prints as it does for people.
struct Session {
    cli: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    in_transaction: bool,
}

/// Where a reply ends, as redis-cli prints it.
const MARK: &str = "this is where the reply ends";

impl Session {
    fn start(server: &Server) -> Session {
        let mut cli = Command::new("redis-cli")
            .args(["-p", &server.port().to_string(), "--no-raw"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("redis-cli is there: run `make setup`");
        let (stdin, stdout) = (cli.stdin.take().expect("a pipe"), cli.stdout.take().expect("a pipe"));
        Session { cli, stdin, stdout: BufReader::new(stdout), in_transaction: false }
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).expect("text") > 0, "redis-cli has ended");
        line.trim_end().to_owned()
    }

    fn run(&mut self, command: &str) -> Vec<String> {
        let name = command.split(' ').next().unwrap_or_default().to_uppercase();
        // In a transaction the mark would be queued; every reply is one line there.
        let queued = self.in_transaction && !matches!(name.as_str(), "EXEC" | "DISCARD");
        self.in_transaction = queued || name == "MULTI";
        writeln!(self.stdin, "{command}").expect("redis-cli reads");
        if self.in_transaction {
            return vec![self.read()];
        }
        writeln!(self.stdin, "ECHO \"{MARK}\"").expect("redis-cli reads");
        let mut lines = Vec::new();
        loop {
            let line = self.read();
            if line == format!("\"{MARK}\"") {
                return lines;
            }
            // How long it took is printed where it took long, and an empty line after an error.
            let took = line.starts_with('(') && line.ends_with("s)") && line.contains('.');
            if !took && !line.is_empty() {
                lines.push(line);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.cli.kill();
        let _ = self.cli.wait();
    }
}

fn run_block(server: &Server, block: &Block) {
    cmd!(server.connect(), "FLUSHALL").ok();
    let mut session = Session::start(server);
    let mut tokens = Tokens::default();
    for act in acts(&block.lines) {
        match act {
            Act::Pass(time) => std::thread::sleep(time),
            Act::Type { command, expected } => {
                let printed = session.run(&with_real_tokens(&command, &tokens));
                assert!(
                    fits(&command, &expected, &printed, &mut tokens),
                    "{} shows for {command}:\n{}\non {} it is:\n{}",
                    block.place,
                    expected.join("\n"),
                    server.version(),
                    printed.join("\n")
                );
            }
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn run_document(path: &Path, at_least: usize) {
    let blocks = blocks(path);
    assert!(blocks.len() >= at_least, "{} has {} blocks", path.display(), blocks.len());
    // The documents show LOCK.GUARD, which 6.2 lacks.
    for version in Version::selected().into_iter().filter(|version| version.has_guard()) {
        let server = Server::start(version);
        blocks.iter().for_each(|block| run_block(&server, block));
    }
}

#[test]
fn the_readme_shows_what_happens() {
    run_document(&root().join("README.md"), 3);
}

#[test]
fn the_manual_shows_what_happens() {
    let docs = std::fs::read_dir(root().join("docs")).expect("there is a manual");
    for entry in docs {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            run_document(&path, 0);
        }
    }
}

/// The comparison itself: what it lets through, and what not.
#[test]
fn transcripts_are_compared_with_these_liberties_only() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let check = |command: &str, expected: &str, printed: &str, fit: bool| {
        let found = fits(command, &lines(expected), &lines(printed), &mut Tokens::default());
        assert_eq!(found, fit, "{command}: {expected:?} and {printed:?}");
    };
    check("GET k", "\"v\"", "\"v\"", true);
    check("GET k", "\"v\"", "\"w\"", false);
    check("GET k", "\"v\"", "", false);
    check("LOCK.RELEASE k A", "(integer) 0", "(integer) 1", false);
    check("LOCK.ACQUIRE k A 1", "(integer) 1796058283438067", "(integer) 1796000000000000", true);
    check("LOCK.ACQUIRE k A 1", "(integer) 1796058283438067", "(integer) 5", false);
    check("LOCK.ACQUIRE k A 1", "(integer) 1796058283438067", "(nil)", false);
    let (two, equal) = (
        "(integer) 1796000000000001\n(integer) 1796000000000002",
        "(integer) 1796000000000007\n(integer) 1796000000000007",
    );
    check("X", two, "(integer) 1796000000000005\n(integer) 1796000000000009", true);
    check("X", two, "(integer) 1796000000000009\n(integer) 1796000000000005", false);
    check("X", two, equal, false);
    check("X", equal, two, false);
    check("PTTL k", "(integer) 29996", "(integer) 29999", true);
    check("PTTL k", "(integer) 29996", "(integer) -1", false);
    check("LOCK.INFO k", "1) \"ttl\"\n2) (integer) 5", "1) \"ttl\"\n2) (integer) 77", true);
    check("LOCK.INFO k", "1) \"holds\"\n2) (integer) 5", "1) \"holds\"\n2) (integer) 77", false);
    check("LOCK.HELP", "1) a\n...\n9) z", "1) a\n2) b\n9) z", true);
    check("LOCK.HELP", "1) a\n...\n9) z", "1) a\n2) b\n9) y", false);
    let acts = acts(&lines(
        "# a note\n127.0.0.1:6379> PING\nPONG\n\n# 20 ms later\n127.0.0.1:6379[1](TX)> EXEC\n(nil)",
    ));
    let typed =
        |command: &str, reply: &str| Act::Type { command: command.to_owned(), expected: lines(reply) };
    assert_eq!(acts, [typed("PING", "PONG"), Act::Pass(Duration::from_millis(20)), typed("EXEC", "(nil)")]);
}
