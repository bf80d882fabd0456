//! seccomp filters, built from the table of denied calls. Each returns one error, and all of them are installed.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

use super::calls::{Denial, DeniedCall, Test, denied};
use super::confinement::Confinement;

/// The filters for a confinement.
pub(super) fn filters(confinement: &Confinement) -> io::Result<Vec<BpfProgram>> {
    let unable = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("system calls cannot be kept from children here: seccomp: {error}"))
    };
    let arch = std::env::consts::ARCH.try_into().map_err(|error| unable(&error))?;
    let calls = denied(confinement.network, confinement.attributes);
    let mut made = Vec::new();
    for answer in Denial::ALL {
        let given = calls.iter().filter(|call| call.answer() == answer);
        let rules: Result<BTreeMap<_, _>, _> = given.map(|call| Ok((call.number(), rules(call)?))).collect();
        let rules = rules.map_err(|error: BackendError| unable(&error))?;
        if rules.is_empty() {
            continue;
        }
        let deny = SeccompAction::Errno(answer.errno().unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, arch);
        made.push(filter.and_then(BpfProgram::try_from).map_err(|error| unable(&error))?);
    }
    #[cfg(target_arch = "x86_64")]
    made.push(no_second_numbers());
    Ok(made)
}

/// The rules of a call; none if it is denied whatever its arguments.
fn rules(call: &DeniedCall) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = |test: &Test| {
        SeccompCondition::new(test.argument, test.length.clone(), test.operator.clone(), test.value)
    };
    call.tests()
        .iter()
        .map(|tests| SeccompRule::new(tests.iter().map(condition).collect::<Result<_, _>>()?))
        .collect()
}

/// Denies the second set of call numbers that a kernel may have, that of the x32 ABI, with `ENOSYS`. No current program uses it.
#[cfg(target_arch = "x86_64")]
fn no_second_numbers() -> BpfProgram {
    use seccompiler::sock_filter;
    /// The first number of the second set.
    const X32: u32 = 0x4000_0000;
    /// Loads the number of the call.
    const LOAD_NUMBER: sock_filter = sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    const RETURN: u16 = 0x06;
    const IS_AT_LEAST: u16 = 0x35;
    let absent = libc::SECCOMP_RET_ERRNO | Denial::NoSuchCall.errno().unsigned_abs();
    vec![
        LOAD_NUMBER,
        sock_filter { code: IS_AT_LEAST, jt: 0, jf: 1, k: X32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: absent },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ]
}
