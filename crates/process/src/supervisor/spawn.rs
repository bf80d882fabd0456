//! Starts a process without copying the supervisor first. The only file of the crate with `unsafe` in it.
//!
//! Between its birth and its program a child has a few things to do for itself: take a session of its own, tie its life
//! to the supervisor's, take its descriptors, go to its folder. The standard library offers that only by a fork, which
//! copies the supervisor's memory for a moment; that costs more than all else the supervisor does. So the child borrows the
//! memory instead, as `posix_spawn` does inside: it runs on a stack of its own while the thread that started it stands still.
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

/// Bytes of the stack on which a child runs until it has become its program. It needs a small part of it.
const STACK_BYTES: usize = 64 * 1024;
/// What the processor wants a stack to be aligned to.
const STACK_ALIGNMENT: usize = 16;
/// The signals that have a name. What came after them is never ignored by anybody.
const NAMED_SIGNALS: std::ops::RangeInclusive<c_int> = 1..=31;

/// What becomes of a child.
#[derive(Debug)]
pub(super) struct SpawnPlan<'a> {
    /// Where its program may be: the first that can be run, is.
    pub(super) programs: &'a [CString],
    pub(super) argv: &'a [CString],
    pub(super) env: &'a [CString],
    pub(super) folder: Option<&'a CStr>,
    /// The same, if it is open already.
    pub(super) start: Option<BorrowedFd<'a>>,
    /// How many descriptors it may have.
    pub(super) descriptors: Rlimit,
    /// What it reads, writes, and complains to. Nothing else of the supervisor's goes on to it.
    pub(super) stdio: [BorrowedFd<'a>; 3],
    /// Its socket, which becomes [`SOCKET_FD`].
    pub(super) socket: Option<BorrowedFd<'a>>,
    /// The list of members of the control group that it goes into.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
    /// What it may do at most from then on.
    pub(super) cage: Option<&'a ChildRuleset>,
}

/// Starts a child in a session of its own, which is killed when this thread ends. Every signal does to it what it does by
/// default, whatever the node was started with.
pub(super) fn start(plan: &SpawnPlan<'_>) -> Result<Pid, (About, io::Error)> {
    let refused = |error| (About::Program, error);
    let birth = SpawnShared {
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
    // SAFETY: `CLONE_VFORK` lets this thread stand still until the child has become another program or has ended; so the
    // child, which has this memory (`CLONE_VM`), finds `birth` and `stack` alive and is the only one to use them. `top` is
    // aligned, and lies in `stack` with all of it below. No signal handler can run in the child: all are blocked.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(become_the_program, top.cast(), flags, ptr::from_ref(&birth).cast_mut().cast())
    };
    let error = io::Error::last_os_error();
    drop(blocked);
    let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten().ok_or_else(|| refused(error))?;
    let Some((about, errno)) = birth.failed.first() else { return Ok(pid) };
    let _ = waitpid(Some(pid), WaitOptions::empty());
    Err((about, io::Error::from_raw_os_error(errno)))
}

/// From here on, what this process was started with does not go on to its children, except the first three descriptors.
/// What it opens itself does not anyway.
pub(super) fn keep_descriptors() -> io::Result<()> {
    const FIRST_OTHER: c_int = 3;
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")?.collect::<Result<_, _>>()?;
    let numbers = open.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|number| *number >= FIRST_OTHER) {
        // SAFETY: whatever the number means, it only says what happens to it when a program is started. The folder that
        // was listed is closed again, and nobody minds.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Tries a call that sandboxes deny, and says what the kernel answered. Where it is not denied it does nothing either.
pub(crate) fn try_call(call: &DeniedCall) -> Result<c_long, Errno> {
    let [a, b, c, d, e, f] = call.trial();
    // SAFETY: only the table of denied calls makes a `DeniedCall`, and its arguments are no addresses at which there is memory.
    match unsafe { libc::syscall(call.number(), a, b, c, d, e, f) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        answer => Ok(answer),
    }
}

/// What parent and child share.
struct SpawnShared<'a> {
    parent: Pid,
    plan: &'a SpawnPlan<'a>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    failed: ExecErrors,
}

/// The errors by which a child failed before it became its program; nought is none.
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

/// The child's part. It calls the system and nothing else: whatever would allocate, lock or panic, would do so in the
/// supervisor's memory.
extern "C" fn become_the_program(birth: *mut c_void) -> c_int {
    // SAFETY: it is the `SpawnShared` that `start` has on its stack, and `start` stands still.
    let birth = unsafe { &*birth.cast::<SpawnShared<'_>>() };
    let failed = &birth.failed;
    let ready = birth
        .contain()
        .map_err(|errno| (&failed.containment, errno))
        .and_then(|()| birth.go().map_err(|errno| (&failed.folder, errno)))
        // Last: whoever is in it may no longer do what comes before.
        .and_then(|()| birth.confine().map_err(|errno| (&failed.sandbox, errno)));
    let (of_what, errno) = match ready {
        Err(failed) => failed,
        Ok(()) => (&failed.program, birth.exec()),
    };
    of_what.store(errno.raw_os_error(), Ordering::Relaxed);
    // SAFETY: it ends the child, and runs nothing that the supervisor has set up for its own end.
    unsafe { libc::_exit(127) }
}

impl SpawnShared<'_> {
    /// All that keeps it from getting away, and from having what it should not have.
    fn contain(&self) -> Result<(), Errno> {
        if let Some(members) = self.plan.cgroup {
            // Zero is whoever writes it.
            rustix::io::write(members, b"0")?;
        }
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(self.parent) {
            // The supervisor died before it could be told.
            return Err(Errno::SRCH);
        }
        let [stdin, stdout, stderr] = self.plan.stdio;
        dup2_stdin(stdin)?;
        dup2_stdout(stdout)?;
        dup2_stderr(stderr)?;
        // Last: whatever has its number by chance was taken before.
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

    /// Gives up whatever its program is not to have. Nothing of it can be taken back.
    fn confine(&self) -> Result<(), Errno> {
        let Some(cage) = self.plan.cage else { return Ok(()) };
        set_no_new_privs(true)?;
        for (resource, limit) in &cage.limits {
            setrlimit(*resource, *limit)?;
        }
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        let no_flags: c_int = 0;
        // SAFETY: it takes a descriptor and no memory, and changes what this process may do, not the supervisor.
        let outcome =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, cage.ruleset.as_raw_fd(), no_flags) };
        if outcome != 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        cage.filters.iter().try_for_each(|filter| {
            // It makes two calls to the system, and holds nothing that would have to be given back.
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

    /// Becomes the first program that can be run. Comes back only if there is none, with what was wrong.
    fn exec(&self) -> Errno {
        let mut worst = Errno::NOENT;
        for program in self.plan.programs {
            // SAFETY: the three end with a null, and the texts they point to are alive.
            unsafe { libc::execve(program.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            match Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL) {
                Errno::NOENT | Errno::NOTDIR => {}
                // There may be one further on that may be run.
                Errno::ACCESS => worst = Errno::ACCESS,
                other => return other,
            }
        }
        worst
    }
}

/// While it is there, no signal is delivered to this thread.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all_signals() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` writes the whole set, and so does `pthread_sigmask` if it says zero.
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
        // SAFETY: the set is one that the system gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// In the child: the socket gets the number that the program knows, and goes on to it.
fn take_socket(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the child has its own table of descriptors, so nothing of the supervisor's is closed by this. A copy goes on to the
    // program; a descriptor that had the number already is none, so it is told to.
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

/// In the child: what the supervisor ignores or handles is the supervisor's affair.
fn unblock_all_signals() -> Result<(), Errno> {
    // SAFETY: all zeroes is the default action without flags, and the empty set. The child has its own table of
    // actions and its own mask.
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
