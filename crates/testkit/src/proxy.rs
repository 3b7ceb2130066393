//! A TCP proxy that delays, swallows, freezes and cuts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A proxy on loopback in front of a server. Its controls act on open connections too.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    requests: Direction,
    replies: Direction,
    refuses: AtomicBool,
    ended: AtomicBool,
    accepted: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

#[derive(Debug, Default)]
struct Direction {
    delay_us: AtomicU64,
    drops: AtomicBool,
    frozen: AtomicBool,
}

impl Direction {
    fn delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).expect("a delay of less than an age");
        self.delay_us.store(micros, Ordering::SeqCst);
    }
}

impl Proxy {
    /// A proxy in front of an address.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn new(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port for the proxy");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            requests: Direction::default(),
            replies: Direction::default(),
            refuses: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            open: Mutex::new(Vec::new()),
        });
        let acceptor = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &acceptor));
        Proxy { port, shared }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Its address as a URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// How many connections it took so far.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Sends new connections to another address.
    ///
    /// # Panics
    /// Never.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock().expect("nobody panics with it") = target;
    }

    /// Delays what goes either way, each way by so much. Order and throughput stay.
    pub fn delay(&self, delay: Duration) {
        self.delay_requests(delay);
        self.delay_replies(delay);
    }

    /// Delays what goes to the server.
    pub fn delay_requests(&self, delay: Duration) {
        self.shared.requests.delay(delay);
    }

    /// Delays what comes from the server.
    pub fn delay_replies(&self, delay: Duration) {
        self.shared.replies.delay(delay);
    }

    /// Swallows what goes to the server, the end of a connection included.
    pub fn drop_requests(&self, drops: bool) {
        self.shared.requests.drops.store(drops, Ordering::SeqCst);
    }

    /// Swallows what comes from the server, the end of a connection included.
    pub fn drop_replies(&self, drops: bool) {
        self.shared.replies.drops.store(drops, Ordering::SeqCst);
    }

    /// Holds back everything both ways, the end of a connection included, until thawed.
    pub fn freeze(&self, frozen: bool) {
        self.shared.requests.frozen.store(frozen, Ordering::SeqCst);
        self.shared.replies.frozen.store(frozen, Ordering::SeqCst);
    }

    /// Closes new connections at once.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Closes all connections, to both sides. New ones are served.
    ///
    /// # Panics
    /// Never.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().expect("nobody panics with it").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the acceptor, so that it sees the end.
        let _ = TcpStream::connect(self.addr());
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        if shared.refuses.load(Ordering::SeqCst) {
            continue;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let target = *shared.target.lock().expect("nobody panics with it");
        let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(10)) else { continue };
        let _ = join(client, server, shared);
    }
}

fn join(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    {
        let mut open = shared.open.lock().expect("nobody panics with it");
        open.push(client.try_clone()?);
        open.push(server.try_clone()?);
    }
    pump(client.try_clone()?, server.try_clone()?, shared, |shared| &shared.requests);
    pump(server, client, shared, |shared| &shared.replies);
    Ok(())
}

/// Carries bytes one way: a reader that stamps what comes, and a writer that passes it on when it is due.
fn pump(from: TcpStream, to: TcpStream, shared: &Arc<Shared>, direction: fn(&Shared) -> &Direction) {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || read_all(from, &sender));
    let shared = Arc::clone(shared);
    thread::spawn(move || write_all(to, &receiver, &shared, direction(&shared)));
}

/// An empty chunk is the end.
type Chunk = (Instant, Vec<u8>);

fn read_all(mut from: TcpStream, chunks: &mpsc::Sender<Chunk>) {
    let mut buffer = [0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        if chunks.send((Instant::now(), buffer[..length].to_vec())).is_err() || length == 0 {
            return;
        }
    }
}

fn write_all(mut to: TcpStream, chunks: &mpsc::Receiver<Chunk>, shared: &Shared, direction: &Direction) {
    for (came, bytes) in chunks {
        let due = |now: Instant| {
            let delay = Duration::from_micros(direction.delay_us.load(Ordering::SeqCst));
            (came + delay).saturating_duration_since(now)
        };
        loop {
            if shared.ended.load(Ordering::SeqCst) {
                return;
            }
            let left = due(Instant::now());
            if left.is_zero() && !direction.frozen.load(Ordering::SeqCst) {
                break;
            }
            // In small steps, since the controls may change meanwhile.
            thread::sleep(left.clamp(Duration::from_micros(100), Duration::from_millis(1)));
        }
        if direction.drops.load(Ordering::SeqCst) {
            continue;
        }
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}
