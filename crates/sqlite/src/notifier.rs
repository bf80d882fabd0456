//! Notifier: wake-ups between processes on one host, by a datagram to every listening store after the commit.
//!
//! Each listening store has a socket in the store's folder, and so has each store that watches for changes. A datagram is one byte,
//! which names the signal and carries no data. It may be lost; listeners also poll.

use std::fs::{DirEntry, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ostler_store::{Bells, ChangeWatch, Clock, Rings};

/// The sockets of stores that listen for tasks and control signals.
const SUFFIX: &str = "wake";
/// The sockets of stores that watch for changes.
const WATCH_SUFFIX: &str = "watch";
/// Tasks became ready. Unknown bytes of later versions are treated like this one.
const READY: &[u8; 1] = b"!";
/// A node should renew now.
const NEWS: &[u8; 1] = b"n";
/// A task ended, or an event was written.
const CHANGED: &[u8; 1] = b"c";
/// How often a control signal is retried for a store whose buffer is full: it may be full of `READY` signals, which do
/// not imply it.
const NEWS_TRIES: usize = 20;
/// Limit on the stores notified, and on the watchers; the others find out by polling.
const MAX_PEERS: usize = 256;
/// Changes closer together than this may have the same folder modification time: file systems take it from a clock that
/// ticks every few milliseconds.
const FOLDER_TICK: Duration = Duration::from_millis(50);
/// A write that only watchers care about looks for new ones this often: without watchers it costs no system call.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Numbers the stores of this process, and their watches.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Notifies other processes, and receives their signals.
pub(crate) struct Notifier {
    folder: Arc<SocketFolder>,
    /// What the names of this store's sockets begin with.
    own: String,
    bells: Arc<Bells>,
    clock: Arc<dyn Clock>,
    listener: Mutex<Option<Listener>>,
    /// Shared by all that watch this store.
    watch: Mutex<Weak<SocketWatch>>,
    sender: Option<UnixDatagram>,
    known: Mutex<KnownSockets>,
}

/// The result of sending a datagram.
#[derive(PartialEq, Eq)]
enum Sent {
    /// Delivered, or permanently undeliverable.
    Done,
    /// The receiver's buffer is full.
    Full,
}

/// The sockets in the folder, as of its last change.
#[derive(Default)]
struct KnownSockets {
    changed: Option<(i64, i64)>,
    /// Until this time, the folder may have changed again without a new modification time.
    unsure_until: Duration,
    looked_at: Option<Instant>,
    listeners: Vec<PathBuf>,
    watchers: Vec<PathBuf>,
}

impl Notifier {
    pub(crate) fn new(folder: &Path, bells: Arc<Bells>, clock: Arc<dyn Clock>) -> Self {
        let own = format!("{}-{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let sender = UnixDatagram::unbound().ok();
        if let Some(sender) = &sender {
            // A slow receiver must not delay a commit.
            let _ = sender.set_nonblocking(true);
        }
        let folder = Arc::new(SocketFolder { path: folder.to_owned(), handle: File::open(folder).ok() });
        Self {
            folder,
            own,
            bells,
            clock,
            listener: Mutex::default(),
            watch: Mutex::default(),
            sender,
            known: Mutex::default(),
        }
    }

    /// Starts listening, unless it already does. If no socket can be created, polling has to suffice.
    pub(crate) fn listen(&self) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_some() {
            return;
        }
        let bells = Arc::clone(&self.bells);
        *listener = Listener::start(&self.folder, format!("{}{SUFFIX}", self.own), move |said| {
            let news = said == *NEWS;
            bells.ring(Rings { ready: !news, control: news, ..Rings::default() });
        });
    }

    /// Makes known that this store is watched, for as long as the result is kept.
    pub(crate) fn watch(&self) -> Arc<dyn ChangeWatch> {
        let mut shared = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = shared.upgrade() {
            return watch;
        }
        let bells = Arc::clone(&self.bells);
        let hear = move |_| bells.ring(Rings { changed: true, ..Rings::default() });
        // A name of its own: the former one may be on its way out.
        let name = format!("{}{}.{WATCH_SUFFIX}", self.own, NEXT.fetch_add(1, Ordering::Relaxed));
        let watch = Arc::new(SocketWatch(Listener::start(&self.folder, name, hear)));
        *shared = Arc::downgrade(&watch);
        watch
    }

    /// Sends these signals, within this process and to all others.
    pub(crate) fn tell(&self, rings: Rings) {
        if rings == Rings::default() {
            return;
        }
        self.bells.ring(rings);
        let Some(sender) = &self.sender else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_hint = !rings.ready && !rings.control;
        if !(is_hint && known.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY)) {
            self.look(&mut known);
        }
        if rings.changed {
            // A full buffer already holds a signal.
            for socket in &known.watchers {
                self.send(sender, CHANGED, socket);
            }
        }
        for socket in &known.listeners {
            if rings.ready {
                self.send(sender, READY, socket);
            }
            if rings.control {
                let full = |_: &usize| self.send(sender, NEWS, socket) == Sent::Full;
                (0..NEWS_TRIES).take_while(full).for_each(|_| std::thread::yield_now());
            }
        }
    }

    /// Looks for sockets, if the folder may have changed.
    fn look(&self, known: &mut KnownSockets) {
        let folder = std::fs::metadata(&self.folder.path);
        let changed = folder.ok().map(|folder| (folder.mtime(), folder.mtime_nsec()));
        let now = self.clock.uptime();
        known.looked_at = Some(Instant::now());
        if known.changed != changed {
            known.changed = changed;
            known.unsure_until = now + FOLDER_TICK;
        } else if known.unsure_until.is_zero() {
            return;
        } else if now > known.unsure_until {
            known.unsure_until = Duration::ZERO;
        }
        known.listeners = self.folder.sockets(SUFFIX, &self.own);
        known.watchers = self.folder.sockets(WATCH_SUFFIX, &self.own);
    }

    fn send(&self, sender: &UnixDatagram, said: &[u8; 1], socket: &Path) -> Sent {
        match sender.send_to(said, self.folder.short(socket)) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Sent::Full,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                // Its process died, and no other code removes the socket.
                let _ = std::fs::remove_file(socket);
                Sent::Done
            }
            Ok(_) | Err(_) => Sent::Done,
        }
    }
}

/// The folder of the sockets.
struct SocketFolder {
    path: PathBuf,
    /// The open folder: gives short paths to the sockets in it.
    handle: Option<File>,
}

impl SocketFolder {
    /// A path that fits into a socket address (108 bytes), through the open folder if it is too long.
    fn short(&self, path: &Path) -> PathBuf {
        const ROOM: usize = 100;
        match (&self.handle, path.file_name()) {
            (Some(folder), Some(name)) if path.as_os_str().as_bytes().len() > ROOM => {
                Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
            }
            _ => path.to_owned(),
        }
    }

    /// The sockets of other stores.
    fn sockets(&self, suffix: &str, own: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return Vec::new() };
        let is_other = |entry: &DirEntry| !entry.file_name().as_bytes().starts_with(own.as_bytes());
        let paths = entries.flatten().filter(is_other).map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|end| end == suffix)).take(MAX_PEERS).collect()
    }
}

/// A socket and the thread that reads it, until it is dropped.
struct Listener {
    folder: Arc<SocketFolder>,
    own: PathBuf,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    /// `None`: no socket or thread can be created.
    fn start(
        folder: &Arc<SocketFolder>,
        name: String,
        hear: impl Fn([u8; 1]) + Send + 'static,
    ) -> Option<Self> {
        let own = folder.path.join(name);
        // A dead process that had our number may have left its socket.
        let _ = std::fs::remove_file(&own);
        let socket = UnixDatagram::bind(folder.short(&own)).ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            let mut said = [0u8; 1];
            while socket.recv(&mut said).is_ok() && !stopped.load(Ordering::SeqCst) {
                hear(said);
            }
        };
        let thread = std::thread::Builder::new().name("ostler-wake".into()).spawn(listen).ok()?;
        Some(Self { folder: Arc::clone(folder), own, thread: Some(thread), stop })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let woken =
            UnixDatagram::unbound().and_then(|socket| socket.send_to(READY, self.folder.short(&self.own)));
        let _ = std::fs::remove_file(&self.own);
        if let Some(thread) = self.thread.take()
            && woken.is_ok()
        {
            let _ = thread.join();
        }
    }
}

/// The socket of a store that watches for changes, if one could be created.
struct SocketWatch(Option<Listener>);

impl ChangeWatch for SocketWatch {
    fn hears(&self) -> bool {
        self.0.is_some()
    }
}
