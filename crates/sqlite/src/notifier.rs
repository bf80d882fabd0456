//! Notifier: wake-ups between processes on one host, by a datagram to every listening store after the commit.
//!
//! Each listening store has a socket in the store's folder. A datagram is one byte, which names the signal and carries no
//! data. It may be lost; listeners also poll.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_store::{Bells, Clock, Rings};

const SUFFIX: &str = "wake";
/// Tasks became ready. Unknown bytes of later versions are treated like this one.
const READY: &[u8; 1] = b"!";
/// A node should renew now.
const NEWS: &[u8; 1] = b"n";
/// How often a control signal is retried for a store whose buffer is full: it may be full of `READY` signals, which do
/// not imply it.
const NEWS_TRIES: usize = 20;
/// Limit on the stores notified; the others find out by polling.
const MAX_PEERS: usize = 256;
/// Changes closer together than this may have the same folder modification time: file systems take it from a clock that
/// ticks every few milliseconds.
const FOLDER_TICK: Duration = Duration::from_millis(50);
/// Numbers the stores of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Notifies other processes, and receives their signals.
pub(crate) struct Notifier {
    folder: PathBuf,
    /// The open folder: gives short paths to the sockets in it.
    handle: Option<File>,
    own: PathBuf,
    bells: Arc<Bells>,
    clock: Arc<dyn Clock>,
    listener: Mutex<Option<Subscriber>>,
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

struct Subscriber {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

/// The sockets in the folder, as of its last change.
#[derive(Default)]
struct KnownSockets {
    changed: Option<(i64, i64)>,
    /// Until this time, the folder may have changed again without a new modification time.
    unsure_until: Duration,
    sockets: Vec<PathBuf>,
}

impl Notifier {
    pub(crate) fn new(folder: &Path, bells: Arc<Bells>, clock: Arc<dyn Clock>) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = folder.join(format!("{}-{number}.{SUFFIX}", std::process::id()));
        let sender = UnixDatagram::unbound().ok();
        if let Some(sender) = &sender {
            // A slow receiver must not delay a commit.
            let _ = sender.set_nonblocking(true);
        }
        let handle = File::open(folder).ok();
        Self {
            folder: folder.to_owned(),
            handle,
            own,
            bells,
            clock,
            listener: Mutex::default(),
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
        // A dead process that had our number may have left its socket.
        let _ = std::fs::remove_file(&self.own);
        let Ok(socket) = UnixDatagram::bind(self.short(&self.own)) else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let (bells, stopped) = (Arc::clone(&self.bells), Arc::clone(&stop));
        let listen = move || {
            let mut said = [0u8; 1];
            while socket.recv(&mut said).is_ok() && !stopped.load(Ordering::SeqCst) {
                let news = said == *NEWS;
                bells.ring(Rings { ready: !news, control: news });
            }
        };
        let thread = std::thread::Builder::new().name("ostler-wake".into()).spawn(listen);
        *listener = thread.ok().map(|thread| Subscriber { thread, stop });
    }

    /// Sends these signals, within this process and to all others.
    pub(crate) fn tell(&self, rings: Rings) {
        if rings == Rings::default() {
            return;
        }
        self.bells.ring(rings);
        let Some(sender) = &self.sender else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed =
            std::fs::metadata(&self.folder).ok().map(|folder| (folder.mtime(), folder.mtime_nsec()));
        let now = self.clock.uptime();
        if known.changed != changed {
            known.changed = changed;
            known.unsure_until = now + FOLDER_TICK;
            known.sockets = self.sockets();
        } else if !known.unsure_until.is_zero() {
            if now > known.unsure_until {
                known.unsure_until = Duration::ZERO;
            }
            known.sockets = self.sockets();
        }
        for socket in &known.sockets {
            if rings.ready {
                // A full buffer already holds a signal.
                self.send(sender, READY, socket);
            }
            if rings.control {
                let full = |_: &usize| self.send(sender, NEWS, socket) == Sent::Full;
                (0..NEWS_TRIES).take_while(full).for_each(|_| std::thread::yield_now());
            }
        }
    }

    fn send(&self, sender: &UnixDatagram, said: &[u8; 1], socket: &Path) -> Sent {
        match sender.send_to(said, self.short(socket)) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Sent::Full,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                // Its process died, and no other code removes the socket.
                let _ = std::fs::remove_file(socket);
                Sent::Done
            }
            Ok(_) | Err(_) => Sent::Done,
        }
    }

    fn short(&self, path: &Path) -> PathBuf {
        short(self.handle.as_ref(), path)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        paths
            .filter(|path| *path != self.own && path.extension().is_some_and(|end| end == SUFFIX))
            .take(MAX_PEERS)
            .collect()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Subscriber { thread, stop }) = listener {
            stop.store(true, Ordering::SeqCst);
            let woken =
                UnixDatagram::unbound().and_then(|socket| socket.send_to(READY, self.short(&self.own)));
            let _ = std::fs::remove_file(&self.own);
            if woken.is_ok() {
                let _ = thread.join();
            }
        }
    }
}

/// A path that fits into a socket address (108 bytes), through the open folder if it is too long.
fn short(folder: Option<&File>, path: &Path) -> PathBuf {
    const ROOM: usize = 100;
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) if path.as_os_str().as_bytes().len() > ROOM => {
            Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
        }
        _ => path.to_owned(),
    }
}
