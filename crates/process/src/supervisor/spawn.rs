//! Spawns a process without a fork of the supervisor. The only file of the crate with `unsafe` in it.
//!
//! Between its start and the execution of its program a child has to set itself up: take a session of its own, tie its life
//! to the supervisor's, take its descriptors, change to its folder. The standard library offers that only by a fork, which
//! copies the supervisor's memory for a moment; that costs more than all else the supervisor does. So the child shares the
//! memory instead, as `posix_spawn` does internally: it runs on a stack of its own while the thread that started it is suspended.
#![allow(
    unsafe_code,
    reason = "the standard library starts a child with a session of its own only by a fork"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, setrlimit,
    setsid, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use super::frame::{About, SOCKET_FD};
use crate::sandbox::{ChildRuleset, DeniedCall};

/// Stack size of a child until it executes its program. It needs a small part of it.
const STACK_BYTES: usize = 64 * 1024;
/// The stack alignment that the processor requires.
const STACK_ALIGNMENT: usize = 16;
/// The named signals. Those after them are never ignored.
const NAMED_SIGNALS: std::ops::RangeInclusive<c_int> = 1..=31;

/// How to set up and execute a child.
#[derive(Debug)]
pub(super) struct SpawnPlan<'a> {
    /// Candidate paths of the program: the first executable one is used.
    pub(super) programs: &'a [CString],
    pub(super) argv: &'a [CString],
    pub(super) env: &'a [CString],
    pub(super) folder: Option<&'a CStr>,
    /// The same as an open descriptor.
    pub(super) start: Option<BorrowedFd<'a>>,
    /// The descriptor limit.
    pub(super) descriptors: Rlimit,
    /// Its stdin, stdout and stderr. No other descriptor of the supervisor is inherited.
    pub(super) stdio: [BorrowedFd<'a>; 3],
    /// The socket, which becomes [`SOCKET_FD`].
    pub(super) socket: Option<BorrowedFd<'a>>,
    /// The list of members of its control group.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
    /// The sandbox to apply.
    pub(super) ruleset: Option<&'a ChildRuleset>,
}

/// Starts a child in a session of its own, which is killed when this thread ends. All signals have their default action,
/// whatever the node was started with.
pub(super) fn start(plan: &SpawnPlan<'_>) -> Result<Pid, (About, io::Error)> {
    let refused = |error| (About::Program, error);
    let shared = SpawnShared {
        parent: getpid(),
        plan,
        argv: pointers(plan.argv),
        env: pointers(plan.env),
        failed: ExecErrors::default(),
    };
    let mut stack: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(STACK_BYTES);
    let end = stack.as_mut_ptr_range().end;
    let top = end.wrapping_sub(end.addr() % STACK_ALIGNMENT);
    let blocked = Blocked::all_signals().map_err(refused)?;
    // SAFETY: `CLONE_VFORK` suspends this thread until the child has executed another program or has exited; so the
    // child, which shares this memory (`CLONE_VM`), finds `shared` and `stack` alive and is their only user. `top` is
    // aligned, and lies in `stack` with all of it below. No signal handler can run in the child: all signals are blocked.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(become_the_program, top.cast(), flags, ptr::from_ref(&shared).cast_mut().cast())
    };
    let error = io::Error::last_os_error();
    drop(blocked);
    let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten().ok_or_else(|| refused(error))?;
    let Some((about, errno)) = shared.failed.first() else { return Ok(pid) };
    let _ = waitpid(Some(pid), WaitOptions::empty());
    Err((about, io::Error::from_raw_os_error(errno)))
}

/// Marks the descriptors that this process was started with as close-on-exec, except the first three. Those it opens itself are
/// close-on-exec anyway.
pub(super) fn keep_descriptors() -> io::Result<()> {
    const FIRST_OTHER: c_int = 3;
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")?.collect::<Result<_, _>>()?;
    let numbers = open.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number| *number >= FIRST_OTHER) {
        // SAFETY: whatever the number refers to, only its close-on-exec flag is set. The descriptor of the listed folder is
        // closed already, which is harmless.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Tries a call that sandboxes deny, and returns the kernel's answer. Where it is not denied it has no effect either.
pub(crate) fn try_call(call: &DeniedCall) -> Result<c_long, Errno> {
    let [a, b, c, d, e, f] = call.trial();
    // SAFETY: only the table of denied calls creates a `DeniedCall`, and its arguments are no addresses at which there is memory.
    match unsafe { libc::syscall(call.number(), a, b, c, d, e, f) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        answer => Ok(answer),
    }
}

/// Memory shared by parent and child.
struct SpawnShared<'a> {
    parent: Pid,
    plan: &'a SpawnPlan<'a>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    failed: ExecErrors,
}

/// The errors of a child before it executed its program; zero is none.
#[derive(Default)]
struct ExecErrors {
    containment: AtomicI32,
    folder: AtomicI32,
    sandbox: AtomicI32,
    program: AtomicI32,
}

impl ExecErrors {
    fn first(&self) -> Option<(About, i32)> {
        let all = [
            (About::Containment, &self.containment),
            (About::Folder, &self.folder),
            (About::Sandbox, &self.sandbox),
            (About::Program, &self.program),
        ];
        let mut all = all.into_iter().map(|(about, errno)| (about, errno.load(Ordering::Relaxed)));
        all.find(|(_, errno)| *errno != 0)
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// The child's part. It makes system calls and nothing else: an allocation, a lock or a panic would happen in the
/// supervisor's memory.
extern "C" fn become_the_program(shared: *mut c_void) -> c_int {
    // SAFETY: points to the `SpawnShared` on the stack of `start`, which is suspended.
    let shared = unsafe { &*shared.cast::<SpawnShared<'_>>() };
    let failed = &shared.failed;
    let ready = shared
        .contain()
        .map_err(|errno| (&failed.containment, errno))
        .and_then(|()| shared.go().map_err(|errno| (&failed.folder, errno)))
        // Last: the sandbox forbids the steps before.
        .and_then(|()| shared.confine().map_err(|errno| (&failed.sandbox, errno)));
    let (of_what, errno) = match ready {
        Err(failed) => failed,
        Ok(()) => (&failed.program, shared.exec()),
    };
    of_what.store(errno.raw_os_error(), Ordering::Relaxed);
    // SAFETY: ends the child, without running the exit handlers of the supervisor.
    unsafe { libc::_exit(127) }
}

impl SpawnShared<'_> {
    /// Sets up everything that keeps the child from escaping, and from inheriting what it should not have.
    fn contain(&self) -> Result<(), Errno> {
        if let Some(members) = self.plan.cgroup {
            // Zero is the writing process.
            rustix::io::write(members, b"0")?;
        }
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(self.parent) {
            // The supervisor died before its death could be signalled.
            return Err(Errno::SRCH);
        }
        let [stdin, stdout, stderr] = self.plan.stdio;
        dup2_stdin(stdin)?;
        dup2_stdout(stdout)?;
        dup2_stderr(stderr)?;
        // Last: a descriptor that happened to have this number has been duplicated by now.
        self.plan.socket.map_or(Ok(()), take_socket)?;
        setrlimit(Resource::Nofile, self.plan.descriptors)?;
        unblock_all_signals()
    }

    fn go(&self) -> Result<(), Errno> {
        match self.plan.start {
            Some(start) => rustix::process::fchdir(start),
            None => self.plan.folder.map_or(Ok(()), rustix::process::chdir),
        }
    }

    /// Gives up the rights that the program must not have. None can be regained.
    fn confine(&self) -> Result<(), Errno> {
        let Some(rules) = self.plan.ruleset else { return Ok(()) };
        set_no_new_privs(true)?;
        for (resource, limit) in &rules.limits {
            setrlimit(*resource, *limit)?;
        }
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        let no_flags: c_int = 0;
        // SAFETY: takes a descriptor and no memory, and restricts this process, not the supervisor.
        let outcome =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.ruleset.as_raw_fd(), no_flags) };
        if outcome != 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        rules.filters.iter().try_for_each(|filter| {
            // Makes two system calls, and holds nothing that would have to be released.
            seccompiler::apply_filter(filter).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
                    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
                }
                seccompiler::Error::Backend(_)
                | seccompiler::Error::EmptyFilter
                | seccompiler::Error::ThreadSync(_) => Errno::INVAL,
            })
        })
    }

    /// Executes the first executable program. Returns only if there is none, with the error.
    fn exec(&self) -> Errno {
        let mut worst = Errno::NOENT;
        for program in self.plan.programs {
            // SAFETY: all three are null-terminated, and the strings they point to are alive.
            unsafe { libc::execve(program.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            match Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL) {
                Errno::NOENT | Errno::NOTDIR => {}
                // A later candidate may be executable.
                Errno::ACCESS => worst = Errno::ACCESS,
                other => return other,
            }
        }
        worst
    }
}

/// While it exists, no signal is delivered to this thread.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all_signals() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` writes the whole set, and so does `pthread_sigmask` if it returns zero.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self(before.assume_init())),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set was written by the system.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// In the child: moves the socket to the number that the program expects, and makes it inheritable.
fn take_socket(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the child has its own descriptor table, so no descriptor of the supervisor is closed by this. A duplicate is
    // inherited; a descriptor that had the number already is not duplicated, so its flag is cleared.
    let outcome = unsafe {
        match libc::dup2(socket.as_raw_fd(), SOCKET_FD) {
            -1 => -1,
            _ => libc::fcntl(SOCKET_FD, libc::F_SETFD, 0),
        }
    };
    if outcome == -1 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(())
}

/// In the child: resets the signal actions and the mask of the supervisor.
fn unblock_all_signals() -> Result<(), Errno> {
    // SAFETY: all zeroes is the default action without flags, and the empty set. The child has its own table of
    // signal actions and its own mask.
    let outcome = unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        for signal in NAMED_SIGNALS {
            // SIGKILL and SIGSTOP cannot be changed, and need not be.
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const default.sa_mask, ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(outcome)) }
}
