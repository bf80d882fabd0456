//! The sandbox of a host: seccomp with a list of allowed system calls. Every other call fails with `EPERM`, in all threads.
//!
//! A host that reads its first script has opened everything that it will ever use: its socket, its output, and the clock of the
//! isolate's thread. It opens nothing more, starts nothing, and signals no other process. The list names calls by their numbers of this
//! architecture, so a second set of numbers, such as that of the x32 ABI, is refused as a whole.

use std::collections::BTreeMap;
use std::ffi::c_long;
use std::io;

use rustix::process::getpid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

use crate::engine_name::EngineName;

/// When a call is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    /// Memory that the call maps or changes is not executable: its third argument is the protection.
    NotExecutable,
    /// The first argument is the process itself.
    OwnProcess,
}

/// An allowed call, and why a host needs it.
struct AllowedCall(c_long, Condition, #[expect(dead_code, reason = "for readers")] &'static str);

/// What a host needs, whatever its engine.
const FOR_EVERY_ENGINE: &[AllowedCall] = &[
    AllowedCall(libc::SYS_read, Condition::Always, "frames of the node"),
    AllowedCall(libc::SYS_readv, Condition::Always, "the same in several buffers"),
    AllowedCall(libc::SYS_recvfrom, Condition::Always, "the same from a socket"),
    AllowedCall(libc::SYS_recvmsg, Condition::Always, "the same in several buffers"),
    AllowedCall(libc::SYS_write, Condition::Always, "frames to the node, and messages of a panic"),
    AllowedCall(libc::SYS_writev, Condition::Always, "the same in several buffers"),
    AllowedCall(libc::SYS_sendto, Condition::Always, "the same to a socket"),
    AllowedCall(libc::SYS_sendmsg, Condition::Always, "the same in several buffers"),
    AllowedCall(libc::SYS_pread64, Condition::Always, "the CPU time of the isolate's thread"),
    AllowedCall(libc::SYS_ppoll, Condition::Always, "waits for an open descriptor"),
    AllowedCall(libc::SYS_shutdown, Condition::Always, "the last result: no task may follow it"),
    AllowedCall(libc::SYS_close, Condition::Always, "descriptors that are no longer used"),
    AllowedCall(libc::SYS_mmap, Condition::NotExecutable, "memory"),
    AllowedCall(libc::SYS_mprotect, Condition::NotExecutable, "memory: heaps of the C library grow by it"),
    AllowedCall(libc::SYS_munmap, Condition::Always, "memory"),
    AllowedCall(libc::SYS_mremap, Condition::Always, "memory"),
    AllowedCall(libc::SYS_madvise, Condition::Always, "memory that is given back"),
    AllowedCall(libc::SYS_brk, Condition::Always, "memory of the main thread"),
    AllowedCall(libc::SYS_futex, Condition::Always, "locks and channels between the threads"),
    AllowedCall(libc::SYS_sched_yield, Condition::Always, "spinning locks"),
    AllowedCall(
        libc::SYS_clock_gettime,
        Condition::Always,
        "CPU time, and clocks where the kernel maps none",
    ),
    AllowedCall(libc::SYS_clock_getres, Condition::Always, "the resolution of a clock"),
    AllowedCall(libc::SYS_clock_nanosleep, Condition::Always, "waits with a bound"),
    AllowedCall(libc::SYS_gettimeofday, Condition::Always, "Date, where the kernel maps no clock"),
    AllowedCall(libc::SYS_getrandom, Condition::Always, "crypto, Math.random and hash tables"),
    AllowedCall(libc::SYS_rt_sigreturn, Condition::Always, "the end of a signal handler"),
    AllowedCall(libc::SYS_rt_sigprocmask, Condition::Always, "signals while a thread ends or aborts"),
    AllowedCall(libc::SYS_rt_sigaction, Condition::Always, "the default action before an abort"),
    AllowedCall(libc::SYS_sigaltstack, Condition::Always, "the stack of the overflow handler"),
    AllowedCall(libc::SYS_restart_syscall, Condition::Always, "waits that a stop signal interrupted"),
    AllowedCall(libc::SYS_getpid, Condition::Always, "its own id, to end itself"),
    AllowedCall(libc::SYS_getppid, Condition::Always, "the self-test: whom it tries to signal"),
    AllowedCall(libc::SYS_gettid, Condition::Always, "its own id, for locks and aborts"),
    AllowedCall(libc::SYS_kill, Condition::OwnProcess, "ends itself"),
    AllowedCall(libc::SYS_tgkill, Condition::OwnProcess, "aborts itself"),
    AllowedCall(libc::SYS_exit, Condition::Always, "the end of a thread"),
    AllowedCall(libc::SYS_exit_group, Condition::Always, "the end of the process"),
];

/// What V8 needs besides: it compiles to machine code.
const FOR_V8: &[AllowedCall] = &[
    AllowedCall(libc::SYS_mmap, Condition::Always, "memory for machine code"),
    AllowedCall(libc::SYS_mprotect, Condition::Always, "machine code becomes executable"),
    AllowedCall(libc::SYS_pkey_mprotect, Condition::Always, "the same with protection keys"),
    AllowedCall(libc::SYS_membarrier, Condition::Always, "machine code that changes while threads run"),
    AllowedCall(libc::SYS_sched_getaffinity, Condition::Always, "the number of processors"),
];

/// Restricts all threads of this process, and those that a later one could start.
pub(super) fn apply(engine: EngineName) -> Result<(), String> {
    let filter = filter(engine, own_process())?;
    apply_filter_all_threads(&filter).map_err(|error| error.to_string())
}

/// What this process has open besides sockets and pipes. A supervisor passes nothing on but the standard streams, so there is nothing.
pub(super) fn foreign_descriptors() -> io::Result<Vec<String>> {
    let mut foreign = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        // The list itself is open while it is read.
        let is_list = target.starts_with("/proc/") && target.ends_with("/fd");
        if !is_list && !target.starts_with("socket:") && !target.starts_with("pipe:") {
            foreign.push(format!("{} ({target})", entry.file_name().display()));
        }
    }
    Ok(foreign)
}

fn own_process() -> u64 {
    u64::try_from(getpid().as_raw_nonzero().get()).unwrap_or(u64::MAX)
}

fn filter(engine: EngineName, own: u64) -> Result<BpfProgram, String> {
    let more = match engine {
        EngineName::QuickJs => &[],
        EngineName::V8 => FOR_V8,
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // What an engine needs more of replaces the narrower rule.
    for AllowedCall(number, condition, _) in FOR_EVERY_ENGINE.iter().chain(more) {
        rules.insert(*number, condition.rules(own).map_err(|error| error.to_string())?);
    }
    let arch =
        std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

impl Condition {
    /// The rules of a call; none if it is allowed whatever its arguments.
    fn rules(self, own: u64) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        const FIRST: u8 = 0;
        const PROTECTION: u8 = 2;
        let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
        let (argument, operator, value) = match self {
            Self::Always => return Ok(Vec::new()),
            Self::NotExecutable => (PROTECTION, SeccompCmpOp::MaskedEq(executable), 0),
            Self::OwnProcess => (FIRST, SeccompCmpOp::Eq, own),
        };
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_host_may_open_start_connect_or_trace() {
        let dangerous = [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_socket,
            libc::SYS_socketpair,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_accept4,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_open,
            libc::SYS_pidfd_getfd,
            libc::SYS_io_uring_setup,
            libc::SYS_bpf,
            libc::SYS_ioctl,
            libc::SYS_prctl,
            libc::SYS_memfd_create,
            libc::SYS_unshare,
            libc::SYS_mount,
        ];
        for AllowedCall(number, ..) in FOR_EVERY_ENGINE.iter().chain(FOR_V8) {
            assert!(!dangerous.contains(number), "the call {number} is allowed");
        }
        for engine in EngineName::ALL {
            assert!(filter(engine, own_process()).is_ok(), "{engine:?} has a filter");
        }
    }
}
