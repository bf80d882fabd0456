//! A network for tests: names resolve as the test says, and public addresses lead to servers on loopback.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ostler_isolate::fetch::FetchNetwork;
use tokio::net::TcpStream;

#[derive(Default)]
pub(crate) struct TestNetwork {
    /// The answers of the resolver for each name, one after the other. The last one stays.
    names: HashMap<String, Vec<Vec<IpAddr>>>,
    routes: HashMap<SocketAddr, SocketAddr>,
    lookups: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl TestNetwork {
    /// A name with these answers, one after the other.
    pub(crate) fn name(mut self, name: &str, answers: &[&[&str]]) -> Self {
        let parse = |answer: &&[&str]| answer.iter().map(|text| text.parse().expect(text)).collect();
        self.names.insert(name.to_owned(), answers.iter().map(parse).collect());
        self
    }

    /// Leads connections to an address to a server on loopback.
    pub(crate) fn route(mut self, address: &str, port: u16, to: SocketAddr) -> Self {
        self.routes.insert(SocketAddr::new(address.parse().expect(address), port), to);
        self
    }

    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// The names that were resolved.
    pub(crate) fn lookups(&self) -> Vec<String> {
        self.lookups.lock().expect("no panic").clone()
    }

    /// The addresses that were connected to.
    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().expect("no panic").clone()
    }
}

#[async_trait]
impl FetchNetwork for TestNetwork {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut lookups = self.lookups.lock().expect("no panic");
        let before = lookups.iter().filter(|name| *name == host).count();
        lookups.push(host.to_owned());
        let answers = self.names.get(host).ok_or(io::ErrorKind::NotFound)?;
        let answer = answers.get(before).or(answers.last()).ok_or(io::ErrorKind::NotFound)?;
        Ok(answer.iter().map(|address| SocketAddr::new(*address, port)).collect())
    }

    /// What is not routed is reached only on loopback: there a canary would notice.
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().expect("no panic").push(address);
        match self.routes.get(&address) {
            Some(to) => TcpStream::connect(to).await,
            None if address.ip().to_canonical().is_loopback() => TcpStream::connect(address).await,
            None => Err(io::ErrorKind::NetworkUnreachable.into()),
        }
    }
}
