//! The seccomp filter that reports renames. Owns the program and its installation in the command's
//! process; everything it does not report runs as if it were not there.
//!
//! Only the call's number is looked at (seccomp(2)): what a path means is for the server to find
//! out, and for the kernel to decide. Calls by another ABI (i386, x32) and renames through io_uring
//! are let go: they meet the kernel as it is.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const NEW_LISTENER: libc::c_ulong = 1 << 3;
/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19): a signal does not interrupt a rename that
/// is being served, or programs with a timer would see `EINTR` from a call that never returns it.
const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

/// `AUDIT_ARCH_*` of the one ABI whose numbers are known here.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: u32 = 0;

/// The calls reported.
#[cfg(target_arch = "x86_64")]
const CALLS: &[libc::c_long] = &[libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2];
#[cfg(target_arch = "aarch64")]
const CALLS: &[libc::c_long] = &[libc::SYS_renameat, libc::SYS_renameat2];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: &[libc::c_long] = &[];

/// Numbers from here on are x32's (`__X32_SYSCALL_BIT`); no other ABI has so many.
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`.
const AT_NUMBER: u32 = 0;
const AT_ARCH: u32 = 4;

fn load(offset: u32) -> libc::sock_filter {
    let code = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

fn jump(test: u32, value: u32, yes: usize, no: usize) -> libc::sock_filter {
    libc::sock_filter {
        code: (libc::BPF_JMP | test | libc::BPF_K) as u16,
        jt: yes as u8,
        jf: no as u8,
        k: value,
    }
}

fn end(action: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: action,
    }
}

fn program() -> Vec<libc::sock_filter> {
    // Jumps count the instructions passed over; "allow" stands right after the last comparison,
    // "report" after that.
    let calls = CALLS.len();
    let mut program = vec![
        load(AT_ARCH),
        jump(libc::BPF_JEQ, ARCH, 0, calls + 2),
        load(AT_NUMBER),
        jump(libc::BPF_JGE, X32, calls, 0),
    ];
    for (index, call) in CALLS.iter().enumerate() {
        program.push(jump(libc::BPF_JEQ, *call as u32, calls - index, 0));
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    program.push(end(libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Puts the filter in force for this process and its descendants; the descriptor on which renames
/// are reported, closed at exec. Needs `no_new_privs`. `EINVAL` before Linux 5.19, `EBUSY` where a
/// listener is in force already.
pub fn install() -> Result<OwnedFd, Errno> {
    if CALLS.is_empty() {
        return Err(Errno::ENOSYS);
    }
    let mut program = program();
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and the structure that points to it live through the call, which copies
    // them.
    let fd = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            NEW_LISTENER | WAIT_KILLABLE_RECV,
            &raw const filter,
        )
    })?;
    // SAFETY: the descriptor was just returned to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers to a call, by the rules of BPF that it uses.
    fn answer(arch: u32, number: u32) -> u32 {
        let program = program();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            let code = u32::from(step.code);
            if code & 7 == libc::BPF_LD {
                loaded = if step.k == AT_ARCH { arch } else { number };
            } else if code & 7 == libc::BPF_RET {
                return step.k;
            } else {
                let yes = match code & 0xf0 {
                    libc::BPF_JEQ => loaded == step.k,
                    libc::BPF_JGE => loaded >= step.k,
                    other => panic!("jump {other}"),
                };
                at += usize::from(if yes { step.jt } else { step.jf });
            }
        }
    }

    #[test]
    fn renames_of_this_abi_are_reported_and_nothing_else() {
        for call in CALLS {
            assert_eq!(answer(ARCH, *call as u32), libc::SECCOMP_RET_USER_NOTIF);
            assert_eq!(answer(ARCH ^ 1, *call as u32), libc::SECCOMP_RET_ALLOW);
            let x32 = *call as u32 | X32;
            assert_eq!(answer(ARCH, x32), libc::SECCOMP_RET_ALLOW);
        }
        for other in [libc::SYS_read, libc::SYS_getpid, libc::SYS_openat, 9999] {
            assert_eq!(answer(ARCH, other as u32), libc::SECCOMP_RET_ALLOW);
        }
    }
}
