//! Tests which values the parameters take and refuse, and that a refusal changes nothing.

use std::io;

use libtest_mimic::Failed;
use testkit::harness::Suite;

use crate::huge::{HugeMapping, MIDDLE, Source};
use crate::module::{self, CACHED, Fault, METHODS, Parameters, counted};

/// The parameters that can be set.
const SETTABLE: [&str; 6] =
    ["method", "cached_method", "threshold", "chunk", "prefetch_distance", "ignore_quirks"];
/// The parameters that can only be read.
const READ_ONLY: [&str; 3] = ["available", "selftest_fault", "pretend_movnt_slow"];

pub(crate) fn tests(suite: &mut Suite) {
    suite.test("params::methods", methods);
    suite.test("params::numbers_at_their_edges", numbers_at_their_edges);
    suite.test("params::switch", switch);
    suite.test("params::as_echo_and_people_write_them", as_echo_and_people_write_them);
    suite.test("params::some_can_only_be_read", some_can_only_be_read);
    suite.test("params::nonsense_changes_nothing", nonsense_changes_nothing);
}

/// Checks that `value` is refused for `parameter` with this error, and that nothing changes.
fn refused(parameter: &str, value: &[u8], error: i32) -> Result<(), Failed> {
    let before = Parameters::read()?;
    match module::set(parameter, value).map_err(|error| error.raw_os_error()) {
        Err(Some(number)) if number == error => {}
        other => {
            let value = String::from_utf8_lossy(value);
            return Err(format!("{parameter} = {value:?}: {other:?} in place of error {error}").into());
        }
    }
    let after = Parameters::read()?;
    if after != before {
        return Err(format!("{parameter} was refused, and yet {before:?} became {after:?}").into());
    }
    Ok(())
}

/// Checks that `parameter` takes `value` and then reads as `read`.
fn taken(parameter: &str, value: &str, read: &str) -> Result<(), Failed> {
    module::set(parameter, value).map_err(|error| format!("{parameter} = {value:?}: {error}"))?;
    assert_eq!(module::get(parameter)?, read, "{parameter} = {value:?}");
    Ok(())
}

fn methods() -> Result<(), Failed> {
    module::fresh()?;
    let available = module::available()?;
    for method in METHODS {
        let there = available.iter().any(|name| name == method);
        if there {
            taken("method", method, method)?;
        } else {
            refused("method", method.as_bytes(), libc::EOPNOTSUPP)?;
        }
        match (there, CACHED.contains(&method)) {
            (true, true) => taken("cached_method", method, method)?,
            (true, false) => refused("cached_method", method.as_bytes(), libc::EINVAL)?,
            (false, _) => refused("cached_method", method.as_bytes(), libc::EOPNOTSUPP)?,
        }
    }
    for nonsense in ["stoc", "stocks", "Stock", " stock", "stock ", "rep-stosb", "\n", "0", "stock\n\n"] {
        refused("method", nonsense.as_bytes(), libc::EINVAL)?;
        refused("cached_method", nonsense.as_bytes(), libc::EINVAL)?;
    }
    Ok(())
}

fn numbers_at_their_edges() -> Result<(), Failed> {
    module::fresh()?;
    for bytes in [0, 1, 4095, 4096, 1 << 21, (1 << 21) + 1, u64::MAX] {
        taken("threshold", &bytes.to_string(), &bytes.to_string())?;
    }
    refused("threshold", b"18446744073709551616", libc::EINVAL)?;
    for (parameter, unit, most) in [("chunk", 4096, 1_u64 << 30), ("prefetch_distance", 64, 1 << 16)] {
        for bytes in [unit, 2 * unit, 3 * unit, most - unit, most] {
            taken(parameter, &bytes.to_string(), &bytes.to_string())?;
        }
        for bytes in [0, 1, unit - 1, unit + 1, most - 1, most + 1, most + unit, 1 << 32, 1 << 63, u64::MAX] {
            refused(parameter, bytes.to_string().as_bytes(), libc::EINVAL)?;
        }
        // Numbers that would be valid if truncated to 64 bits.
        refused(parameter, (u128::from(unit) + (1 << 64)).to_string().as_bytes(), libc::EINVAL)?;
    }
    for parameter in ["threshold", "chunk", "prefetch_distance"] {
        for nonsense in ["-1", "-4096", "4096 ", " 4096", "4k", "4096.0", "1e6", "0x", "x", "\n", "4096,4096"]
        {
            refused(parameter, nonsense.as_bytes(), libc::EINVAL)?;
        }
    }
    Ok(())
}

fn switch() -> Result<(), Failed> {
    module::fresh()?;
    // This processor's quirks would prevent it from being disabled again.
    module::set("method", "stock")?;
    for (value, read) in [("1", "Y"), ("0", "N"), ("Y", "Y"), ("n", "N"), ("on", "Y"), ("off", "N")] {
        taken("ignore_quirks", value, read)?;
    }
    for nonsense in ["2", "-1", "x", "\n"] {
        refused("ignore_quirks", nonsense.as_bytes(), libc::EINVAL)?;
    }
    Ok(())
}

fn as_echo_and_people_write_them() -> Result<(), Failed> {
    module::fresh()?;
    taken("method", "stock\n", "stock")?;
    taken("cached_method", "stock\n", "stock")?;
    taken("threshold", "1048576\n", "1048576")?;
    taken("chunk", "0x10000\n", "65536")?;
    taken("prefetch_distance", "0x100", "256")?;
    taken("ignore_quirks", "1\n", "Y")
}

fn some_can_only_be_read() -> Result<(), Failed> {
    module::fresh()?;
    for parameter in READ_ONLY {
        module::get(parameter)?;
        for value in ["stock", "1"] {
            // Root can open the file, but sysfs refuses the write.
            match module::set(parameter, value) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EIO)) => {}
                other => return Err(format!("{parameter} = {value}: {other:?}").into()),
            }
        }
    }
    Ok(())
}

/// Returns whether the documentation allows this value; `None` if both answers are right.
fn acceptable(parameter: &str, value: &[u8], available: &[String]) -> Option<bool> {
    // The kernel's strings end at a NUL, and its numbers may be octal or signed: both answers are right.
    let text = std::str::from_utf8(value).ok()?;
    if text.contains('\0') || text.contains(['+', 'x', 'X']) || text.starts_with('0') && text.len() > 1 {
        return None;
    }
    let text = text.strip_suffix('\n').unwrap_or(text);
    let multiple = |unit: u64, most: u64| {
        let bytes = text.parse::<u64>().ok();
        Some(bytes.is_some_and(|bytes| bytes > 0 && bytes % unit == 0 && bytes <= most))
    };
    let there = available.iter().any(|name| name == text);
    match parameter {
        // The answer depends on whether quirks are ignored at the moment.
        "method" if text == "movnti" => None,
        "method" => Some(there),
        "cached_method" => Some(there && CACHED.contains(&text)),
        "threshold" => Some(text.parse::<u64>().is_ok()),
        "chunk" => multiple(4096, 1 << 30),
        "prefetch_distance" => multiple(64, 1 << 16),
        // The kernel only reads the first one or two letters.
        _ => None,
    }
}

/// Returns a random text that resembles a value.
fn scribble(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut value = match random.u8(..6) {
        0 => METHODS[random.usize(..METHODS.len())].as_bytes().to_vec(),
        1 => (random.u64(..) >> random.u32(..64)).to_string().into_bytes(),
        2 => (random.u64(..=1 << 18) * 4096).to_string().into_bytes(),
        3 => format!("{:#x}", random.u64(..)).into_bytes(),
        4 => (0..random.usize(1..40)).map(|_| random.u8(..)).collect(),
        // sysfs passes at most a page to a parameter.
        _ => vec![b'1'; random.usize(1..4096)],
    };
    match random.u8(..6) {
        0 => value.push(b'\n'),
        1 => value.push(random.u8(..)),
        2 => {
            let at = random.usize(..value.len());
            value[at] = random.u8(..);
        }
        _ => {}
    }
    value
}

fn nonsense_changes_nothing() -> Result<(), Failed> {
    module::fresh()?;
    module::set("ignore_quirks", "1")?;
    let available = module::available()?;
    let mut random = crate::stress::seeded("nonsense_changes_nothing");
    let (mut taken, mut refused) = (0, 0);
    for round in 0..4000 {
        let parameter = SETTABLE[random.usize(..SETTABLE.len())];
        let value = scribble(&mut random);
        let says = acceptable(parameter, &value, &available);
        let before = Parameters::read()?;
        let result = module::set(parameter, &value);
        let after = Parameters::read()?;
        let what = || format!("{parameter} = {:?}", String::from_utf8_lossy(&value));
        match result.map_err(|error| error.raw_os_error()) {
            Ok(()) => {
                taken += 1;
                if says == Some(false) {
                    return Err(format!("{} was taken, as {after:?}", what()).into());
                }
            }
            Err(Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                refused += 1;
                if says == Some(true) {
                    return Err(format!("{} was refused", what()).into());
                }
                if before != after {
                    return Err(format!("{} was refused; {before:?} became {after:?}", what()).into());
                }
            }
            other => return Err(format!("{}: {other:?}", what()).into()),
        }
        in_range(&after, &available).map_err(|trouble| format!("{}: {trouble}", what()))?;
        if round % 200 == 0 {
            clears(&after)?;
        }
    }
    // Both answers must have occurred often.
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
    module::fresh()?;
    Ok(())
}

fn in_range(parameters: &Parameters, available: &[String]) -> Result<(), String> {
    let Parameters { method, cached_method, chunk, prefetch_distance, .. } = parameters;
    let right = available.contains(method)
        && available.contains(cached_method)
        && CACHED.contains(&cached_method.as_str())
        && (4096..=1 << 30).contains(chunk)
        && chunk % 4096 == 0
        && (64..=1 << 16).contains(prefetch_distance)
        && prefetch_distance % 64 == 0;
    if right { Ok(()) } else { Err(format!("{parameters:?}")) }
}

/// Checks that with the current parameters a huge page is zero and counted.
fn clears(parameters: &Parameters) -> Result<(), Failed> {
    let trouble = |error: io::Error| Failed::from(format!("{parameters:?}: {error}"));
    let mut mapping = HugeMapping::new(Source::Pool2M, 1).map_err(trouble)?;
    counted(&[Fault { size: MIDDLE, offset: 4321, hint: 0 }], || {
        mapping.touch(4321);
        Ok(())
    })?;
    if let Some(at) = mapping.first_dirt() {
        return Err(format!("{parameters:?}: byte {at:#x} is not 0").into());
    }
    // For the next user of the page.
    mapping.dirty();
    Ok(())
}
