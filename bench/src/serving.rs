//! A node of the real program with an API and no work, and connections to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;

pub(crate) const TOKEN: &str = "the-token-of-a-benchmark";
/// The longest wait for an answer.
const MAX_ANSWER: Duration = Duration::from_secs(60);
/// How often the node renews, as its config says.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// The config of the node: a pool whose queue is empty. It keeps all tasks: it would prune those that are looked for, beside what is
/// measured.
const CONFIG: &str = r#"
lease = { ttl = "10s", heartbeat = "1s" }
[keep]
most = 1000000000
[pool.idle]
executor = "command"
command = ["true"]
"#;

/// A node with an API and no work. Killed on drop.
pub(crate) struct ServingNode {
    child: Child,
    address: String,
}

impl ServingNode {
    pub(crate) fn start(ostler: &Path, store: &str, folder: &Path) -> Result<Self, Error> {
        std::fs::write(folder.join("ostler.toml"), CONFIG)?;
        let mut child = Command::new(ostler)
            .args(["up", "--listen", "127.0.0.1:0", "--store", store])
            .current_dir(folder)
            .env("OSTLER_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("it has an output")?).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = ready["listen"].as_str().ok_or("it listens")?.to_owned();
        Ok(Self { child, address })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(MAX_ANSWER))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), host: self.address.clone() })
    }
}

impl Drop for ServingNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    /// The time to the first byte of an answer, and its body.
    pub(crate) fn get(&mut self, path: &str) -> Result<(Duration, String), Error> {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\r\n", self.host);
        let begun = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.stream.fill_buf()?;
        let took = begun.elapsed();
        let (mut length, mut status) = (0, String::new());
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse()?;
            }
            if status.is_empty() {
                status = line;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        if !status.contains(" 200") {
            return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into());
        }
        Ok((took, String::from_utf8(body)?))
    }
}
