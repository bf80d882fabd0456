//! Weakened hosts, which tests compare with real ones: native code does for a script what it asks, as if the script had broken out of its
//! engine. They exist with the feature `weakened` alone, and only a program that calls `run_weakened` is one.

#[cfg(feature = "weakened")]
pub use self::given_away::{Weakness, run_weakened};
#[cfg(feature = "weakened")]
pub(super) use self::given_away::{has_sandbox, native_call};

#[cfg(feature = "weakened")]
mod given_away {
    use std::convert::Infallible;
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::process::Command;
    use std::sync::OnceLock;

    use crate::host_process::{HostFault, run};

    /// What a weakened host gives away.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Weakness {
        /// Native calls, in the sandbox of every host.
        NativeCalls,
        /// Native calls, and no sandbox.
        NoSandbox,
    }

    static WEAKNESS: OnceLock<Weakness> = OnceLock::new();

    /// Runs as a host that gives something away.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run_weakened(weakness: Weakness) -> Result<Infallible, HostFault> {
        let _ = WEAKNESS.set(weakness);
        run()
    }

    pub(in crate::host_process) fn has_sandbox() -> bool {
        WEAKNESS.get() != Some(&Weakness::NoSandbox)
    }

    /// Does what a script asks as the name of a secret, such as `native:read /etc/passwd`. `None` if that is refused.
    pub(in crate::host_process) fn native_call(name: &str) -> Option<String> {
        let (what, argument) =
            name.strip_prefix("native:").filter(|_| WEAKNESS.get().is_some())?.split_once(' ')?;
        let done = match what {
            "read" => std::fs::read(argument),
            "write" => std::fs::write(argument, "written").map(|()| Vec::new()),
            "connect" => {
                TcpStream::connect(argument).and_then(|mut to| to.write_all(b"x")).map(|()| Vec::new())
            }
            "run" => Command::new("cat").arg(argument).output().map(|done| done.stdout),
            _ => return None,
        };
        done.ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Every host has its sandbox.
#[cfg(not(feature = "weakened"))]
pub(super) const fn has_sandbox() -> bool {
    true
}

#[cfg(not(feature = "weakened"))]
pub(super) const fn native_call(_name: &str) -> Option<String> {
    None
}
