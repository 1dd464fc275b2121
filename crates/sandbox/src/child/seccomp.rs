//! A small system call filter: what Landlock does not cover.
//!
//! Landlock guards opening files. It does not guard changing the permissions, owner or attributes of a file that
//! belongs to the same user, wherever it lies; nor (before its ninth version) connecting to a local socket by file
//! name, which on many machines is the way to a container engine or a message bus; nor UDP, keyrings, System V
//! memory, submission queues; nor changing the limits of the user's other processes. So making sockets is refused
//! here by family, and these calls altogether. A filter can only take away.

use rustix::io::Errno;

use super::Network;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const ARCH: u32 = 0xC000_00F3;

/// Calls that an agent's program does not need: they reach other processes, keyrings and kernel objects, or
/// change what a file may be used for.
const REFUSED: [libc::c_long; 47] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_inotify_add_watch,
];

/// The same by calls that are newer than the bindings; new calls have one number on all machines.
const REFUSED_NEW: [libc::c_long; 3] = [SETXATTRAT, REMOVEXATTRAT, FILE_SETATTR];
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// And by calls that only older machines have.
#[cfg(target_arch = "x86_64")]
const REFUSED_OLD: [libc::c_long; 3] = [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLD: [libc::c_long; 0] = [];

/// Calls whose first argument is a process and must be 0, the caller itself.
const ONLY_ITSELF: [libc::c_long; 2] = [libc::SYS_prlimit64, libc::SYS_sched_setaffinity];

/// Socket families that [`Network::Open`] leaves.
const OPEN_FAMILIES: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

const RET: u16 = 0x06;
const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
/// Offsets in the kernel's description of a call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The lower half of the first argument, on the little-endian machines that are supported.
const FIRST_ARGUMENT: u32 = 16;
/// Calls from here on are x86's second table, which would walk around the filter.
const X32: u32 = 0x4000_0000;

/// Filters the calling thread and all that comes of it. Needs no-new-privileges.
pub(super) fn apply(network: Network) -> Result<(), Errno> {
    let mut filter = program(network);
    let length = u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: `program` and the instructions it points to live until the call returns; the kernel copies them,
    // checks them, and writes to neither.
    #[expect(unsafe_code, reason = "rustix has no call that installs a filter")]
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            std::ptr::from_ref(&program),
            0,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

fn program(network: Network) -> Vec<libc::sock_filter> {
    let refuse = |errno: libc::c_int| step(RET, ERRNO | errno.unsigned_abs());
    let mut out = vec![
        step(LOAD, ARCHITECTURE),
        jump(JUMP_EQUAL, ARCH, 1, 0),
        step(RET, KILL_PROCESS),
        step(LOAD, NUMBER),
        jump(JUMP_GREATER_EQUAL, X32, 0, 1),
        refuse(libc::ENOSYS),
    ];
    for call in REFUSED.iter().chain(&REFUSED_NEW).chain(&REFUSED_OLD) {
        out.push(jump(JUMP_EQUAL, number(*call), 0, 1));
        out.push(refuse(libc::EPERM));
    }
    for call in ONLY_ITSELF {
        out.push(jump(JUMP_EQUAL, number(call), 0, 4));
        out.push(step(LOAD, FIRST_ARGUMENT));
        out.push(jump(JUMP_EQUAL, 0, 0, 1));
        out.push(step(RET, ALLOW));
        out.push(refuse(libc::EPERM));
    }
    // Everything that makes no socket is allowed; for a socket, the family decides.
    out.push(jump(JUMP_EQUAL, number(libc::SYS_socket), 1, 0));
    out.push(step(RET, ALLOW));
    if network == Network::Open {
        out.push(step(LOAD, FIRST_ARGUMENT));
        for family in OPEN_FAMILIES {
            out.push(jump(JUMP_EQUAL, family.unsigned_abs(), 0, 1));
            out.push(step(RET, ALLOW));
        }
    }
    out.push(refuse(libc::EACCES));
    out
}

fn number(call: libc::c_long) -> u32 {
    // Call numbers are small; one that were not could never match and is caught by the test below.
    u32::try_from(call).unwrap_or(u32::MAX)
}

const fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: yes, jf: no, k }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::panic, reason = "tests")]
    use super::*;

    /// Runs the filter as the kernel would.
    fn answer(network: Network, arch: u32, call: u32, argument: u32) -> u32 {
        let program = program(network);
        let (mut at, mut value) = (0_usize, 0_u32);
        loop {
            let one = program[at];
            at += 1;
            match one.code {
                RET => return one.k,
                LOAD => {
                    value = match one.k {
                        NUMBER => call,
                        ARCHITECTURE => arch,
                        FIRST_ARGUMENT => argument,
                        other => panic!("{other}"),
                    }
                }
                JUMP_EQUAL => at += usize::from(if value == one.k { one.jt } else { one.jf }),
                JUMP_GREATER_EQUAL => {
                    at += usize::from(if value >= one.k { one.jt } else { one.jf })
                }
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn every_call_gets_the_answer_it_should() {
        let socket = number(libc::SYS_socket);
        for network in [Network::Denied, Network::Open] {
            assert_eq!(answer(network, ARCH ^ 1, 0, 0), KILL_PROCESS);
            assert_eq!(answer(network, ARCH, X32 | 1, 0), ERRNO | 38);
            for call in [libc::SYS_read, libc::SYS_socketpair, libc::SYS_execve, libc::SYS_clone] {
                assert_eq!(answer(network, ARCH, number(call), 0), ALLOW);
            }
            for call in ONLY_ITSELF {
                assert_eq!(answer(network, ARCH, number(call), 0), ALLOW);
                assert_eq!(answer(network, ARCH, number(call), 7), ERRNO | 1);
            }
            for call in REFUSED.into_iter().chain(REFUSED_NEW).chain(REFUSED_OLD) {
                assert_ne!(number(call), u32::MAX);
                assert_eq!(answer(network, ARCH, number(call), 0), ERRNO | 1);
            }
            assert_eq!(answer(network, ARCH, socket, libc::AF_UNIX.unsigned_abs()), ERRNO | 13);
            assert_eq!(answer(network, ARCH, socket, libc::AF_VSOCK.unsigned_abs()), ERRNO | 13);
        }
        assert_eq!(answer(Network::Denied, ARCH, socket, libc::AF_INET.unsigned_abs()), ERRNO | 13);
        assert_eq!(answer(Network::Open, ARCH, socket, libc::AF_INET6.unsigned_abs()), ALLOW);
    }
}
