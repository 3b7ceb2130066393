//! The module's commands, settings and events are as those of the server itself.

use std::time::Duration;

use redislock_testkit::{
    Client, Holder, LockInfo, Reply, Server, Version, cmd, eventually, every_server, module_path, raw, send,
};

const SOON: Duration = Duration::from_secs(20);

fn say(client: &mut Client, line: &str) -> Reply {
    client.cmd(&line.split(' ').collect::<Vec<_>>())
}

/// A command: its name, arity, flags, first key, and categories beside `@lock`.
type Listed = (&'static str, i64, &'static [&'static str], i64, &'static [&'static str]);

/// Every command.
const COMMANDS: [Listed; 15] = [
    ("lock.acquire", -4, &["write", "denyoom"], 1, &["@write"]),
    ("lock.reenter", -4, &["write", "denyoom"], 1, &["@write"]),
    ("lock.renew", -4, &["write", "fast"], 1, &["@write", "@fast"]),
    ("lock.release", -3, &["write", "fast"], 1, &["@write", "@fast"]),
    ("lock.downgrade", 3, &["write", "fast"], 1, &["@write", "@fast"]),
    ("lock.macquire", -5, &["write", "denyoom", "movablekeys"], 2, &["@write"]),
    ("lock.mrenew", -5, &["write", "fast", "movablekeys"], 2, &["@write", "@fast"]),
    ("lock.mrelease", -4, &["write", "fast", "movablekeys"], 2, &["@write", "@fast"]),
    ("lock.guard", -4, &["write", "movablekeys"], 1, &["@write"]),
    ("lock.fence", 4, &["write", "fast"], 1, &["@write", "@fast"]),
    ("lock.info", 2, &["readonly"], 1, &["@read"]),
    ("lock.waiters", -2, &["readonly"], 1, &["@read"]),
    ("lock.break", -2, &["write"], 1, &["@write", "@dangerous"]),
    ("lock.help", 1, &["fast"], 0, &["@fast"]),
    ("lock.apply", 3, &["write", "fast"], 1, &["@write", "@fast"]),
];

/// The names of a set or array of statuses.
fn names(reply: &Reply) -> Vec<String> {
    let mut names: Vec<_> = reply.texts().into_iter().map(str::to_lowercase).collect();
    names.sort();
    names
}

fn watched(server: &Server, client: &mut Client, key: &str, change: impl FnOnce(&mut Client)) -> bool {
    cmd!(client, "WATCH", key).ok();
    change(&mut server.connect());
    cmd!(client, "MULTI").ok();
    cmd!(client, "PING");
    cmd!(client, "EXEC").is_nil()
}

every_server! {
    fn command_info_tells_arity_flags_keys_and_categories(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (name, arity, flags, first, categories) in COMMANDS {
            let info = cmd!(client, "COMMAND", "INFO", name);
            let info = info.array()[0].array();
            assert_eq!(info[0].text().to_lowercase(), name);
            // 6.2 checks no arity for modules, which do it themselves.
            assert_eq!(info[1].int(), if version == Version::Redis62 { -1 } else { arity }, "{name}");
            let has = names(&info[2]);
            for flag in flags {
                assert!(has.contains(&(*flag).to_owned()), "{name} lacks the flag {flag}: {has:?}");
            }
            for flag in ["denyoom", "readonly", "write", "fast", "movablekeys", "admin", "noscript"] {
                assert!(flags.contains(&flag) || !has.contains(&flag.to_owned()), "{name} has the flag {flag}");
            }
            // Where keys are counted, newer servers say no more than that they can be asked for.
            let counted = first == 2 && version != Version::Redis62;
            assert_eq!(info[3].int(), if counted { 0 } else { first }, "{name}");
            if version.has_acl_categories() {
                let mut wanted: Vec<_> = categories.iter().map(|category| (*category).to_owned()).collect();
                wanted.push("@lock".to_owned());
                wanted.sort();
                let mut has = names(&info[6]);
                // What is not fast is slow, on servers that say so for modules.
                has.retain(|category| category != "@slow" || categories.contains(&"@fast"));
                assert_eq!(has, wanted, "{name}");
            }
            if version.has_command_docs() && first > 0 {
                let spec = &info[8].array()[0];
                let access = names(spec.field("flags"));
                let wanted = match name {
                    "lock.info" | "lock.waiters" => ["access", "ro"],
                    "lock.release" | "lock.mrelease" | "lock.break" => ["delete", "rw"],
                    _ => ["rw", "update"],
                };
                for flag in wanted {
                    assert!(access.contains(&flag.to_owned()), "{name}: {access:?}");
                }
            }
        }
        if version != Version::Redis62 {
            let listed = names(&cmd!(client, "COMMAND", "LIST", "FILTERBY", "MODULE", "lock"));
            let mut known: Vec<_> = COMMANDS.iter().map(|command| command.0.to_owned()).collect();
            known.sort();
            assert_eq!(listed, known);
        }
    }

    fn command_docs_tell_summary_and_arguments(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let docs = |client: &mut Client, name: &str| cmd!(client, "COMMAND", "DOCS", name);
        if !version.has_command_docs() {
            assert!(docs(&mut client, "lock.acquire").is_error(), "6.2 has no such thing");
            return;
        }
        for (name, ..) in COMMANDS {
            let reply = docs(&mut client, name);
            let doc = reply.field(&name.to_uppercase());
            for part in ["summary", "complexity", "since"] {
                assert!(!doc.field(part).text().is_empty(), "{name}: {part}");
            }
            assert_eq!(doc.field("module").text(), "lock");
        }
        let reply = docs(&mut client, "lock.reenter");
        let arguments = reply.field("LOCK.REENTER").field("arguments").array().to_vec();
        let named: Vec<_> = arguments.iter().map(|argument| argument.field("name").text()).collect();
        assert_eq!(named, ["key", "owner", "ttl", "sharing", "timeout", "session", "n"]);
        assert_eq!(arguments[0].field("type").text(), "key");
        assert_eq!(arguments[4].field("token").text(), "WAIT");
        let sharing = arguments[3].field("arguments").array();
        let tokens: Vec<_> = sharing.iter().map(|argument| argument.field("token").text()).collect();
        assert_eq!(tokens, ["SHARED", "LIMIT"]);
    }

    fn getkeys_finds_the_keys(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (line, keys) in [
            ("LOCK.ACQUIRE k A 1", "k"),
            ("LOCK.ACQUIRE k A 1 SHARED LIMIT 5 WAIT 5 SESSION", "k"),
            ("LOCK.REENTER k A 1 HOLD 3", "k"),
            ("LOCK.RENEW k A 1", "k"),
            ("LOCK.RELEASE k A", "k"),
            ("LOCK.FENCE k A 1", "k"),
            ("LOCK.DOWNGRADE k A", "k"),
            ("LOCK.INFO k", "k"),
            ("LOCK.WAITERS k COUNT 3", "k"),
            ("LOCK.BREAK k A 5", "k"),
            ("LOCK.APPLY k x", "k"),
            ("LOCK.MACQUIRE 1 a A 1", "a"),
            ("LOCK.MACQUIRE 3 a b c A 1 WAIT 5", "a b c"),
            ("LOCK.MRENEW 2 a b A 1", "a b"),
            ("LOCK.MRELEASE 2 a b A", "a b"),
        ] {
            let reply = say(&mut client, &format!("COMMAND GETKEYS {line}"));
            assert_eq!(reply.texts().join(" "), keys, "{line}");
        }
        if version.has_guard() {
            let reply = say(&mut client, "COMMAND GETKEYS LOCK.GUARD k A MSET x 1 y 2");
            assert_eq!(names(&reply), ["k", "x", "y"]);
        }
    }

    fn help_names_every_command(version) {
        let server = Server::start(version);
        let reply = cmd!(server.connect(), "LOCK.HELP");
        let text = reply.texts().join("\n");
        for usage in [
            "LOCK.ACQUIRE key owner ttl [SHARED [LIMIT n]] [WAIT timeout] [SESSION]",
            "LOCK.REENTER key owner ttl [SHARED [LIMIT n]] [WAIT timeout] [SESSION] [HOLD n]",
            "LOCK.RENEW key owner ttl [SESSION]",
            "LOCK.RELEASE key owner [HOLD n | ALL]",
            "LOCK.DOWNGRADE key owner",
            "LOCK.MACQUIRE numkeys key [key ...] owner ttl [WAIT timeout] [SESSION]",
            "LOCK.MRENEW numkeys key [key ...] owner ttl [SESSION]",
            "LOCK.MRELEASE numkeys key [key ...] owner",
            "LOCK.GUARD key owner command [arg ...]",
            "LOCK.FENCE key owner token",
            "LOCK.INFO key",
            "LOCK.WAITERS key [COUNT n]",
            "LOCK.BREAK key [owner [fence]]",
            "LOCK.HELP",
        ] {
            assert!(text.lines().any(|line| line == usage), "{usage} is not in {text}");
        }
    }

    fn b101_key_patterns_and_commands_bound_a_user(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let user = |client: &mut Client, rules: &str| {
            say(client, &format!("ACL SETUSER u reset on >p {rules}")).ok();
            let mut user = server.connect();
            cmd!(user, "AUTH", "u", "p").ok();
            user
        };
        let mut bounded = user(&mut client, "~lock:* +@all");
        assert!(cmd!(bounded, "LOCK.ACQUIRE", "lock:a", "A", 50_000).int() > 0);
        for line in [
            "LOCK.ACQUIRE other A 1000",
            "LOCK.ACQUIRE other A 1000 WAIT 0",
            "LOCK.REENTER other A 1000",
            "LOCK.RENEW other A 1000",
            "LOCK.RELEASE other A",
            "LOCK.FENCE other A 1",
            "LOCK.DOWNGRADE other A",
            "LOCK.INFO other",
            "LOCK.WAITERS other",
            "LOCK.BREAK other",
            "LOCK.MACQUIRE 2 lock:b other A 1000",
            "LOCK.MACQUIRE 2 other lock:b A 1000",
            "LOCK.MRENEW 2 lock:a other A 1000",
            "LOCK.MRELEASE 2 lock:a other A",
        ] {
            assert_eq!(say(&mut bounded, line).error_code(), "NOPERM", "{line}");
        }
        assert_eq!(cmd!(client, "DBSIZE").int(), 1);
        assert_eq!(cmd!(bounded, "LOCK.MRELEASE", 1, "lock:a", "A").ints(), [0]);

        let mut without = user(&mut client, "~* +@all -lock.break -lock.acquire");
        for line in ["LOCK.BREAK k", "LOCK.ACQUIRE k A 1000"] {
            assert_eq!(say(&mut without, line).error_code(), "NOPERM", "{line}");
        }
        cmd!(without, "LOCK.REENTER", "k", "A", 50_000).array();

        if version.has_guard() {
            let mut guard = user(&mut client, "~k ~x +lock.guard +get +lock.info");
            cmd!(guard, "LOCK.GUARD", "k", "A", "GET", "x").nil();
            for line in ["LOCK.GUARD k A SET x 1", "LOCK.GUARD k A GET y", "LOCK.GUARD k A LOCK.RELEASE k A"] {
                assert_eq!(say(&mut guard, line).error_code(), "NOPERM", "{line}");
            }
        }
        if version == Version::Redis62 {
            return;
        }
        let mut reader = user(&mut client, "%R~* +@all");
        assert!(!cmd!(reader, "LOCK.INFO", "k").is_nil());
        assert!(cmd!(reader, "LOCK.WAITERS", "k").array().is_empty());
        for line in ["LOCK.RENEW k A 1", "LOCK.RELEASE k A", "LOCK.BREAK k", "LOCK.ACQUIRE k2 A 1", "LOCK.FENCE k A 1"] {
            assert_eq!(say(&mut reader, line).error_code(), "NOPERM", "{line}");
        }
        assert_eq!(Holder::of(&mut client, "k").holds, 1);
    }

    fn b101_categories_cover_the_commands_where_the_server_knows_any(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        if !version.has_acl_categories() {
            assert!(cmd!(client, "ACL", "CAT", "lock").is_error());
            return;
        }
        let category = names(&cmd!(client, "ACL", "CAT", "lock"));
        let mut known: Vec<_> = COMMANDS.iter().map(|command| command.0.to_owned()).collect();
        known.sort();
        assert_eq!(category, known);
        say(&mut client, "ACL SETUSER u on >p ~* -@all +@lock -@dangerous").ok();
        let mut user = server.connect();
        cmd!(user, "AUTH", "u", "p").ok();
        assert!(cmd!(user, "LOCK.ACQUIRE", "k", "A", 50_000).int() > 0);
        assert_eq!(cmd!(user, "LOCK.BREAK", "k").error_code(), "NOPERM");
        assert_eq!(cmd!(user, "GET", "k").error_code(), "NOPERM");
        say(&mut client, "ACL SETUSER u -@write").ok();
        assert_eq!(cmd!(user, "LOCK.RENEW", "k", "A", 1000).error_code(), "NOPERM");
        assert!(!cmd!(user, "LOCK.INFO", "k").is_nil());
    }

    /// A waiter whose user is taken away is gone, and is not granted.
    fn b101_a_waiter_without_its_user_is_not_granted(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        say(&mut client, "ACL SETUSER u on >p ~* +@all").ok();
        let mut user = server.connect();
        cmd!(user, "AUTH", "u", "p").ok();
        send!(user, "LOCK.ACQUIRE", "k", "B", 50_000, "WAIT", 0);
        eventually(SOON, || client.info("lock_waiters").as_deref() == Some("1"));
        assert_eq!(cmd!(client, "ACL", "DELUSER", "u").int(), 1);
        eventually(SOON, || client.info("lock_waiters").as_deref() == Some("0"));
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "C", 1000).int() > 0);
        assert!(user.is_closed_within(SOON));
    }

    fn only_grants_are_denied_when_memory_is_full(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "k2", "A", 50_000).int();
        cmd!(client, "CONFIG", "SET", "maxmemory", 1).ok();
        for line in [
            "LOCK.ACQUIRE free B 1000",
            "LOCK.ACQUIRE k B 1000 WAIT 0",
            "LOCK.REENTER k A 1000",
            "LOCK.MACQUIRE 1 free B 1000",
        ] {
            assert_eq!(say(&mut client, line).error_code(), "OOM", "{line}");
        }
        let script = "return redis.call('LOCK.ACQUIRE', 'free', 'B', 1000)";
        assert!(cmd!(client, "EVAL", script, 0).error().contains("OOM"));
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), fence);
        assert_eq!(cmd!(client, "LOCK.FENCE", "k", "A", 1).int(), fence);
        assert_eq!(cmd!(client, "LOCK.MRENEW", 1, "k", "A", 50_000).ints(), [fence]);
        assert_eq!(cmd!(client, "LOCK.DOWNGRADE", "k", "A").int(), fence);
        assert_eq!(Holder::of(&mut client, "k").fence, fence);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        assert_eq!(cmd!(client, "LOCK.BREAK", "k2").int(), 1);
        cmd!(client, "CONFIG", "SET", "maxmemory", 0).ok();
        assert!(cmd!(client, "LOCK.ACQUIRE", "free", "B", 1000).int() > 0);
    }

    fn writes_are_refused_as_those_of_the_server(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let before = cmd!(client, "DUMP", "k");
        cmd!(client, "CONFIG", "SET", "min-replicas-to-write", 1).ok();
        for line in ["LOCK.ACQUIRE free A 1000", "LOCK.RENEW k A 1000", "LOCK.RELEASE k A", "LOCK.BREAK k"] {
            assert_eq!(say(&mut client, line).error_code(), "NOREPLICAS", "{line}");
        }
        assert!(!cmd!(client, "LOCK.INFO", "k").is_nil());
        cmd!(client, "CONFIG", "SET", "min-replicas-to-write", 0).ok();
        assert_eq!(cmd!(client, "DUMP", "k"), before);
    }

    fn b102_replies_have_the_form_of_each_protocol(version) {
        let server = Server::start(version);
        for (protocol, null) in [(2, "$-1\r\n"), (3, "_\r\n")] {
            let mut client = server.connect();
            client.hello(protocol);
            cmd!(client, "FLUSHALL").ok();
            let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            for line in [
                "LOCK.ACQUIRE k B 1000",
                "LOCK.ACQUIRE k B 1000 WAIT 1",
                "LOCK.REENTER k B 1000",
                "LOCK.REENTER k B 1000 WAIT 1",
                "LOCK.RENEW k B 1000",
                "LOCK.RELEASE k B",
                "LOCK.FENCE k B 1",
                "LOCK.DOWNGRADE k B",
                "LOCK.INFO free",
                "LOCK.MACQUIRE 2 free k B 1000",
                "LOCK.MACQUIRE 2 free k B 1000 WAIT 1",
            ] {
                let reply = text(client.raw(&line.split(' ').collect::<Vec<_>>()));
                assert_eq!(reply, null, "{line} in RESP{protocol}");
            }
            assert_eq!(text(raw!(client, "LOCK.RENEW", "k", "A", 50_000)), format!(":{fence}\r\n"));
            assert_eq!(text(raw!(client, "LOCK.REENTER", "k", "A", 9)), format!("*2\r\n:2\r\n:{fence}\r\n"));
            assert_eq!(text(raw!(client, "LOCK.RELEASE", "k", "A")), ":1\r\n");
            let several = raw!(client, "LOCK.MRENEW", 2, "k", "free", "A", 50_000);
            assert_eq!(text(several), format!("*2\r\n:{fence}\r\n{null}"));
            assert_eq!(text(raw!(client, "LOCK.MRELEASE", 2, "free", "k", "A")), format!("*2\r\n{null}:0\r\n"));
            assert_eq!(text(raw!(client, "LOCK.WAITERS", "k")), "*0\r\n");
            cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000, "SHARED", "LIMIT", 2).int();
            let info = text(raw!(client, "LOCK.INFO", "k"));
            // 6.2 lets no module send a map.
            let map = |pairs: usize| match protocol == 3 && version != Version::Redis62 {
                true => format!("%{pairs}\r\n"),
                false => format!("*{}\r\n", pairs * 2),
            };
            let head = format!(
                "{}$4\r\nmode\r\n$6\r\nshared\r\n$5\r\nlimit\r\n:2\r\n$7\r\nwaiters\r\n:0\r\n$7\r\nholders\r\n*1\r\n{}",
                map(4),
                map(6)
            );
            assert!(info.starts_with(&head), "{info:?} for {head:?}");
            let error = text(raw!(client, "LOCK.ACQUIRE", "k", "A", 50_000));
            assert!(error.starts_with("-HELD ") && error.ends_with("\r\n"), "{error:?}");
            cmd!(client, "MULTI").ok();
            assert_eq!(text(raw!(client, "LOCK.RENEW", "k", "B", 1000)), "+QUEUED\r\n");
            assert_eq!(text(raw!(client, "EXEC")), format!("*1\r\n{null}"));
        }
    }

    fn b87_watch_sees_changes_and_nothing_else(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let mut sees = |line: &str| {
            watched(&server, &mut client, "k", |other| {
                assert!(!say(other, line).is_error(), "{line}");
            })
        };
        for line in [
            "LOCK.ACQUIRE k A 50000",
            "LOCK.RENEW k A 50000",
            "LOCK.REENTER k A 50000",
            "LOCK.RELEASE k A",
            "LOCK.DOWNGRADE k A",
            "LOCK.ACQUIRE k B 50000 SHARED",
            "LOCK.BREAK k B",
            "LOCK.RELEASE k A ALL",
            "LOCK.MACQUIRE 2 other k A 50000",
            "LOCK.MRENEW 2 other k A 50000",
            "LOCK.MRELEASE 2 other k A",
            "LOCK.ACQUIRE k A 50000",
        ] {
            assert!(sees(line), "{line} was not seen");
        }
        for line in [
            "LOCK.ACQUIRE k B 50000",
            "LOCK.RENEW k B 50000",
            "LOCK.RELEASE k B",
            "LOCK.INFO k",
            "LOCK.WAITERS k",
            "LOCK.BREAK k B",
            "LOCK.MACQUIRE 2 free k B 50000",
        ] {
            assert!(!sees(line), "{line} changed nothing, and was seen");
        }
        assert!(sees("DEL k"));
    }

    fn b87_watch_sees_the_end_of_a_lease_and_a_hand_over(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50).int();
        let expired = watched(&server, &mut client, "k", |_| std::thread::sleep(Duration::from_millis(80)));
        assert!(expired);
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 300).int();
        let mut waiter = server.connect();
        send!(waiter, "LOCK.ACQUIRE", "k", "B", 50_000, "WAIT", 0);
        eventually(SOON, || server.info("lock_waiters") == "1");
        let handed_over = watched(&server, &mut client, "k", |_| {
            waiter.read().int();
        });
        assert!(handed_over);
    }

    fn b87_a_transaction_tries_once_and_never_blocks(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "MULTI").ok();
        for line in [
            "LOCK.ACQUIRE k B 1000 WAIT 0",
            "LOCK.REENTER k B 1000 WAIT 500000",
            "LOCK.MACQUIRE 2 free k B 1000 WAIT 0",
            "LOCK.RELEASE k A",
            "LOCK.ACQUIRE k B 50000 WAIT 0 SESSION",
            "LOCK.ACQUIRE k B 1000",
            "LOCK.ACQUIRE k C 1000 0",
        ] {
            assert_eq!(say(&mut client, line).text(), "QUEUED", "{line}");
        }
        let replies = cmd!(client, "EXEC");
        let replies = replies.array();
        assert!(replies[..3].iter().all(Reply::is_nil), "{replies:?}");
        assert_eq!(replies[3].int(), 0);
        assert!(replies[4].int() > 0);
        assert_eq!(replies[5].error_code(), "HELD");
        assert_eq!(replies[6].error_code(), "ERR");
        let holder = Holder::of(&mut client, "k");
        assert_eq!((holder.owner, holder.session), (b"B".to_vec(), true));
        assert_eq!(cmd!(client, "EXISTS", "free").int(), 0);
        assert_eq!(server.info("lock_waiters"), "0");
        // What can't be right is refused when it is queued, where the server knows the arity.
        cmd!(client, "MULTI").ok();
        cmd!(client, "LOCK.ACQUIRE", "k");
        let reply = cmd!(client, "EXEC");
        match version {
            Version::Redis62 => assert!(reply.array()[0].is_error()),
            _ => assert_eq!(reply.error_code(), "EXECABORT"),
        }
        cmd!(client, "MULTI").ok();
        cmd!(client, "LOCK.RELEASE", "k", "B");
        cmd!(client, "DISCARD").ok();
        assert_eq!(Holder::of(&mut client, "k").owner, b"B");
    }

    fn b87_a_script_tries_once_and_never_blocks(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let call = |client: &mut Client, line: &str| {
            let words: Vec<_> = line.split(' ').map(|word| format!("'{word}'")).collect();
            let script = format!("return redis.call({})", words.join(", "));
            cmd!(client, "EVAL", script, 1, "k")
        };
        call(&mut client, "LOCK.ACQUIRE k B 1000 WAIT 0").nil();
        call(&mut client, "LOCK.REENTER k B 1000 WAIT 50000").nil();
        call(&mut client, "LOCK.MACQUIRE 1 k B 1000 WAIT 0").nil();
        let session = call(&mut client, "LOCK.RENEW k A 1000 SESSION");
        assert!(session.error().contains("SESSION can't be used in scripts"), "{session:?}");
        assert!(call(&mut client, "LOCK.ACQUIRE k A 1000").error().contains("HELD"));
        assert!(call(&mut client, "LOCK.RENEW k A 0").error().contains("ttl must be between"));
        let script = "redis.call('LOCK.RELEASE', KEYS[1], 'A')
            return redis.call('LOCK.ACQUIRE', KEYS[1], 'B', 50000, 'WAIT', 0)";
        assert!(cmd!(client, "EVAL", script, 1, "k").int() > 0);
        assert_eq!(Holder::of(&mut client, "k").owner, b"B");
        let script = "local info = redis.call('LOCK.INFO', KEYS[1]) return info[2]";
        assert_eq!(cmd!(client, "EVAL", script, 1, "k").text(), "exclusive");
        // A script that fails after a grant has made it nevertheless, as with any command.
        let script = "redis.call('LOCK.ACQUIRE', 'k2', 'B', 50000) return redis.call('GET', 'k2')";
        assert!(cmd!(client, "EVAL", script, 0).error().contains("WRONGTYPE"));
        assert_eq!(Holder::of(&mut client, "k2").owner, b"B");
        if version.has_functions() {
            let library = "#!lua name=l\nredis.register_function('take', function(keys, args)
                return redis.call('LOCK.ACQUIRE', keys[1], args[1], 50000, 'WAIT', 0) end)
                redis.register_function{function_name='look', callback=function(keys, args)
                return redis.call('LOCK.INFO', keys[1])[2] end, flags={'no-writes'}}";
            cmd!(client, "FUNCTION", "LOAD", library).text();
            cmd!(client, "FCALL", "take", 1, "k", "C").nil();
            assert!(cmd!(client, "FCALL", "take", 1, "k3", "C").int() > 0);
            assert_eq!(cmd!(client, "FCALL_RO", "look", 1, "k3").text(), "exclusive");
            let script = "#!lua flags=no-writes\nreturn redis.call('LOCK.RENEW', KEYS[1], 'C', 1000)";
            assert!(cmd!(client, "EVAL", script, 1, "k3").is_error(), "a script that may not write renews");
        }
        assert_eq!(server.info("lock_waiters"), "0");
        assert_eq!(server.info("blocked_clients"), "0");
    }

    fn client_tracking_tells_of_changes(version) {
        let server = Server::start(version);
        let mut reader = server.connect();
        reader.hello(3);
        cmd!(reader, "CLIENT", "TRACKING", "ON").ok();
        let mut client = server.connect();
        for line in [
            "LOCK.ACQUIRE k A 50000",
            "LOCK.RENEW k A 50000",
            "LOCK.REENTER k A 50000",
            "LOCK.RELEASE k A",
            "LOCK.RELEASE k A",
            "LOCK.MACQUIRE 1 k A 50000",
            "LOCK.BREAK k",
        ] {
            LockInfo::of(&mut reader, "k");
            reader.take_pushes();
            assert!(!say(&mut client, line).is_error());
            eventually(SOON, || {
                cmd!(reader, "PING");
                let pushes = reader.take_pushes();
                pushes.iter().any(|push| format!("{push:?}").contains("invalidate"))
            });
        }
        LockInfo::of(&mut reader, "k");
        reader.take_pushes();
        say(&mut client, "LOCK.RENEW k B 1000").nil();
        cmd!(reader, "PING");
        assert!(reader.take_pushes().is_empty());
    }

    fn keyspace_events_tell_what_became_of_a_lock(version) {
        let server = Server::builder(version).config("notify-keyspace-events", "KEA").start();
        let mut events = server.connect();
        cmd!(events, "PSUBSCRIBE", "__keyevent@0__:*");
        let mut client = server.connect();
        let mut after = |client: &mut Client, line: &str| {
            let reply = say(client, line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
            cmd!(client, "SET", "mark", line).ok();
            let mut told = Vec::new();
            loop {
                let message = events.read();
                let words = message.texts();
                let event = words[2].trim_start_matches("__keyevent@0__:").to_owned();
                if words[3] == "mark" {
                    return told.join(" ");
                }
                told.push(format!("{event}({})", words[3]));
            }
        };
        for (line, told) in [
            ("LOCK.ACQUIRE k A 50000", "lock.granted(k)"),
            ("LOCK.ACQUIRE k B 50000", ""),
            ("LOCK.RENEW k A 50000", "lock.renewed(k)"),
            ("LOCK.REENTER k A 50000", "lock.reentered(k)"),
            ("LOCK.RELEASE k A", "lock.released(k)"),
            ("LOCK.DOWNGRADE k A", "lock.downgraded(k)"),
            ("LOCK.ACQUIRE k B 50000 SHARED", "lock.granted(k)"),
            ("LOCK.RELEASE k B", "lock.released(k)"),
            ("LOCK.FENCE k A 1", ""),
            ("LOCK.RELEASE k A", "lock.released(k) del(k)"),
            ("LOCK.RELEASE k A", ""),
            ("LOCK.MACQUIRE 2 x y A 50000", "lock.granted(x) lock.granted(y)"),
            ("LOCK.BREAK x", "lock.revoked(x) del(x)"),
            ("DEL y", "del(y)"),
            ("LOCK.INFO k", ""),
        ] {
            let found = after(&mut client, line);
            // Newer servers tell of new keys, and of types, too.
            let found: Vec<_> = found.split(' ').filter(|event| !event.starts_with("new(") && !event.starts_with("type_changed(")).collect();
            assert_eq!(found.join(" "), told, "{line}");
        }
    }

    fn settings_are_arguments_of_loadmodule(version) {
        let server = Server::builder(version).module_args(["max-ttl", "1000", "MAX-WAITERS", "1"]).start();
        let mut client = server.connect();
        let reply = cmd!(client, "LOCK.ACQUIRE", "k", "A", 1001);
        assert_eq!(reply.error(), "ERR ttl must be between 1 and 1000 milliseconds");
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 1000).int();
        let mut waiter = server.connect();
        send!(waiter, "LOCK.ACQUIRE", "k", "B", 1000, "WAIT", 0);
        eventually(SOON, || server.info("lock_waiters") == "1");
        let reply = cmd!(client, "LOCK.ACQUIRE", "k", "C", 1000, "WAIT", 0);
        assert_eq!(reply.error_code(), "QUEUEFULL");
        waiter.read().int();
    }

    fn a_bad_setting_stops_the_start_with_a_line_that_says_why(version) {
        for (args, why) in [
            (&["max-ttl"][..], "setting 'max-ttl' has no value"),
            (&["max-ttl", "0"], "setting 'max-ttl' must be between 1 and"),
            (&["max-ttl", "-1"], "setting 'max-ttl' must be between 1 and"),
            (&["max-ttl", "1e3"], "setting 'max-ttl' must be between 1 and"),
            (&["max-ttl", "05"], "setting 'max-ttl' must be between 1 and"),
            (&["max-ttl", "99999999999999999999"], "setting 'max-ttl' must be between 1 and"),
            (&["max-ttl", "5", "max-ttl", "6"], "setting 'max-ttl' is given twice"),
            (&["max-waiters", "x"], "setting 'max-waiters' must be between 0 and"),
            (&["max-waiters", "5", "extra"], "unknown setting 'extra'"),
            (&["", "5"], "unknown setting ''"),
            (&["100%s%n", "5"], "unknown setting '100%s%n'"),
        ] {
            let log = Server::builder(version).module_args(args.iter().copied()).try_start().unwrap_err();
            assert!(log.contains(&format!("redislock is not loaded: {why}")), "{args:?}: {log}");
        }
    }

    fn settings_are_known_to_config_where_the_server_has_that(version) {
        let server = Server::builder(version).module_args(["max-ttl", "5000"]).start();
        let mut client = server.connect();
        if !version.has_config() {
            assert!(cmd!(client, "CONFIG", "GET", "lock.*").array().is_empty());
            assert!(cmd!(client, "CONFIG", "SET", "lock.max-ttl", 7000).is_error());
            return;
        }
        let get = |client: &mut Client, name: &str| cmd!(client, "CONFIG", "GET", name).field(name).text().to_owned();
        assert_eq!(cmd!(client, "CONFIG", "GET", "lock.*").pairs().len(), 2);
        assert_eq!(get(&mut client, "lock.max-ttl"), "5000");
        assert_eq!(get(&mut client, "lock.max-waiters"), "10000");
        cmd!(client, "CONFIG", "SET", "lock.max-ttl", 7000, "lock.max-waiters", 3).ok();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "A", 7000).int() > 0);
        assert!(cmd!(client, "LOCK.ACQUIRE", "k2", "A", 7001).error().contains("between 1 and 7000"));
        for (name, value) in
            [("lock.max-ttl", "0"), ("lock.max-ttl", "x"), ("lock.max-waiters", "-1"), ("lock.nonsense", "1")]
        {
            assert!(cmd!(client, "CONFIG", "SET", name, value).is_error(), "{name} {value}");
        }
        assert_eq!(get(&mut client, "lock.max-ttl"), "7000");
        cmd!(client, "CONFIG", "REWRITE").ok();
        server.restart();
        let mut client = server.connect();
        assert_eq!(get(&mut client, "lock.max-ttl"), "7000");
        assert_eq!(get(&mut client, "lock.max-waiters"), "3");
    }

    fn a_line_of_the_configuration_file_sets_a_setting(version) {
        if !version.has_config() {
            let log = Server::builder(version).config("lock.max-ttl", 7000).try_start().unwrap_err();
            assert!(log.contains("lock.max-ttl"), "{log}");
            return;
        }
        let server = Server::builder(version).config("lock.max-ttl", 7000).start();
        assert!(cmd!(server.connect(), "LOCK.ACQUIRE", "k", "A", 7001).error().contains("between 1 and 7000"));
        for (name, value) in [("lock.max-ttl", "0"), ("lock.max-ttl", "x"), ("lock.no-such-setting", "1")] {
            let log = Server::builder(version).config(name, value).try_start().unwrap_err();
            assert!(log.contains("onfig"), "{name} {value}: {log}");
        }
    }

    fn b79_the_module_stays_loaded(version) {
        let server = Server::builder(version).config("appendonly", "yes").start();
        let mut client = server.connect();
        let list = cmd!(client, "MODULE", "LIST");
        let ours: Vec<_> = list.array().iter().filter(|module| module.field("name").text() == "lock").collect();
        assert_eq!((ours.len(), ours[0].field("ver").int()), (1, 100));
        let copy = server.dir().join("copy.so");
        std::fs::copy(module_path(), &copy).unwrap();
        let load = |client: &mut Client| {
            assert!(cmd!(client, "MODULE", "UNLOAD", "lock").is_error());
            assert!(cmd!(client, "MODULE", "LOAD", module_path().display().to_string()).is_error());
            assert!(cmd!(client, "MODULE", "LOAD", copy.display().to_string(), "max-ttl", "5").is_error());
            cmd!(client, "PING");
        };
        load(&mut client);
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        load(&mut client);
        let mut waiter = server.connect();
        send!(waiter, "LOCK.ACQUIRE", "k", "B", 50_000, "WAIT", 0);
        eventually(SOON, || server.info("lock_waiters") == "1");
        load(&mut client);
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), fence, "max-ttl is what it was");
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        assert!(waiter.read().int() > fence);
        server.restart();
        assert_eq!(Holder::of(&mut server.connect(), "k").owner, b"B");
    }

    /// The module can be loaded into a running server, and its type is known from then on.
    fn the_module_is_loaded_into_a_running_server(version) {
        let server = Server::builder(version).without_module().start();
        let mut client = server.connect();
        let path = module_path().display().to_string();
        assert!(cmd!(client, "MODULE", "LOAD", &path, "max-ttl", "none").is_error());
        assert_eq!(cmd!(client, "LOCK.HELP").error_code(), "ERR", "a refused module left its commands behind");
        assert!(server.log().contains("redislock is not loaded: setting 'max-ttl' must be"), "{}", server.log());
        cmd!(client, "MODULE", "LOAD", &path, "max-ttl", "9000").ok();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "A", 9000).int() > 0);
        assert!(cmd!(client, "LOCK.ACQUIRE", "k2", "A", 9001).is_error());
    }

    fn info_has_a_section_of_the_module(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000).nil();
        cmd!(client, "LOCK.RELEASE", "k", "A").int();
        let info = cmd!(client, "INFO", "lock");
        let text = info.text();
        assert!(text.contains("# lock"), "{text}");
        for (field, value) in [
            ("last_fence", fence.to_string()),
            ("grants", "1".to_owned()),
            ("refusals", "1".to_owned()),
            ("releases", "1".to_owned()),
            ("waiters", "0".to_owned()),
            ("panics", "0".to_owned()),
        ] {
            assert!(text.contains(&format!("lock_{field}:{value}\r\n")), "{field} in {text}");
        }
        assert!(!cmd!(client, "INFO").text().contains("# lock"), "INFO alone shows no modules");
    }
}
