//! Applying the allow list.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
    Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Network;
use super::allow::{Access, Rule};

/// Without these rights (Linux 6.2) files could be truncated from outside the allow list: refuse.
const REQUIRED: ABI = ABI::V3;
/// What is asked for beyond, and reported when missing: TCP (6.7), devices (6.10), signals (6.12). Where the network
/// is denied, the filter of system calls keeps TCP away on any kernel.
const WANTED: ABI = ABI::V6;

/// What the kernel said of the whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    pub(super) abi: u32,
    pub(super) fully: bool,
}

/// Restricts the calling thread, which must be the only one of its process. An error when less than what is
/// required is enforced, so that nothing is started with less.
pub(super) fn apply(rules: &[Rule], network: Network) -> Result<Applied, Errno> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED))
        .map_err(refused)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))
        .map_err(refused)?
        .scope(Scope::from_all(WANTED))
        .map_err(refused)?;
    if network == Network::Denied {
        ruleset = ruleset.handle_access(AccessNet::from_all(WANTED)).map_err(refused)?;
    }
    let mut ruleset = ruleset.create().map_err(refused)?;
    for rule in rules {
        // The paths are canonical: a link at the end was put there since.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(&rule.path, flags, Mode::empty()) {
            Ok(handle) => {
                ruleset = ruleset
                    .add_rule(PathBeneath::new(handle, rights(rule.access)))
                    .map_err(refused)?;
            }
            // What went away, or may not be reached anyway, needs no rule.
            Err(Errno::NOENT | Errno::ACCESS) if rule.access != Access::Scratch => {}
            Err(errno) => return Err(errno),
        }
    }
    let status = ruleset.restrict_self().map_err(refused)?;
    let LandlockStatus::Available { effective_abi, .. } = status.landlock else {
        return Err(Errno::NOSYS);
    };
    let enough = effective_abi >= REQUIRED && status.ruleset != RulesetStatus::NotEnforced;
    if !enough || !status.no_new_privs {
        return Err(Errno::NOSYS);
    }
    Ok(Applied { abi: effective_abi as u32, fully: status.ruleset == RulesetStatus::FullyEnforced })
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    match access {
        Access::Tree => make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute}),
        Access::File => make_bitflags!(AccessFs::{ReadFile | Execute}),
        Access::DeviceRead => make_bitflags!(AccessFs::{ReadFile}),
        Access::DeviceWrite => make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate}),
        // No execution of what was written, no devices, no sockets.
        Access::Scratch => make_bitflags!(AccessFs::{
            ReadFile | ReadDir | WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym
                | MakeFifo | Refer
        }),
    }
}

/// The system's error number, when there is one beneath.
fn refused(error: RulesetError) -> Errno {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return Errno::from_io_error(io).unwrap_or(Errno::NOSYS);
        }
        cause = inner.source();
    }
    Errno::NOSYS
}
