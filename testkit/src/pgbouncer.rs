//! A private PgBouncer in front of a private PostgreSQL server: on its own port, removed with the test.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::postgres::{Kept, Made, PrivatePostgres};
use crate::signal::MAX_WAIT;

/// Where Debian installs it, which is not in every user's PATH.
const PLACES: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
/// The interval of checks whether it is up.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// When a server connection returns to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// At the end of a transaction.
    Transaction,
    /// When the client disconnects.
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

/// A private PgBouncer, stopped on drop and when the process ends.
#[derive(Debug)]
pub struct PrivatePgbouncer {
    port: u16,
    kept: Kept,
}

impl PrivatePgbouncer {
    /// Starts a PgBouncer in front of this server, with at most `connections` connections to it.
    ///
    /// # Panics
    /// When PgBouncer is not installed, or does not start.
    #[must_use]
    pub fn start(server: &PrivatePostgres, mode: PoolMode, connections: usize) -> Self {
        let program = PLACES.iter().map(PathBuf::from).find(|path| path.exists());
        let program = program.expect("this test needs PgBouncer (Debian: apt-get install pgbouncer)");
        // Another process may take the port in between; then the pooler does not start.
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

    /// The URL of the server through the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ostler@127.0.0.1:{}/ostler", self.port)
    }

    /// Stops the pooler at once, with all its connections, and starts it again on the same port.
    ///
    /// # Panics
    /// When it does not start.
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
