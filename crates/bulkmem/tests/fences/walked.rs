//! The checks for architectures that `testkit::walk` knows.

use std::collections::BTreeSet;

use bulkmem::Operation;
use bulkmem::method::{CacheEffect, Method, Ordering};
use libtest_mimic::Failed;
#[cfg(target_arch = "aarch64")]
use testkit::aarch64::NAMED;
use testkit::case::Case;
use testkit::harness::Suite;
#[cfg(target_arch = "riscv64")]
use testkit::riscv64::NAMED;
use testkit::step::Kind;
use testkit::table;
use testkit::walk::Walk;

/// The C library's functions are called through pointers, and not part of this executable.
fn is_ours(method: &Method) -> bool {
    method.name != "c_library"
}

pub(crate) fn add(suite: &mut Suite) {
    for (method, operation) in table::entries().filter(|(method, _)| is_ours(method)) {
        let mut test = |prefix: &str, run: fn(&'static Method, Operation) -> Result<(), Failed>| {
            suite.test(&format!("{prefix}::{operation}::{}", method.name), move || run(method, operation));
        };
        test("fences", every_path_is_fenced);
        test("requires", nothing_undeclared_is_used);
        test("effect", the_cache_is_used_as_declared);
        test("nontemporal_loads", nontemporal_loads_come_after_a_barrier);
    }
    suite.test("every_instruction_of_the_architecture_is_used", every_instruction_is_used);
    for (name, run) in checker::TESTS {
        suite.test(name, run);
    }
}

/// Returns the paths of the unfenced and the fenced function.
fn walks(method: &'static Method, operation: Operation) -> Result<[Walk; 2], Failed> {
    let [unfenced, fenced] = [false, true].map(|fenced| {
        let function = Case { fenced, ..Case::new(method, operation) }.function();
        Walk::from(function.address())
    });
    let walks = [unfenced?, fenced?];
    if walks.iter().any(|walk| !walk.returns) {
        return Err("no path returns: the walk went wrong".into());
    }
    Ok(walks)
}

fn every_path_is_fenced(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let [unfenced, fenced] = walks(method, operation)?;
    if fenced.returns_pending_stores {
        return Err("the fenced entry can return without a barrier after a non-temporal store".into());
    }
    if fenced.returns_pending_write_backs {
        return Err("the fenced entry can return before its write-backs have completed".into());
    }
    let open = unfenced.returns_pending_stores || unfenced.returns_pending_write_backs;
    match method.ordering {
        // The unfenced function shows that the test notices a missing barrier.
        Ordering::Weak if !open => Err("declared weak, but no path ends unfenced".into()),
        Ordering::Ordered if open => {
            Err("declared ordered, but the unfenced entry can return with something pending".into())
        }
        Ordering::Weak | Ordering::Ordered => Ok(()),
    }
}

fn nothing_undeclared_is_used(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    let undeclared = walks(method, operation)?
        .iter()
        .flat_map(|walk| walk.steps.values())
        .find(|step| !method.requires.union(table::DISPENSABLE).contains(step.needs))
        .map(|step| format!("`{}` needs {}, which {} does not require", step.text, step.needs, method.name));
    undeclared.map_or(Ok(()), |problem| Err(problem.into()))
}

fn the_cache_is_used_as_declared(method: &'static Method, operation: Operation) -> Result<(), Failed> {
    const BYPASSES: &[Kind] = &[Kind::NontemporalStore, Kind::NontemporalCopy];
    const WRITES_BACK: &[Kind] = &[Kind::WriteBack];
    let [walk, _] = walks(method, operation)?;
    let (must, may_not): (&[Kind], &[&[Kind]]) = match method.effect {
        CacheEffect::Allocates => (&[], &[BYPASSES, WRITES_BACK]),
        CacheEffect::Bypasses | CacheEffect::Mixed => (BYPASSES, &[WRITES_BACK]),
        CacheEffect::Evicts => (WRITES_BACK, &[BYPASSES]),
        CacheEffect::Demotes => return Err("no instruction of this architecture demotes".into()),
    };
    if let Some(step) = may_not.iter().find_map(|kinds| walk.of_kind(kinds).next()) {
        return Err(format!("declared {:?}, but has `{}`", method.effect, step.text).into());
    }
    if !must.is_empty() && walk.of_kind(must).next().is_none() {
        return Err(format!("declared {:?}, but has none of {must:?}", method.effect).into());
    }
    Ok(())
}

fn nontemporal_loads_come_after_a_barrier(
    method: &'static Method,
    operation: Operation,
) -> Result<(), Failed> {
    for walk in walks(method, operation)? {
        if !walk.unordered_loads.is_empty() {
            return Err(format!(
                "can reach these before a barrier for loads:\n{}",
                walk.unordered_loads.join("\n")
            )
            .into());
        }
    }
    Ok(())
}

/// The instructions that the methods exist for: a list that misses one has lost a method, or the walk does not reach it.
fn every_instruction_is_used() -> Result<(), Failed> {
    let mut used = BTreeSet::new();
    for (method, operation) in table::entries().filter(|(method, _)| is_ours(method)) {
        for walk in walks(method, operation)? {
            used.extend(walk.steps.into_values().map(|step| step.mnemonic));
        }
    }
    println!(
        "instructions of the methods: {}",
        used.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    match NAMED.iter().find(|name| !used.contains(**name)) {
        Some(name) => Err(format!("no method uses `{name}`").into()),
        None => Ok(()),
    }
}

/// Tests of the walk, with code that has known faults.
#[cfg(target_arch = "aarch64")]
mod checker {
    use std::arch::naked_asm;

    use super::*;

    type Run = fn() -> Result<(), Failed>;

    pub(super) const TESTS: [(&str, Run); 6] = [
        ("checker::one_branch_without_a_barrier", one_branch_without_a_barrier),
        ("checker::a_barrier_before_the_loop_is_none", a_barrier_before_the_loop_is_none),
        ("checker::barriers_in_callees_count", barriers_in_callees_count),
        ("checker::a_dmb_does_not_complete_a_write_back", a_dmb_does_not_complete_a_write_back),
        ("checker::a_load_before_its_barrier_is_seen", a_load_before_its_barrier_is_seen),
        ("checker::a_computed_jump_is_refused", a_computed_jump_is_refused),
    ];

    fn walk(function: unsafe extern "C" fn()) -> Result<Walk, String> {
        Walk::from(function as *const ())
    }

    fn expect(found: bool, expected: bool) -> Result<(), Failed> {
        if found == expected { Ok(()) } else { Err(format!("expected {expected}").into()) }
    }

    #[unsafe(naked)]
    unsafe extern "C" fn forgetful_branch() {
        naked_asm!("stnp x1, x1, [x0]", "cbz x1, 2f", "dmb ish", "2: ret")
    }

    fn one_branch_without_a_barrier() -> Result<(), Failed> {
        expect(walk(forgetful_branch)?.returns_pending_stores, true)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn barrier_first() {
        naked_asm!("2: dmb ish", "stnp x1, x1, [x0]", "subs x2, x2, 1", "b.ne 2b", "ret")
    }

    fn a_barrier_before_the_loop_is_none() -> Result<(), Failed> {
        expect(walk(barrier_first)?.returns_pending_stores, true)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn just_a_barrier() {
        naked_asm!("dmb ish", "ret")
    }

    #[unsafe(naked)]
    unsafe extern "C" fn barrier_by_call() {
        naked_asm!("stnp x1, x1, [x0]", "bl {}", "ret", sym just_a_barrier)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn barrier_by_tail_call() {
        naked_asm!("stnp x1, x1, [x0]", "b {}", sym just_a_barrier)
    }

    fn barriers_in_callees_count() -> Result<(), Failed> {
        expect(walk(barrier_by_call)?.returns_pending_stores, false)?;
        expect(walk(barrier_by_tail_call)?.returns_pending_stores, false)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn clean_and_dmb() {
        naked_asm!("sys #3, c7, c12, #1, x0", "dmb ish", "ret")
    }

    #[unsafe(naked)]
    unsafe extern "C" fn clean_and_dsb() {
        naked_asm!("sys #3, c7, c12, #1, x0", "dsb sy", "ret")
    }

    fn a_dmb_does_not_complete_a_write_back() -> Result<(), Failed> {
        expect(walk(clean_and_dmb)?.returns_pending_write_backs, true)?;
        expect(walk(clean_and_dsb)?.returns_pending_write_backs, false)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn load_first() {
        naked_asm!("cbz x1, 2f", "dmb ishld", "2: ldnp x2, x3, [x0]", "ret")
    }

    fn a_load_before_its_barrier_is_seen() -> Result<(), Failed> {
        expect(walk(load_first)?.unordered_loads.is_empty(), false)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn computed_jump() {
        naked_asm!("br x0")
    }

    fn a_computed_jump_is_refused() -> Result<(), Failed> {
        match walk(computed_jump) {
            Err(error) if error.contains("computed address") => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}

/// As above.
#[cfg(target_arch = "riscv64")]
mod checker {
    use std::arch::naked_asm;

    use super::*;

    type Run = fn() -> Result<(), Failed>;

    pub(super) const TESTS: [(&str, Run); 4] = [
        ("checker::one_branch_without_a_barrier", one_branch_without_a_barrier),
        ("checker::barriers_in_callees_count", barriers_in_callees_count),
        (
            "checker::a_fence_of_memory_does_not_complete_a_write_back",
            a_fence_of_memory_does_not_complete_a_write_back,
        ),
        ("checker::a_computed_jump_is_refused", a_computed_jump_is_refused),
    ];

    fn walk(function: unsafe extern "C" fn()) -> Result<Walk, String> {
        Walk::from(function as *const ())
    }

    fn expect(found: bool, expected: bool) -> Result<(), Failed> {
        if found == expected { Ok(()) } else { Err(format!("expected {expected}").into()) }
    }

    #[unsafe(naked)]
    unsafe extern "C" fn forgetful_branch() {
        naked_asm!("add x0, x0, x5", "sd a1, 0(a0)", "beqz a1, 2f", "fence rw, rw", "2: ret")
    }

    fn one_branch_without_a_barrier() -> Result<(), Failed> {
        expect(walk(forgetful_branch)?.returns_pending_stores, true)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn just_a_barrier() {
        naked_asm!("fence rw, rw", "ret")
    }

    #[unsafe(naked)]
    unsafe extern "C" fn barrier_by_tail_call() {
        naked_asm!("add x0, x0, x5", "sd a1, 0(a0)", "tail {}", sym just_a_barrier)
    }

    fn barriers_in_callees_count() -> Result<(), Failed> {
        expect(walk(barrier_by_tail_call)?.returns_pending_stores, false)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn clean_and_order() {
        naked_asm!(
            ".option push",
            ".option arch, +zicbom",
            "cbo.clean (a0)",
            ".option pop",
            "fence rw, rw",
            "ret"
        )
    }

    #[unsafe(naked)]
    unsafe extern "C" fn clean_and_complete() {
        naked_asm!(
            ".option push",
            ".option arch, +zicbom",
            "cbo.clean (a0)",
            ".option pop",
            "fence iorw, iorw",
            "ret"
        )
    }

    fn a_fence_of_memory_does_not_complete_a_write_back() -> Result<(), Failed> {
        expect(walk(clean_and_order)?.returns_pending_write_backs, true)?;
        expect(walk(clean_and_complete)?.returns_pending_write_backs, false)
    }

    #[unsafe(naked)]
    unsafe extern "C" fn computed_jump() {
        naked_asm!("jr a0")
    }

    fn a_computed_jump_is_refused() -> Result<(), Failed> {
        match walk(computed_jump) {
            Err(error) if error.contains("computed address") => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}
