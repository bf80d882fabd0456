//! Denied system calls (seccomp): the table of what a sandboxed child may not call. The filters are built from it, and the probe
//! tries each call.
//!
//! The table covers what Landlock does not, or covers on newer kernels only. seccomp sees the number of a call and its
//! arguments, but not the memory behind a pointer. So a call that takes a path is denied for every path, or for none.

use std::ffi::{c_int, c_long};

use rustix::io::Errno;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp};

use super::confinement::{Attributes, Network};

/// Calls that libc does not name on every architecture. From 424 on, the numbers are the same on all of them.
mod newer {
    use std::ffi::c_long;

    pub(super) const FCHMODAT2: c_long = 452;
    pub(super) const STATMOUNT: c_long = 457;
    pub(super) const LISTMOUNT: c_long = 458;
    pub(super) const SETXATTRAT: c_long = 463;
    pub(super) const GETXATTRAT: c_long = 464;
    pub(super) const LISTXATTRAT: c_long = 465;
    pub(super) const REMOVEXATTRAT: c_long = 466;
    pub(super) const OPEN_TREE_ATTR: c_long = 467;
    pub(super) const FILE_SETATTR: c_long = 469;
}

/// The error that a denied call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// `EACCES`: permission denied.
    Denied,
    /// `EPERM`: operation not permitted.
    NotPermitted,
    /// `ENOSYS`: the kernel has no such call. Programs fall back to an older one.
    NoSuchCall,
    /// `EOPNOTSUPP`: the file system does not support it. Programs do without.
    NotSupported,
}

impl Denial {
    pub(super) const ALL: [Self; 4] =
        [Self::Denied, Self::NotPermitted, Self::NoSuchCall, Self::NotSupported];

    pub(super) const fn errno(self) -> c_int {
        match self {
            Self::Denied => libc::EACCES,
            Self::NotPermitted => libc::EPERM,
            Self::NoSuchCall => libc::ENOSYS,
            Self::NotSupported => libc::EOPNOTSUPP,
        }
    }
}

/// A comparison with one argument of a call.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) argument: u8,
    pub(super) length: SeccompCmpArgLen,
    pub(super) operator: SeccompCmpOp,
    pub(super) value: u64,
}

/// A denied call: always, or if all tests of one of the lists hold.
#[derive(Clone, Debug)]
pub(crate) struct DeniedCall {
    name: &'static str,
    number: c_long,
    answer: Denial,
    when: Vec<Vec<Test>>,
    trial: [c_long; 6],
}

/// Arguments with which no call of the table does anything: no descriptor, no process, no address.
const NONSENSE: [c_long; 6] = [-1, 0, 0, 0, 0, 0];
/// A process other than the caller.
const ANOTHER: c_long = 1;

impl DeniedCall {
    const fn new(answer: Denial, name: &'static str, number: c_long) -> Self {
        Self { name, number, answer, when: Vec::new(), trial: NONSENSE }
    }

    fn when(self, tests: impl IntoIterator<Item = Test>) -> Self {
        Self { when: tests.into_iter().map(|test| vec![test]).collect(), ..self }
    }

    fn when_all(self, tests: impl IntoIterator<Item = Test>) -> Self {
        Self { when: vec![tests.into_iter().collect()], ..self }
    }

    /// Sets the arguments with which the probe tries the call. They must be such that the call is denied, that the kernel would
    /// return something else if it were not, and that it then has no effect and touches no memory.
    fn tried_with<const N: usize>(self, first: [c_long; N]) -> Self {
        let mut trial = [0; 6];
        trial.iter_mut().zip(first).for_each(|(argument, value)| *argument = value);
        Self { trial, ..self }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// The number on this architecture.
    pub(crate) const fn number(&self) -> c_long {
        self.number
    }

    /// The arguments of the probe.
    pub(crate) const fn trial(&self) -> [c_long; 6] {
        self.trial
    }

    /// Whether an error means that the call is denied, by this filter or another one.
    pub(crate) fn is_denial(error: Errno) -> bool {
        Denial::ALL.iter().any(|answer| answer.errno() == error.raw_os_error())
    }

    pub(super) const fn answer(&self) -> Denial {
        self.answer
    }

    pub(super) fn tests(&self) -> &[Vec<Test>] {
        &self.when
    }
}

const fn is(argument: u8, value: u64) -> Test {
    Test { argument, length: SeccompCmpArgLen::Dword, operator: SeccompCmpOp::Eq, value }
}

const fn is_not(argument: u8, value: u64) -> Test {
    Test { argument, length: SeccompCmpArgLen::Dword, operator: SeccompCmpOp::Ne, value }
}

/// Among the bits of a mask, exactly these are set.
const fn has(argument: u8, mask: u64, bits: u64) -> Test {
    Test { argument, length: SeccompCmpArgLen::Dword, operator: SeccompCmpOp::MaskedEq(mask), value: bits }
}

const fn is_not_null(argument: u8) -> Test {
    Test { argument, length: SeccompCmpArgLen::Qword, operator: SeccompCmpOp::Ne, value: 0 }
}

/// A number as the kernel sees it in a register.
const fn word(number: c_int) -> u64 {
    number.cast_unsigned() as u64
}

/// All calls denied to a child with this network access and these rights to file attributes.
pub(crate) fn denied(network: Network, attributes: Attributes) -> Vec<DeniedCall> {
    let mut calls = sockets(network);
    calls.extend(match attributes {
        Attributes::Fixed => file_attributes(),
        Attributes::Changeable => Vec::new(),
    });
    calls.extend(other_processes());
    calls.extend(shared_between_processes());
    calls.extend(namespaces());
    calls.extend(kernel());
    calls
}

/// Queries the kernel's version of Landlock. Not denied.
pub(crate) fn landlock_version() -> DeniedCall {
    const ASK: c_long = 1;
    let call =
        DeniedCall::new(Denial::NotPermitted, "landlock_create_ruleset", libc::SYS_landlock_create_ruleset);
    call.tried_with([0, 0, ASK])
}

/// Sockets that could reach other processes.
fn sockets(network: Network) -> Vec<DeniedCall> {
    let socket = || DeniedCall::new(Denial::Denied, "socket", libc::SYS_socket);
    let pair = || DeniedCall::new(Denial::Denied, "socketpair", libc::SYS_socketpair);
    let not_unix = || is_not(0, word(libc::AF_UNIX));
    match network {
        Network::Open => Vec::new(),
        Network::Unix => vec![
            socket().when([not_unix()]).tried_with([libc::AF_INET.into(), -1]),
            pair().when([not_unix()]).tried_with([libc::AF_INET.into()]),
        ],
        Network::None => {
            /// The bits of the socket type; the others are flags.
            const KIND: u64 = 0xf;
            // Both ends of these know only each other. A datagram can be sent from one end of a pair to any socket file.
            let kept = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(word);
            let other = (0..=KIND).filter(|kind| !kept.contains(kind)).map(|kind| has(1, KIND, kind));
            vec![
                socket().tried_with([libc::AF_UNIX.into(), -1]),
                pair()
                    .when([not_unix()].into_iter().chain(other))
                    .tried_with([libc::AF_UNIX.into(), libc::SOCK_DGRAM.into()]),
            ]
        }
    }
}

/// Modes, owners, times and extended attributes of files: Landlock leaves them to the owner of the file.
fn file_attributes() -> Vec<DeniedCall> {
    let mut modes = vec![
        ("fchmod", libc::SYS_fchmod),
        ("fchmodat", libc::SYS_fchmodat),
        ("fchmodat2", newer::FCHMODAT2),
        ("fchown", libc::SYS_fchown),
        ("fchownat", libc::SYS_fchownat),
        ("file_setattr", newer::FILE_SETATTR),
    ];
    #[cfg(target_arch = "x86_64")]
    modes.extend([
        ("chmod", libc::SYS_chmod),
        ("chown", libc::SYS_chown),
        ("lchown", libc::SYS_lchown),
        ("utime", libc::SYS_utime),
        ("utimes", libc::SYS_utimes),
        ("futimesat", libc::SYS_futimesat),
    ]);
    // By path, reading is denied too: the values are data. On an open file they may be read.
    let extended = [
        ("setxattr", libc::SYS_setxattr),
        ("lsetxattr", libc::SYS_lsetxattr),
        ("fsetxattr", libc::SYS_fsetxattr),
        ("setxattrat", newer::SETXATTRAT),
        ("removexattr", libc::SYS_removexattr),
        ("lremovexattr", libc::SYS_lremovexattr),
        ("fremovexattr", libc::SYS_fremovexattr),
        ("removexattrat", newer::REMOVEXATTRAT),
        ("getxattr", libc::SYS_getxattr),
        ("lgetxattr", libc::SYS_lgetxattr),
        ("getxattrat", newer::GETXATTRAT),
        ("listxattr", libc::SYS_listxattr),
        ("llistxattr", libc::SYS_llistxattr),
        ("listxattrat", newer::LISTXATTRAT),
    ];
    let modes = modes.into_iter().map(|(name, number)| DeniedCall::new(Denial::NotPermitted, name, number));
    let extended = extended.map(|(name, number)| DeniedCall::new(Denial::NotSupported, name, number));
    // `touch` sets the times of an open file to now, as writing to it would. No more is allowed.
    let times = DeniedCall::new(Denial::NotPermitted, "utimensat", libc::SYS_utimensat)
        .when([is_not_null(1), is_not_null(2)])
        .tried_with([-1, -1]);
    modes.chain(extended).chain([times]).collect()
}

/// What one process may do to another of the same user. The caller names itself by 0.
fn other_processes() -> Vec<DeniedCall> {
    let by_pid = [
        ("prlimit64", libc::SYS_prlimit64),
        ("sched_setaffinity", libc::SYS_sched_setaffinity),
        ("sched_setattr", libc::SYS_sched_setattr),
        ("sched_setparam", libc::SYS_sched_setparam),
        ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ];
    let by_kind = [
        ("setpriority", libc::SYS_setpriority, PRIO_USER),
        ("ioprio_set", libc::SYS_ioprio_set, IOPRIO_WHO_USER),
    ];
    let never = [
        ("kcmp", libc::SYS_kcmp),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("process_madvise", libc::SYS_process_madvise),
        ("process_mrelease", libc::SYS_process_mrelease),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("ptrace", libc::SYS_ptrace),
    ];
    let call = |(name, number)| DeniedCall::new(Denial::NotPermitted, name, number);
    let by_pid = by_pid.map(|named| call(named).when([is_not(0, 0)]).tried_with([ANOTHER, -1]));
    let by_kind = by_kind.map(|(name, number, user)| {
        call((name, number)).when([is(0, user), is_not(1, 0)]).tried_with([-1, ANOTHER])
    });
    // A signal to all processes of the user: before Linux 6.12, Landlock does not restrict signals.
    let kill = call(("kill", libc::SYS_kill)).when([is(0, word(-1))]).tried_with([-1, 0]);
    by_pid.into_iter().chain(by_kind).chain(never.map(call)).chain([kill]).collect()
}

/// All processes of a user, for `setpriority`.
const PRIO_USER: u64 = 2;
/// The same for `ioprio_set`.
const IOPRIO_WHO_USER: u64 = 3;

/// Resources that processes of a user share by numbers and names without files: keyrings, System V IPC, POSIX message queues.
fn shared_between_processes() -> Vec<DeniedCall> {
    let calls = [
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("shmget", libc::SYS_shmget),
        ("shmat", libc::SYS_shmat),
        ("shmctl", libc::SYS_shmctl),
        ("msgget", libc::SYS_msgget),
        ("msgsnd", libc::SYS_msgsnd),
        ("msgrcv", libc::SYS_msgrcv),
        ("msgctl", libc::SYS_msgctl),
        ("semget", libc::SYS_semget),
        ("semop", libc::SYS_semop),
        ("semtimedop", libc::SYS_semtimedop),
        ("semctl", libc::SYS_semctl),
        ("mq_open", libc::SYS_mq_open),
        ("mq_unlink", libc::SYS_mq_unlink),
    ];
    let calls = calls.map(|(name, number)| DeniedCall::new(Denial::NotPermitted, name, number));
    // The first argument is the operation, and the error for -1 would look like a denial.
    let keyctl = DeniedCall::new(Denial::NotPermitted, "keyctl", libc::SYS_keyctl).tried_with([0]);
    calls.into_iter().chain([keyctl]).collect()
}

/// New namespaces: in a user namespace a child has every capability, and with it parts of the kernel that are closed to users.
fn namespaces() -> Vec<DeniedCall> {
    /// A time namespace; its bit means something else for `clone`.
    const NEW_TIME: c_int = 0x80;
    let new = [
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUTS,
    ];
    let any = |flags: &[c_int]| -> Vec<Test> {
        flags.iter().map(|flag| has(0, word(*flag), word(*flag))).collect()
    };
    // Neither can be combined with a new user namespace, so the kernel would refuse the call.
    let (no_clone, no_unshare) = (libc::CLONE_NEWUSER | libc::CLONE_FS, libc::CLONE_NEWUSER | 1);
    vec![
        DeniedCall::new(Denial::NotPermitted, "clone", libc::SYS_clone)
            .when(any(&new))
            .tried_with([no_clone.into()]),
        DeniedCall::new(Denial::NotPermitted, "unshare", libc::SYS_unshare)
            .when(any(&[&new[..], &[NEW_TIME]].concat()))
            .tried_with([no_unshare.into()]),
        DeniedCall::new(Denial::NotPermitted, "setns", libc::SYS_setns),
        // The flags are behind a pointer. The call could also put a child into another control group.
        DeniedCall::new(Denial::NoSuchCall, "clone3", libc::SYS_clone3),
    ]
}

/// Calls into parts of the kernel that no task needs, or around this table.
fn kernel() -> Vec<DeniedCall> {
    let privileged = [
        ("acct", libc::SYS_acct),
        ("bpf", libc::SYS_bpf),
        ("chroot", libc::SYS_chroot),
        ("delete_module", libc::SYS_delete_module),
        ("fanotify_init", libc::SYS_fanotify_init),
        ("fanotify_mark", libc::SYS_fanotify_mark),
        ("finit_module", libc::SYS_finit_module),
        ("fsconfig", libc::SYS_fsconfig),
        ("fsmount", libc::SYS_fsmount),
        ("fsopen", libc::SYS_fsopen),
        ("fspick", libc::SYS_fspick),
        ("init_module", libc::SYS_init_module),
        ("kexec_file_load", libc::SYS_kexec_file_load),
        ("mount", libc::SYS_mount),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("move_mount", libc::SYS_move_mount),
        ("name_to_handle_at", libc::SYS_name_to_handle_at),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("open_tree", libc::SYS_open_tree),
        ("open_tree_attr", newer::OPEN_TREE_ATTR),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("pivot_root", libc::SYS_pivot_root),
        ("quotactl", libc::SYS_quotactl),
        ("quotactl_fd", libc::SYS_quotactl_fd),
        ("reboot", libc::SYS_reboot),
        ("swapoff", libc::SYS_swapoff),
        ("swapon", libc::SYS_swapon),
        ("syslog", libc::SYS_syslog),
        ("umount2", libc::SYS_umount2),
        ("userfaultfd", libc::SYS_userfaultfd),
    ];
    // An io_uring bypasses the filters: it creates sockets, and sets extended attributes.
    let absent = [
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
        ("listmount", newer::LISTMOUNT),
        ("statmount", newer::STATMOUNT),
    ];
    /// Queries the personality of a process.
    const WHICH: u64 = 0xffff_ffff;
    /// `ADDR_NO_RANDOMIZE`.
    const NO_RANDOM: c_long = 0x0004_0000;
    let controls = [TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR];
    let call = |(name, number)| DeniedCall::new(Denial::NotPermitted, name, number);
    privileged
        .map(call)
        .into_iter()
        .chain(absent.map(|(name, number)| DeniedCall::new(Denial::NoSuchCall, name, number)))
        .chain([
            // With no segments it would unload a kernel.
            call(("kexec_load", libc::SYS_kexec_load)).tried_with([-1; 4]),
            call(("personality", libc::SYS_personality))
                .when_all([is_not(0, 0), is_not(0, WHICH)])
                .tried_with([NO_RANDOM]),
            call(("ioctl", libc::SYS_ioctl))
                .when(controls.map(|control| is(1, control)))
                .tried_with([-1, TIOCSTI.cast_signed() as c_long]),
        ])
        .collect()
}

/// Inserts input into a terminal as if its user had typed it.
const TIOCSTI: u64 = 0x5412;
/// The same for a console, and more.
const TIOCLINUX: u64 = 0x541c;
/// Sets attributes of a file, such as append-only; a read-only descriptor is enough.
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
/// The same with the 32-bit number.
const FS_IOC32_SETFLAGS: u64 = 0x4004_6602;
/// The same for other attributes.
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_call_stands_in_the_table_twice() {
        for network in [Network::None, Network::Unix, Network::Open] {
            let calls = denied(network, Attributes::Fixed);
            let numbers: BTreeSet<c_long> = calls.iter().map(DeniedCall::number).collect();
            let names: BTreeSet<&str> = calls.iter().map(DeniedCall::name).collect();
            assert_eq!((numbers.len(), names.len()), (calls.len(), calls.len()));
        }
    }

    #[test]
    fn whatever_is_denied_for_some_arguments_is_tried_with_such() {
        let holds = |test: &Test, trial: [c_long; 6]| {
            let given = trial[usize::from(test.argument)].cast_unsigned();
            let given = match test.length {
                SeccompCmpArgLen::Dword => given & 0xffff_ffff,
                SeccompCmpArgLen::Qword => given,
            };
            match &test.operator {
                SeccompCmpOp::Eq => given == test.value,
                SeccompCmpOp::Ne => given != test.value,
                SeccompCmpOp::MaskedEq(mask) => given & mask == test.value,
                SeccompCmpOp::Ge | SeccompCmpOp::Gt | SeccompCmpOp::Le | SeccompCmpOp::Lt => {
                    panic!("{test:?} is not used")
                }
            }
        };
        for network in [Network::None, Network::Unix, Network::Open] {
            for call in denied(network, Attributes::Fixed) {
                let denied = |tests: &Vec<Test>| tests.iter().all(|test| holds(test, call.trial()));
                assert!(call.tests().is_empty() || call.tests().iter().any(denied), "{call:?}");
            }
        }
    }
}
