use super::*;
use crate::engine::error::check;

const MIB: u64 = 1 << 20;

fn group(path: &str) -> MemoryLimit {
    MemoryLimit::ControlGroup(path.into())
}

#[test]
fn limits_are_named_with_their_remedy() {
    let named = |limit, bytes, needed| check(MemoryLeft { bytes, limit }, needed).unwrap_err().to_string();
    assert_eq!(
        named(MemoryLimit::AddressSpace, 400 * MIB, 301 * MIB),
        "this needs 301 MiB of memory, and at most 300 MiB can be used: three quarters of the 400 MiB left by \
         the address space limit (ulimit -v); name a smaller size, or raise that limit"
    );
    let available = named(MemoryLimit::Available, 400 * MIB, u64::MAX);
    assert!(
        available.ends_with("available on this machine; name a smaller size, or free memory"),
        "{available}"
    );
    check(MemoryLeft { bytes: 400 * MIB, limit: MemoryLimit::Data }, 300 * MIB).unwrap();
    let note = |limit, bytes| MemoryLeft { bytes, limit }.note();
    let text = note(group("/sys/fs/cgroup/a/memory.max"), 512 * MIB).unwrap();
    assert!(text.contains("512 MiB") && text.contains("/sys/fs/cgroup/a/memory.max"), "{text}");
    assert_eq!(note(MemoryLimit::Available, 512 * MIB), None);
    assert_eq!(note(MemoryLimit::Data, 8192 * MIB), None);
}
