//! Filters that forbid system calls.

use bulkmem::policy::{Basis, Policy};

use crate::work::{self, Run};

/// After initialization, operations make no system calls: in strict mode, the kernel kills a process that does.
pub(crate) fn strict(_: Run) -> Result<(), String> {
    let mut memory = work::memory();
    bulkmem::init().map_err(|error| error.to_string())?;
    // SAFETY: from here on, this thread may only read, write and exit; the process has no other.
    unsafe {
        if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT, 0, 0, 0) != 0 {
            return Err(format!("no strict mode here: {}", std::io::Error::last_os_error()));
        }
        let right = work::exercise(&mut memory);
        libc::syscall(libc::SYS_exit, libc::c_long::from(!right));
    }
    unreachable!("SYS_exit does not return")
}

/// System calls that open or look up files.
const OPENING: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
];

/// The first call uses the defaults if it cannot open files.
pub(crate) fn no_open(_: Run) -> Result<(), String> {
    let mut memory = work::memory();
    refuse(OPENING)?;
    work::right(work::exercise(&mut memory))?;
    match Policy::global().origin().basis {
        Basis::Defaults { .. } => Ok(()),
        ref other => Err(format!("the policy rests on {other:?}")),
    }
}

/// Makes these system calls fail with EPERM.
fn refuse(calls: &[libc::c_long]) -> Result<(), String> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let answer = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    // The number of the call is the first word of a filter's input.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        filter.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is as long as it says, and read during the call only.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(format!("no filter here: {}", std::io::Error::last_os_error())) }
}
