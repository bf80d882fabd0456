//! The main loop of the supervisor: one thread, which handles requests and reaps children.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::children::{Children, ReapTimer};
use super::frame::{Request, Response};
use super::server_io::ServerIo;
use super::spawn::keep_descriptors;
use crate::descriptors;

/// Why the supervisor failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the supervisor cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Supervises children for the node at the other end of standard input, until that end closes and nothing is left.
///
/// The main function of the supervisor process calls it before it starts anything else, and exits when it returns. When
/// the calling thread ends, the children are killed.
///
/// # Errors
/// When standard input is not the socket, or the system refuses a resource.
pub fn serve() -> Result<(), ServeError> {
    keep_descriptors()?;
    descriptors::raise();
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut children = Children::of(getpid().as_raw_pid())?;
    let mut held = Vec::new();
    let mut untidy = Vec::new();
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let deaths = signal(SignalKind::child())?;
        let server = ServerIo::new(socket)?;
        let (children, held, untidy) = (&mut children, &mut held, &mut untidy);
        Serving { server, deaths, children, held, timer: None, untidy }.run().await;
        Ok::<_, io::Error>(())
    })?;
    children.end_all();
    drop(children);
    for folder in untidy {
        // No other process would remove the folder; and there is no node left to report an error to.
        let _ = std::fs::remove_dir_all(folder);
    }
    drop(held);
    Ok(())
}

enum SupervisorEvent {
    Order(Request, Vec<OwnedFd>),
    /// A process has died that the supervisor may be able to reap.
    Died,
    NodeGone,
    /// The node has not reset the timer, so its leases are about to expire.
    Lapsed,
}

struct Serving<'a> {
    server: ServerIo,
    deaths: Signal,
    children: &'a mut Children,
    held: &'a mut Vec<OwnedFd>,
    /// Expires when the node's leases are about to.
    timer: Option<pipe::Receiver>,
    /// Folders to remove at the end: at most one per pool.
    untidy: &'a mut Vec<PathBuf>,
}

impl Serving<'_> {
    async fn run(mut self) {
        let mut look = ReapTimer::WhenChildDies;
        loop {
            // Not biased: neither a flood of requests nor one of deaths may delay the other.
            let event = tokio::select! {
                request = self.server.next_order() => match request {
                    Ok(Some((request, descriptors))) => SupervisorEvent::Order(request, descriptors),
                    // After an unreadable frame the node cannot be served any more: its children must not be left alone.
                    Ok(None) | Err(_) => SupervisorEvent::NodeGone,
                },
                _ = self.deaths.recv() => SupervisorEvent::Died,
                () = run_out(self.timer.as_ref()) => SupervisorEvent::Lapsed,
                () = std::future::ready(()), if look == ReapTimer::Again => SupervisorEvent::Died,
            };
            let reports: Vec<_> = match event {
                SupervisorEvent::Order(request, descriptors) => {
                    self.obey(request, descriptors).into_iter().collect()
                }
                SupervisorEvent::Died => {
                    let (ended, next) = self.children.settle();
                    look = next;
                    ended.into_iter().map(|(id, exit)| Response::Ended { id, exit }).collect()
                }
                SupervisorEvent::Lapsed => {
                    self.children.kill_all();
                    vec![Response::Lapsed]
                }
                SupervisorEvent::NodeGone => return,
            };
            self.server.report(&reports).await;
        }
    }

    fn obey(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Option<Response> {
        match request {
            Request::Begin { containment, descriptors } => {
                self.children.let_have(descriptors);
                Some(match self.children.contain(containment) {
                    Ok(contained) => {
                        Response::Ready { contained, cgroup: self.children.cgroup().map(Path::to_owned) }
                    }
                    Err(error) => Response::Unable { why: error.to_string() },
                })
            }
            Request::Watch { id } => {
                // Read like a pipe: a number arrives on expiry, and nothing before.
                let timer = descriptors.into_iter().next();
                self.timer = timer.and_then(|timer| pipe::Receiver::from_owned_fd_unchecked(timer).ok());
                Some(if self.timer.is_some() { Response::Held { id } } else { Response::NotHeld { id } })
            }
            // The kernel drops descriptors that exceed the receiver's limit.
            Request::Hold { id, count } if descriptors.len() < count => Some(Response::NotHeld { id }),
            Request::Hold { id, .. } => {
                *self.held = descriptors;
                Some(Response::Held { id })
            }
            Request::Spawn(spawn) => {
                let id = spawn.id;
                Some(match self.children.spawn(*spawn, descriptors) {
                    Ok(pid) => Response::Spawned { id, pid: pid.as_raw_pid() },
                    Err((about, error)) => Response::Refused {
                        id,
                        errno: error.raw_os_error().unwrap_or_else(|| Errno::INVAL.raw_os_error()),
                        about,
                        why: error.raw_os_error().is_none().then(|| error.to_string()),
                    },
                })
            }
            Request::Tidy { folder } => {
                self.untidy.push(folder);
                None
            }
            Request::Terminate { id } => {
                self.children.terminate(id);
                None
            }
            Request::Kill { id } => {
                self.children.kill(id);
                None
            }
        }
    }
}

/// Waits until the timer has expired. Cancel safe.
async fn run_out(timer: Option<&pipe::Receiver>) {
    let Some(timer) = timer else { return std::future::pending().await };
    loop {
        if timer.readable().await.is_err() {
            return std::future::pending().await;
        }
        let mut times = [0; size_of::<u64>()];
        match timer.try_read(&mut times) {
            Ok(_) => return,
            // The node has reset the timer just in time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return std::future::pending().await,
        }
    }
}
