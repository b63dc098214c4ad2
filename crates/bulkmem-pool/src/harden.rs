//! Rights that the daemon drops before it accepts requests.

use std::io;

use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Becomes a user without privileges, keeps the right to change owners of files (CAP_CHOWN) if the process has it, and
/// drops all others. Call it before other threads start: the kernel changes only the calling thread.
///
/// # Errors
/// If the process has no right to become this user.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    keep_only_chown()?;
    Ok(set_keep_capabilities(false)?)
}

/// Drops all capabilities but CAP_CHOWN, also those of root.
pub(crate) fn keep_only_chown() -> io::Result<()> {
    let kept = capabilities(None)?.permitted & CapabilitySet::CHOWN;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// Returns true if this process may change the owner of a file.
pub(crate) fn can_chown() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN))
}

/// Makes sure that no other process of this user can inspect this one, and that it leaves no core file.
pub(crate) fn hide() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

/// Allows as many descriptors as the hard limit does, and returns that number.
pub(crate) fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Without the right to change it, the old limit stays.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

/// Lets all threads of this process make only the system calls that the daemon needs. Others return EPERM.
pub(crate) fn filter_system_calls() -> Result<(), seccompiler::Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    let rules = ALLOWED.iter().copied().chain(ALLOWED_BY_ARCHITECTURE.iter().copied());
    let rules = rules.map(|call| (call, Vec::new())).collect();
    let errno = libc::EPERM.unsigned_abs();
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(errno), SeccompAction::Allow, arch)?;
    let program: BpfProgram = filter.try_into()?;
    set_no_new_privs(true).map_err(|error| seccompiler::Error::Prctl(error.into()))?;
    seccompiler::apply_filter_all_threads(&program)
}

const ALLOWED: &[i64] = &[
    // Requests, responses, and notifications to the service manager.
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_getsockopt,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_ppoll,
    libc::SYS_pipe2,
    // Units.
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_inotify_add_watch,
    libc::SYS_getrandom,
    // Files of the kernel, and records.
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    // Memory, threads, signals and clocks of the C library and of Rust.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_geteuid,
    libc::SYS_getegid,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // To itself. Without CAP_KILL, processes of other users refuse.
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Old forms of calls above, which the C library uses where they exist.
#[cfg(target_arch = "x86_64")]
const ALLOWED_BY_ARCHITECTURE: &[i64] = &[
    libc::SYS_poll,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_unlink,
    libc::SYS_readlink,
];
#[cfg(target_arch = "aarch64")]
const ALLOWED_BY_ARCHITECTURE: &[i64] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ALLOWED_BY_ARCHITECTURE: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_system_calls_are_refused() {
        // The filter stays for as long as the process lives, so it gets one of its own.
        // SAFETY: the child only filters, makes system calls, and exits.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let status = match filter_system_calls() {
                Ok(())
                    if refused(libc::SYS_ptrace)
                        && refused(libc::SYS_execve)
                        && refused(libc::SYS_setuid) =>
                {
                    0
                }
                Ok(()) => 1,
                Err(_) => 2,
            };
            // SAFETY: nothing of the parent's is to be flushed or dropped.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's own.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "1 << 8: a call was not refused; 2 << 8: the filter was");
    }

    /// Returns true if the call fails with EPERM. Without the filter, it fails with another error, because of the arguments.
    fn refused(call: libc::c_long) -> bool {
        // SAFETY: no argument is an address, or a valid one.
        let result = unsafe { libc::syscall(call, u64::MAX, 0, 0, 0) };
        result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    }
}
