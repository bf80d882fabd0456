//! Landlock ruleset of a child, with its seccomp filters and limits: built by the supervisor from a confinement, ready to be applied.
//!
//! It is built before the child is started, because a child that shares the supervisor's memory can only make system calls.
//! `supervisor/spawn.rs` applies it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{FileType, fstat};
use rustix::process::{Resource, Rlimit, getrlimit};
use seccompiler::BpfProgram;

use super::confinement::{Confinement, Limits, Network};
use super::filter::filters;
use crate::links::place_without_links;

/// The required version: without it a file that may not be written can still be truncated.
const LEAST: ABI = ABI::V3;
/// With this version, a child cannot signal processes that it did not start, and cannot control devices.
const BETTER: ABI = ABI::V6;
/// Devices that any program may use, and that store nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Between SIGXCPU and SIGKILL, for a process that has used up its CPU time.
const LAST_SECOND: u64 = 1;

/// All restrictions of one child.
#[derive(Debug)]
pub(crate) struct ChildRuleset {
    pub(crate) ruleset: OwnedFd,
    /// No filter allows what another one denies.
    pub(crate) filters: Vec<BpfProgram>,
    pub(crate) limits: Vec<(Resource, Rlimit)>,
}

impl ChildRuleset {
    /// For this confinement, with a folder that may be changed. Without the limits that the control group enforces.
    pub(crate) fn new(confinement: &Confinement, own: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        Ok(Self {
            ruleset: ruleset(confinement, own)?,
            filters: filters(confinement)?,
            limits: limits(&confinement.limits),
        })
    }
}

fn ruleset(confinement: &Confinement, own: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let unable = |error: &dyn std::fmt::Display| {
        io::Error::other(format!(
            "files cannot be kept from children here: Landlock of Linux 6.2 or newer is missing ({error})"
        ))
    };
    let mut made = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    made = made.handle_access(AccessFs::from_all(LEAST)).map_err(|error| unable(&error))?;
    made = made.set_compatibility(CompatLevel::BestEffort);
    made = made.handle_access(AccessFs::from_all(BETTER)).map_err(|error| unable(&error))?;
    let scope = match confinement.network {
        Network::None => Scope::Signal | Scope::AbstractUnixSocket,
        Network::Unix | Network::Open => Scope::Signal.into(),
    };
    made = made.scope(scope).map_err(|error| unable(&error))?;
    let mut made = made.create().map_err(|error| unable(&error))?;
    let (read, write) = (AccessFs::from_read(LEAST), AccessFs::from_all(LEAST));
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let devices = DEVICES.map(PathBuf::from);
    for (paths, access) in [(&confinement.system[..], read), (&devices[..], device)] {
        for place in paths.iter().filter_map(|path| PathFd::new(path).ok()) {
            made = allow(made, &place, access)?;
        }
    }
    for (paths, access) in [(&confinement.read[..], read), (&confinement.write[..], write)] {
        for place in paths.iter().filter_map(|path| place_without_links(path).ok()) {
            made = allow(made, &place, access)?;
        }
    }
    if let Some(own) = own {
        made = allow(made, &own, write)?;
    }
    Option::<OwnedFd>::from(made).ok_or_else(|| unable(&"the kernel has none"))
}

/// Adds a rule. A missing or unreachable path has none: it cannot be reached then.
fn allow(made: RulesetCreated, place: &impl AsFd, access: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let is_folder = FileType::from_raw_mode(fstat(place.as_fd())?.st_mode) == FileType::Directory;
    let access = if is_folder { access } else { access & AccessFs::from_file(LEAST) };
    made.add_rule(PathBeneath::new(place, access)).map_err(io::Error::other)
}

fn limits(limits: &Limits) -> Vec<(Resource, Rlimit)> {
    let &Limits { cpu_seconds, open_files, file_bytes, memory_bytes: _, processes: _ } = limits;
    let wanted = [
        (Resource::Cpu, cpu_seconds, LAST_SECOND),
        (Resource::Nofile, open_files, 0),
        (Resource::Fsize, file_bytes, 0),
        // A core dump would be written wherever the system is configured to.
        (Resource::Core, Some(0), 0),
    ];
    let limit = |(resource, most, more): (Resource, Option<u64>, u64)| {
        let most = most?;
        // The hard limit of the supervisor itself cannot be raised.
        let given = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let (current, maximum) = (most.min(given), most.saturating_add(more).min(given));
        Some((resource, Rlimit { current: Some(current), maximum: Some(maximum) }))
    };
    wanted.into_iter().filter_map(limit).collect()
}
