//! The environment variables of the process as they were when it was loaded.
//!
//! A constructor copies the few values that count to static memory, before `main` and usually before there is a second
//! thread. So a later `setenv` changes nothing, and reading the values needs no lock, no heap and no system call.
//! A process that runs with more rights than its caller (`AT_SECURE`: set-user-ID, set-group-ID, file capabilities)
//! ignores its environment.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::built_in;

/// Names the policy file.
pub(super) const PROFILE: &str = "BULKMEM_PROFILE";
/// Forces methods.
pub(super) const METHOD: &str = "BULKMEM_METHOD";
/// Switches looks at the cache state on or off.
const LOOK: &str = "BULKMEM_LOOK";

/// The administrator's policy file.
pub(super) const SYSTEM: &CStr = c"/etc/bulkmem/profile.policy";

/// The environment variables that the library reads. Unset and empty ones are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Environment<'e> {
    /// `BULKMEM_PROFILE`.
    pub(super) profile: Option<&'e CStr>,
    /// `BULKMEM_METHOD`.
    pub(super) method: Option<&'e CStr>,
    /// `BULKMEM_LOOK`.
    pub(super) look: Option<&'e CStr>,
    /// The user's policy file: `bulkmem/profile.policy` in `XDG_CONFIG_HOME`, or in `.config` in `HOME`, if that is an
    /// absolute path.
    pub(super) user: Option<&'e CStr>,
    /// The system's policy file.
    pub(super) system: Option<&'e CStr>,
    /// A variable whose value is longer than is kept; it counts as unset.
    pub(super) too_long: Option<&'static str>,
}

impl Environment<'_> {
    pub(super) const NONE: Self =
        Environment { profile: None, method: None, look: None, user: None, system: None, too_long: None };
}

/// Bytes for four copied values of the greatest length that is kept.
const ROOM: usize = 4 * MOST;
/// Greatest length of a value that is kept, with the 0 at its end: that of a path.
const MOST: usize = libc::PATH_MAX as usize;

struct Copied {
    bytes: UnsafeCell<[u8; ROOM]>,
    found: UnsafeCell<Environment<'static>>,
}

// SAFETY: written by the one thread that moves `STATE` from `UNREAD` to `READING`, and read only after `READ`.
unsafe impl Sync for Copied {}

static COPIED: Copied =
    Copied { bytes: UnsafeCell::new([0; ROOM]), found: UnsafeCell::new(Environment::NONE) };
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
const UNREAD: u8 = 0;
const READING: u8 = 1;
const READ: u8 = 2;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Copies the environment, which is complete when constructors run. Called by the constructor.
pub(super) fn copy() {
    let _ = read_once(true);
}

/// The environment, copied by the constructor or, before that, by the first call. `None` while it is being copied, and
/// as long as the C library does not know it yet.
pub(super) fn current() -> Option<Environment<'static>> {
    read_once(false)
}

fn read_once(complete: bool) -> Option<Environment<'static>> {
    match STATE.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: reading the variable; no thread of the program changes it before or in the constructor.
            let list = unsafe { environ };
            if list.is_null() && !complete {
                STATE.store(UNREAD, Ordering::Release);
                return None;
            }
            // SAFETY: only the thread that got here writes, and no thread reads before `READ`. The list is null or ends
            // in null.
            unsafe {
                let bytes = &mut *COPIED.bytes.get();
                *COPIED.found.get() = if secure() { system_only() } else { read(list, bytes) };
            }
            STATE.store(READ, Ordering::Release);
        }
        Err(READING) => return None,
        Err(_) => {}
    }
    // SAFETY: `READ` was seen or stored by this thread; no thread writes from then on.
    Some(unsafe { *COPIED.found.get() })
}

fn system_only() -> Environment<'static> {
    Environment { system: Some(SYSTEM), ..Environment::default() }
}

/// True if the process has more rights than its caller.
fn secure() -> bool {
    // SAFETY: getauxval has no precondition. Miri does not have it.
    cfg!(not(miri)) && unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Copies the values that count from a list of `NAME=value` to `bytes`.
///
/// # Safety
/// `list` is null or a list of C strings that ends in null.
unsafe fn read<'e>(mut list: *const *const c_char, bytes: &'e mut [u8]) -> Environment<'e> {
    const NAMES: [&str; 5] = [PROFILE, METHOD, LOOK, "XDG_CONFIG_HOME", "HOME"];
    let mut values: [Option<&CStr>; NAMES.len()] = [None; NAMES.len()];
    if !list.is_null() {
        loop {
            // SAFETY: the list ends in null, which the loop does not pass.
            let text = unsafe { *list };
            if text.is_null() {
                break;
            }
            // SAFETY: the list holds C strings.
            let text = unsafe { CStr::from_ptr(text) };
            for (name, value) in NAMES.iter().zip(&mut values) {
                // The first of several counts, as for getenv; an empty one is the same as none.
                if value.is_none() {
                    *value = after(text, name).filter(|value| !value.is_empty());
                }
            }
            // SAFETY: as above.
            list = unsafe { list.add(1) };
        }
    }
    let mut room = Room { free: bytes };
    let mut too_long = None;
    let mut keep = |parts: &[&[u8]], name| {
        let kept = room.keep(parts);
        if kept.is_none() {
            too_long = Some(name);
        }
        kept
    };
    let [profile, method, look, config, home] = values;
    let absolute = |path: &&CStr| path.to_bytes().first() == Some(&b'/');
    let user: Option<[&[u8]; 3]> = match (config.filter(absolute), home.filter(absolute)) {
        (Some(config), _) => Some([config.to_bytes(), b"", b"/bulkmem/profile.policy"]),
        (None, Some(home)) => Some([home.to_bytes(), b"/.config", b"/bulkmem/profile.policy"]),
        (None, None) => None,
    };
    Environment {
        profile: profile.and_then(|value| keep(&[value.to_bytes()], PROFILE)),
        method: method.and_then(|value| keep(&[value.to_bytes()], METHOD)),
        look: look.and_then(|value| keep(&[value.to_bytes()], LOOK)),
        user: user.and_then(|parts| keep(&parts, "HOME")),
        system: Some(SYSTEM),
        too_long,
    }
}

/// The value of a variable, if this is the one of that name.
fn after<'t>(text: &'t CStr, name: &str) -> Option<&'t CStr> {
    let bytes = text.to_bytes_with_nul();
    let starts = bytes.len() > name.len() && name.bytes().zip(bytes).all(|(name, byte)| name == *byte);
    if !starts || bytes[name.len()] != b'=' {
        return None;
    }
    CStr::from_bytes_with_nul(&bytes[name.len() + 1..]).ok()
}

/// Memory that copied values are cut from.
struct Room<'e> {
    free: &'e mut [u8],
}

impl<'e> Room<'e> {
    /// Copies a value that is made of parts; `None` if it is longer than a path can be, or does not fit.
    fn keep(&mut self, parts: &[&[u8]]) -> Option<&'e CStr> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        if length > MOST || length > self.free.len() {
            return None;
        }
        let (mine, rest) = std::mem::take(&mut self.free).split_at_mut(length);
        self.free = rest;
        let mut at = 0;
        for part in parts.iter().chain([&&b"\0"[..]]) {
            let to = mine.get_mut(at..at + part.len())?;
            // SAFETY: both have the length of the part, and a slice that is borrowed mutably overlaps no other.
            unsafe { built_in::copy(to.as_mut_ptr(), part.as_ptr(), part.len()) }
            at += part.len();
        }
        CStr::from_bytes_with_nul(mine).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// The environment of those variables, and its texts.
    fn with<R>(variables: &[&str], check: impl FnOnce(Environment) -> R) -> R {
        let variables: Vec<CString> = variables.iter().map(|it| CString::new(*it).unwrap()).collect();
        let list: Vec<_> = variables.iter().map(|it| it.as_ptr()).chain([std::ptr::null()]).collect();
        let mut bytes = vec![0; ROOM];
        // SAFETY: a list of C strings that ends in null.
        check(unsafe { read(list.as_ptr(), &mut bytes) })
    }

    fn text(value: Option<&CStr>) -> Option<&str> {
        value.map(|value| value.to_str().unwrap())
    }

    #[test]
    fn the_values_that_count_are_copied() {
        let mut all = vec!["HOME=/home/u", "BULKMEM_PROFILE=p", "BULKMEM_METHOD=m=n", "BULKMEM_PROFILE=2"];
        all.extend(["BULKMEM_LOOK=off", "X"]);
        with(&all, |found| {
            assert_eq!(text(found.profile), Some("p"), "the first of two counts");
            assert_eq!(text(found.method), Some("m=n"));
            assert_eq!(text(found.look), Some("off"));
            assert_eq!(text(found.user), Some("/home/u/.config/bulkmem/profile.policy"));
            assert_eq!(found.system, Some(SYSTEM));
            assert_eq!(found.too_long, None);
        });
    }

    #[test]
    fn empty_variables_and_similar_names_do_not_count() {
        let none = ["BULKMEM_PROFILE=", "BULKMEM_METHODS=x", "HOME=relative", "", "="];
        with(&none, |found| {
            assert_eq!((found.profile, found.method, found.user), (None, None, None));
        });
    }

    #[test]
    fn the_configuration_folder_counts_more_than_home() {
        with(&["HOME=/h", "XDG_CONFIG_HOME=/c"], |found| {
            assert_eq!(text(found.user), Some("/c/bulkmem/profile.policy"));
        });
        with(&["HOME=/h", "XDG_CONFIG_HOME=c"], |found| {
            assert_eq!(text(found.user), Some("/h/.config/bulkmem/profile.policy"));
        });
    }

    #[test]
    fn values_that_are_too_long_count_as_unset_and_are_named() {
        for length in [4094, 4095, 4096, 100_000] {
            let value = "x".repeat(length);
            with(&[&format!("BULKMEM_METHOD={value}")], |found| {
                let fits = length < 4096;
                assert_eq!(text(found.method), fits.then_some(value.as_str()));
                assert_eq!(found.too_long, (!fits).then_some(METHOD));
            });
        }
        let most = format!("={}", "x".repeat(MOST - 1));
        let all = [PROFILE, METHOD].map(|name| name.to_owned() + &most);
        let home = format!("HOME=/{}", "h".repeat(4000));
        with(&[&all[0], &all[1], &home], |found| {
            assert!(found.profile.is_some() && found.method.is_some());
            assert!(found.user.is_some() && found.too_long.is_none());
        });
    }
}
