//! Policy files for programs, and methods to force.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bulkmem::Operation;

use crate::toolchain::SCRATCH;

/// The operations that the library replaces functions by.
const OPERATIONS: [Operation; 3] = [Operation::Clear, Operation::Fill, Operation::Copy];

/// Values of `BULKMEM_METHOD`: each method of this machine, for all of the operations that it supports.
pub(crate) fn every_method() -> Vec<String> {
    let forced = bulkmem::method::all().filter_map(|method| {
        let supported = OPERATIONS.iter().filter(|operation| method.does(**operation));
        let parts: Vec<_> = supported.map(|operation| format!("{operation}:{}", method.name)).collect();
        let missing = method.requires.difference(bulkmem::machine::features());
        if !parts.is_empty() && !missing.is_empty() {
            println!("skipped: the preloaded library with {}: this machine cannot run it", method.name);
        }
        (!parts.is_empty() && missing.is_empty()).then(|| parts.join(","))
    });
    forced.collect()
}

/// Non-temporal stores, which no C library uses from 16 KiB on.
pub(crate) const NON_TEMPORAL: &str = "clear:nontemporal_sse2,fill:nontemporal_sse2,copy:nontemporal_sse2";

/// A policy file of this machine, by length alone.
pub(crate) fn by_length() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = Path::new(SCRATCH).join("by-length/profile.policy");
        testkit::profile::write(&path);
        path
    })
}

/// A policy file of this machine by which calls look at the cache state.
pub(crate) fn with_looks() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| looking("with-looks", "c_library", ""))
}

/// The shortest calls that [`reused`] decides on.
pub(crate) const REUSED_FROM: usize = 100_000;

/// A policy file of this machine by which calls look although their bytes are used next, and are not by the C library whatever they
/// find.
pub(crate) fn reused() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| reused_from(REUSED_FROM))
}

/// The same with another length.
pub(crate) fn reused_from(length: usize) -> PathBuf {
    let own = format!(
        "rule OPERATION reuse 0 portable\nrule OPERATION uncached_reuse 0 portable\n\
         rule OPERATION uncached_reuse {length} nontemporal_sse2\n"
    );
    looking(&format!("reused-{length}"), "portable", &own)
}

/// A policy file of this machine by which each look finds that the pages of the memory are not mapped.
pub(crate) fn unmapped() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = looking("unmapped", "portable", "");
        fs::write(&path, fs::read_to_string(&path).unwrap().replace(" 300 50000 ", " 1 1 ")).unwrap();
        path
    })
}

/// Writes a policy file by which calls look, with other rules of each operation.
fn looking(name: &str, cached: &str, own: &str) -> PathBuf {
    let looks = OPERATIONS.map(|operation| {
        format!(
            "rule {operation} cached 0 {cached}\nrule {operation} uncached 0 nontemporal_sse2\n{}\
             look {operation} 32768 300 50000 {cached}\n",
            own.replace("OPERATION", operation.name())
        )
    });
    let text = fs::read_to_string(by_length()).unwrap();
    let path = Path::new(SCRATCH).join(format!("{name}.policy"));
    fs::write(&path, text.replace("end\n", &format!("{}end\n", looks.concat()))).unwrap();
    path
}

/// A policy file of this machine by which the C library does all copies of less than 16 MiB, unless page aliasing slows them
/// down: from 2 KiB to less than 64 KiB they are by that method. `None` if this machine cannot run it.
pub(crate) fn aliased(method: &str) -> Option<PathBuf> {
    if !bulkmem::method::by_name(method).is_some_and(|method| method.available()) {
        println!("skipped: aliased copies by {method}: this machine cannot run it");
        return None;
    }
    let text = fs::read_to_string(by_length()).unwrap();
    let text = text.replace("copy throughput 4096", "copy throughput 16777216");
    let text = text.replace("end\n", &format!("aliasing copy 2048 65536 {method}\nend\n"));
    let path = Path::new(SCRATCH).join(format!("aliased-{method}.policy"));
    // Tests run at the same time.
    let own = path.with_extension(format!("{:?}", std::thread::current().id()));
    fs::write(&own, text).unwrap();
    fs::rename(own, &path).unwrap();
    Some(path)
}
