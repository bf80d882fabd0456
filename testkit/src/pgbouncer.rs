//! A private PgBouncer in front of a private PostgreSQL server: on a port of its own, gone when the test is.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::postgres::{Kept, Made, PrivatePostgres};
use crate::signal::MAX_WAIT;

/// Where Debian keeps it, which is not in the path of every user.
const PLACES: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
/// How long to wait before looking again whether it is up.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// When a connection to the server goes back to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// At the end of a transaction.
    Transaction,
    /// When the client goes.
    Session,
}

impl PoolMode {
    const fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Session => "session",
        }
    }
}

/// A private PgBouncer. It is stopped when this is dropped, and when the process ends.
#[derive(Debug)]
pub struct PrivatePgbouncer {
    port: u16,
    kept: Kept,
}

impl PrivatePgbouncer {
    /// Starts one in front of this server, with at most so many connections to it.
    ///
    /// # Panics
    /// When there is none on this machine, or it does not come up.
    #[must_use]
    pub fn start(server: &PrivatePostgres, mode: PoolMode, connections: usize) -> Self {
        let program = PLACES.iter().map(PathBuf::from).find(|path| path.exists());
        let program = program.expect("this test needs PgBouncer (Debian: apt-get install pgbouncer)");
        // Free a moment ago. A pooler that does not get it does not come up.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a port can be had").port();
        let made = Made::anywhere(program.parent().expect("it has a folder").to_owned());
        let (folder, mode) = (made.folder().display(), mode.name());
        let settings = format!(
            "[databases]\nostler = host={} port=5432 dbname=ostler user=ostler\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = {connections}\nmax_client_conn = 300\nlogfile = {folder}/pgbouncer.log\n",
            server.folder().display()
        );
        let ini = made.keep_secret("pgbouncer.ini", &settings);
        let mut command = made.program("pgbouncer");
        command.arg("-q").arg(ini);
        let pooler = Self { port, kept: Kept::start(made.into_folder(), "TERM", &command) };
        pooler.wait_until_up();
        pooler
    }

    /// Where a client finds the server behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ostler@127.0.0.1:{}/ostler", self.port)
    }

    /// Stops it at once, with all its connections, and starts it again at the same place.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.kept.say("stop");
        self.kept.say("start");
        self.wait_until_up();
    }

    fn wait_until_up(&self) {
        let until = Instant::now() + MAX_WAIT;
        let (_never, pause) = channel::<()>();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "the private PgBouncer does not come up: {}", self.kept.log());
            let _ = pause.recv_timeout(LOOK_AGAIN);
        }
    }
}
