//! The seccomp filter of the command. Owns how the table becomes a program for the kernel and that
//! no other entry into the kernel is a way round it; the table itself is in [`table`].
//!
//! Nothing is ever killed: a refused call gets an answer programs know. On x86_64 the entry for i386
//! programs is filtered by the same table under their numbers, and the x32 numbers are unknown
//! (`ENOSYS`), as on most kernels. Elsewhere the calls of another architecture are unknown.
//! `ptrace` stays: among the command's own processes a debugger needs it, and everything of ours is
//! out of its reach by namespaces, Landlock and by not being dumpable.
//!
//! Source: seccomp(2), <https://docs.kernel.org/userspace-api/seccomp_filter.html>.

pub mod table;

use std::collections::BTreeMap;

use nix::errno::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use table::{Call, Rule, TABLE, When};

/// Instructions at the beginning of a compiled program that look at the architecture.
const PROLOGUE: usize = 3;

/// Puts the filter on the calling process and whatever it starts. Needs `no_new_privs`. A filter of
/// another purpose may be there already: the strictest answer counts.
pub(super) fn put_up(nested: bool) -> Result<(), String> {
    let program = program(nested).map_err(|e| e.to_string())?;
    seccompiler::apply_filter(&program).map_err(|e| e.to_string())
}

/// The whole program for this architecture.
fn program(nested: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let rules: Vec<&Rule> = TABLE.iter().filter(|r| !(nested && r.nested)).collect();
    #[cfg(target_arch = "x86_64")]
    return Ok(x86::join(
        body(&rules, |call| call.native)?,
        body(&rules, |call| call.compat)?,
    ));
    #[cfg(not(target_arch = "x86_64"))]
    {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let empty = SeccompFilter::new(
            BTreeMap::new(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            arch,
        )?;
        let mut program: BpfProgram = empty.try_into()?;
        program.truncate(PROLOGUE);
        // Not killed: unknown, as if the kernel had no such entry.
        program[PROLOGUE - 1].k = refusal(Errno::ENOSYS);
        program.extend(body(&rules, |call| call.native)?);
        Ok(program)
    }
}

/// The rules as instructions that end in an answer, whatever the architecture: first the calls that
/// have one answer, then those that have the next.
fn body(
    rules: &[&Rule],
    number: fn(&Call) -> Option<i64>,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut by_answer: BTreeMap<i32, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for rule in rules {
        for number in rule.calls.iter().filter_map(number) {
            let answers = by_answer.entry(rule.answer as i32).or_default();
            answers
                .entry(number)
                .or_default()
                .extend(conditions(rule.when)?);
        }
    }
    let mut joined = BpfProgram::new();
    for (answer, rules) in by_answer {
        pass_on(&mut joined);
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(answer as u32),
            // Only the prologue depends on it, which is left out here.
            TargetArch::x86_64,
        )?;
        let part: BpfProgram = filter.try_into()?;
        joined.extend_from_slice(part.get(PROLOGUE..).unwrap_or_default());
    }
    Ok(joined)
}

/// No condition at all stands for every call.
fn conditions(when: When) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let condition = |index, operator, value: u32| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value))
    };
    let all = match when {
        When::Always => return Ok(Vec::new()),
        When::Is { index, value } => vec![condition(index, SeccompCmpOp::Eq, value)?],
        When::Has { index, bits } => {
            let masked = SeccompCmpOp::MaskedEq(u64::from(bits));
            vec![condition(index, masked, bits)?]
        }
        When::IsNone { index, values } => values
            .iter()
            .map(|value| condition(index, SeccompCmpOp::Ne, *value))
            .collect::<Result<_, _>>()?,
    };
    Ok(vec![SeccompRule::new(all)?])
}

/// `BPF_RET | BPF_K`
const RETURN: u16 = 0x06;
/// `BPF_JMP | BPF_JA`
const JUMP: u16 = 0x05;

/// What one part allows, the next one is asked about.
fn pass_on(program: &mut BpfProgram) {
    let length = program.len();
    for (at, instruction) in program.iter_mut().enumerate() {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_ALLOW {
            *instruction = statement(JUMP, (length - at - 1) as u32);
        }
    }
}

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn refusal(errno: Errno) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Two entries into one kernel.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use nix::errno::Errno;
    use seccompiler::{BpfProgram, sock_filter};

    use super::{JUMP, RETURN, refusal, statement};

    /// `BPF_LD | BPF_W | BPF_ABS`
    const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JEQ | BPF_K`
    const IF_EQUAL: u16 = 0x15;
    /// `BPF_JMP | BPF_JGE | BPF_K`
    const IF_AT_LEAST: u16 = 0x35;
    /// Offsets in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    /// `AUDIT_ARCH_X86_64`, `AUDIT_ARCH_I386`
    const X86_64: u32 = 0xC000_003E;
    const I386: u32 = 0x4000_0003;
    /// `__X32_SYSCALL_BIT`
    const X32: u32 = 0x4000_0000;

    fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
        sock_filter { code, jt, jf, k }
    }

    /// One program that answers by the entry a call came through.
    pub(super) fn join(native: BpfProgram, compat: BpfProgram) -> BpfProgram {
        let unknown = statement(RETURN, refusal(Errno::ENOSYS));
        let mut program = vec![
            statement(LOAD, ARCHITECTURE),
            branch(IF_EQUAL, X86_64, 1, 0),
            // Over the next three and the native part.
            statement(JUMP, native.len() as u32 + 3),
            statement(LOAD, NUMBER),
            branch(IF_AT_LEAST, X32, 0, 1),
            unknown.clone(),
        ];
        program.extend(native);
        program.push(branch(IF_EQUAL, I386, 1, 0));
        program.push(unknown);
        program.extend(compat);
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter answers, by running its program as the kernel would.
    fn answer(program: &BpfProgram, arch: u32, number: u32, arguments: &[u64]) -> u32 {
        let word = |offset: u32| match offset {
            0 => number,
            4 => arch,
            16.. => {
                let at = (offset - 16) as usize;
                let value = arguments.get(at / 8).copied().unwrap_or(0);
                (value >> (if at.is_multiple_of(8) { 0 } else { 32 })) as u32
            }
            other => panic!("offset {other}"),
        };
        let (mut at, mut a) = (0, 0);
        loop {
            let i = &program[at];
            at += 1;
            let jump = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                0x20 => a = word(i.k),
                0x54 => a &= i.k,
                0x05 => at += i.k as usize,
                0x15 => at += jump(a == i.k),
                0x35 => at += jump(a >= i.k),
                0x25 => at += jump(a > i.k),
                0x06 => return i.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_row_answers_by_every_entry_and_nothing_is_killed() {
        let (strict, nested) = (program(false).unwrap(), program(true).unwrap());
        type Number = fn(&Call) -> Option<i64>;
        let entries: [(u32, Number); 2] =
            [(0xC000_003E, |c| c.native), (0x4000_0003, |c| c.compat)];
        for rule in TABLE {
            let arguments = match rule.when {
                When::Always => vec![],
                When::Is { index, value } | When::Has { index, bits: value } => {
                    let mut all = vec![0; usize::from(index)];
                    // Bits above the 32nd are not looked at by the kernel either.
                    all.push(u64::from(value) | 0x7_0000_0000);
                    all
                }
                When::IsNone { .. } => vec![40],
            };
            for (arch, number) in entries {
                for call in rule.calls {
                    let Some(number) = number(call) else { continue };
                    let given = answer(&strict, arch, number as u32, &arguments);
                    assert_eq!(given, refusal(rule.answer), "{} by {arch:#x}", call.name);
                    let wanted = if rule.nested {
                        ALLOWED
                    } else {
                        refusal(rule.answer)
                    };
                    let given = answer(&nested, arch, number as u32, &arguments);
                    assert_eq!(given, wanted, "nested {} by {arch:#x}", call.name);
                    if rule.when != When::Always {
                        let harmless = [2, 2, 2];
                        assert_eq!(
                            answer(&strict, arch, number as u32, &harmless),
                            ALLOWED,
                            "{}",
                            call.name
                        );
                    }
                }
            }
        }
        for number in [0, 1, 2, 57, 59, 101, 202, 317] {
            assert_eq!(answer(&strict, 0xC000_003E, number, &[]), ALLOWED);
        }
        let x32 = 0x4000_0000 | libc::SYS_mount as u32;
        assert_eq!(
            answer(&strict, 0xC000_003E, x32, &[]),
            refusal(Errno::ENOSYS)
        );
        // aarch64
        assert_eq!(answer(&strict, 0xC000_00B7, 1, &[]), refusal(Errno::ENOSYS));
        let kills = [
            libc::SECCOMP_RET_KILL_PROCESS,
            libc::SECCOMP_RET_KILL_THREAD,
        ];
        assert!(
            strict
                .iter()
                .all(|i| i.code != RETURN || !kills.contains(&i.k))
        );
    }

    #[test]
    fn the_documentation_prints_the_table() {
        let text = include_str!("../README.md");
        let printed = text
            .split_once("<!-- seccomp -->\n")
            .and_then(|(_, rest)| rest.split_once("<!-- /seccomp -->"))
            .map(|(table, _)| table);
        assert_eq!(
            printed,
            Some(table::as_markdown().as_str()),
            "src/sandbox/README.md does not hold the table; it is to be:\n{}",
            table::as_markdown()
        );
    }
}
