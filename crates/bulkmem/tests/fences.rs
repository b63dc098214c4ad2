//! Checks the compiled code of every method against its declarations: no path through a fenced function returns
//! without a fence after a weak store, no path returns with the upper halves of vector registers in use, no path
//! reaches a non-temporal load before an MFENCE, every instruction belongs to a declared feature, and the effect on
//! the cache is the declared one.
//!
//! Nothing is executed, so these tests also cover methods that this machine cannot run.

use std::process::ExitCode;

use testkit::harness::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    #[cfg(target_arch = "x86_64")]
    x86_64::add(&mut suite);
    #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
    walked::add(&mut suite);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "x86_64")))]
    suite.skip("fences", "reading compiled code is not written for this architecture");
    suite.run()
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
#[path = "fences/walked.rs"]
mod walked;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use bulkmem::Operation;
    use bulkmem::machine::Features;
    use bulkmem::method::{CacheEffect, Method, Ordering};
    use libtest_mimic::Failed;
    use testkit::case::Case;
    use testkit::harness::Suite;
    use testkit::image::Image;
    use testkit::table;
    use testkit::x86_64::flow::Flow;
    use testkit::x86_64::instruction::{
        Instruction, Mnemonic, bypasses, demotes, implied, loads_nontemporally, needs, text, texts,
        writes_back,
    };

    /// A property of an instruction.
    type Property = fn(&Instruction) -> bool;

    pub(super) fn add(suite: &mut Suite) {
        for (method, operation) in table::entries() {
            let mut test = |prefix: &str, run: fn(&'static Method, Operation) -> Result<(), Failed>| {
                suite
                    .test(&format!("{prefix}::{operation}::{}", method.name), move || run(method, operation));
            };
            test("fences", every_path_is_fenced);
            test("requires", nothing_undeclared_is_used);
            test("effect", the_cache_is_used_as_declared);
            test("upper_halves", upper_halves_are_zeroed);
            test("nontemporal_loads", nontemporal_loads_come_after_a_full_fence);
        }
        suite.test("upper_halves_are_used_by_every_avx_method", upper_halves_are_used_by_every_avx_method);
        suite.test("looks_wait_for_their_stores", looks_wait_for_their_stores);
        for (name, run) in checker::TESTS {
            suite.test(name, run);
        }
    }

    /// Returns the flows of the unfenced and the fenced function.
    fn flows(method: &'static Method, operation: Operation) -> Result<[Flow; 2], Failed> {
        let [unfenced, fenced] = [false, true].map(|fenced| {
            let function = Case { fenced, ..Case::new(method, operation) }.function();
            Flow::from(function.address())
        });
        let flows = [unfenced?, fenced?];
        if flows.iter().any(|flow| !flow.returns) {
            return Err("no path returns: the walk went wrong".into());
        }
        Ok(flows)
    }

    fn every_path_is_fenced(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let [unfenced, fenced] = flows(method, operation)?;
        if fenced.returns_pending {
            let weak = texts(&fenced.weak);
            return Err(format!("the fenced entry can return unfenced after one of:\n{weak}").into());
        }
        match method.ordering {
            // The unfenced function shows that the test notices a missing fence.
            Ordering::Weak if !unfenced.returns_pending => {
                Err("declared weak, but no path ends unfenced".into())
            }
            Ordering::Weak if fenced.weak.is_empty() => {
                Err("declared weak, but stores nothing weakly".into())
            }
            Ordering::Ordered if unfenced.returns_pending => {
                Err("declared ordered, but the unfenced entry can return with something pending".into())
            }
            // CLFLUSH has its own fences. Otherwise an ordered method must not have weak stores.
            Ordering::Ordered => match unfenced.weak.iter().find(|it| !writes_back(it)) {
                Some(weak) => Err(format!("declared ordered, but has {}", text(weak)).into()),
                None => Ok(()),
            },
            Ordering::Weak => Ok(()),
        }
    }

    /// Processors without PREFETCHW execute it as a no-operation, so methods that use it only with some parameters do
    /// not have to declare it.
    const UNHARMFUL: Features = Features::PREFETCHW;

    /// Functions that check for a feature at run time before they use it.
    const CHECKED_WHEN_CALLED: [(&str, Features); 2] = [
        ("bulkmem::method::x86_64::line::write_back", Features::CLWB),
        ("bulkmem::method::x86_64::line::write_back", Features::CLFLUSHOPT),
    ];

    fn nothing_undeclared_is_used(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        for instruction in flows(method, operation)?.iter().flat_map(|flow| flow.instructions.values()) {
            let undeclared = match needs(instruction) {
                Ok(needed) => needed.difference(implied(method.requires)).difference(UNHARMFUL),
                Err(unknown) => return Err(unknown.into()),
            };
            let function = Image::current()?.function(instruction.ip());
            if !undeclared.is_empty() && !CHECKED_WHEN_CALLED.contains(&(function.as_str(), undeclared)) {
                let name = method.name;
                let remedy = format!("add {undeclared} to the `requires` of {name}, or do not use it");
                return Err(
                    format!("`{}` in {function} needs {undeclared}: {remedy}", text(instruction)).into()
                );
            }
        }
        Ok(())
    }

    /// Instructions that a method with an effect may use, and those of which it must use one.
    fn expected_instructions(effect: CacheEffect) -> [Vec<(&'static str, Property)>; 2] {
        const BYPASSES: (&str, Property) = ("a store that bypasses the cache", bypasses);
        const WRITES_BACK: (&str, Property) = ("a write-back", writes_back);
        const DEMOTES: (&str, Property) = ("a demotion", demotes);
        match effect {
            CacheEffect::Allocates => [vec![], vec![]],
            CacheEffect::Bypasses => [vec![BYPASSES, WRITES_BACK], vec![BYPASSES]],
            CacheEffect::Evicts => [vec![WRITES_BACK], vec![WRITES_BACK]],
            CacheEffect::Mixed => [vec![BYPASSES], vec![BYPASSES]],
            CacheEffect::Demotes => [vec![DEMOTES], vec![DEMOTES]],
        }
    }

    fn the_cache_is_used_as_declared(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        let [flow, _] = flows(method, operation)?;
        let effect = method.effect;
        let [may, must] = expected_instructions(effect);
        for instruction in flow.instructions.values() {
            let special = [bypasses, writes_back, demotes].iter().any(|is| is(instruction));
            if special && !may.iter().any(|(_, is)| is(instruction)) {
                return Err(format!("declared {effect:?}, but has {}", text(instruction)).into());
            }
        }
        match must.iter().find(|(_, is)| !flow.instructions.values().any(is)) {
            Some((kind, _)) => {
                Err(format!("declared {effect:?}, but has no instruction that is {kind}").into())
            }
            None if method.spares_source() && !flow.instructions.values().any(spares_source) => {
                Err("declared to spare the source, but has neither PREFETCHNTA nor CLFLUSHOPT".into())
            }
            None => Ok(()),
        }
    }

    fn spares_source(instruction: &Instruction) -> bool {
        matches!(instruction.mnemonic(), Mnemonic::Prefetchnta | Mnemonic::Clflushopt)
    }

    fn upper_halves_are_zeroed(method: &'static Method, operation: Operation) -> Result<(), Failed> {
        for flow in flows(method, operation)? {
            if flow.returns_wide {
                let wide = texts(&flow.wide);
                return Err(format!("can return without VZEROUPPER after one of:\n{wide}").into());
            }
        }
        Ok(())
    }

    /// The name of a method tells whether it uses wide registers: the test above examined exactly these methods.
    fn upper_halves_are_used_by_every_avx_method() -> Result<(), Failed> {
        let mut count = 0;
        for (method, operation) in table::entries() {
            for flow in flows(method, operation)? {
                let wide = !flow.wide.is_empty();
                if wide != method.name.contains("avx") {
                    let name = method.name;
                    return Err(format!("{operation} by {name} writes YMM or ZMM: {wide}").into());
                }
                count += usize::from(wide);
            }
        }
        if count > 0 { Ok(()) } else { Err("no method writes a YMM or ZMM register".into()) }
    }

    /// By two locked instructions after the first stores and after the second ones, and by MFENCE after each single one. After one locked
    /// instruction, Zen 3 reads the clock before the stores have their lines.
    fn looks_wait_for_their_stores() -> Result<(), Failed> {
        let flow = Flow::from(bulkmem::probe::times as *const ())?;
        let count = |is: fn(&Instruction) -> bool| flow.instructions.values().filter(|it| is(it)).count();
        let fences = count(|it| it.mnemonic() == Mnemonic::Mfence);
        let locked = count(|it| it.has_lock_prefix());
        if locked < 4 || fences < 1 {
            return Err(format!("{locked} locked instructions, {fences} MFENCE").into());
        }
        Ok(())
    }

    fn nontemporal_loads_come_after_a_full_fence(
        method: &'static Method,
        operation: Operation,
    ) -> Result<(), Failed> {
        for flow in flows(method, operation)? {
            let loads = flow.instructions.values().any(loads_nontemporally);
            if loads != method.name.starts_with("movntdqa") {
                return Err(format!("loads non-temporally: {loads}").into());
            }
            if !flow.unordered_loads.is_empty() {
                let early = texts(&flow.unordered_loads);
                return Err(format!("can reach these before an MFENCE:\n{early}").into());
            }
            let unneeded = with_mnemonic(&flow, Mnemonic::Mfence).find(|fence| {
                let mut clflushes = with_mnemonic(&flow, Mnemonic::Clflush);
                !clflushes.any(|it| it.next_ip() == fence.ip() || fence.next_ip() == it.ip())
            });
            if let Some(fence) = unneeded.filter(|_| !loads) {
                return Err(format!("neither CLFLUSH nor non-temporal loads need {}", text(fence)).into());
            }
        }
        Ok(())
    }

    fn with_mnemonic(flow: &Flow, mnemonic: Mnemonic) -> impl Iterator<Item = &Instruction> {
        flow.instructions.values().filter(move |it| it.mnemonic() == mnemonic)
    }

    /// Tests of the walk, with code that has known faults.
    mod checker {
        use std::arch::{asm, naked_asm};

        use super::*;

        type Run = fn() -> Result<(), Failed>;

        pub(super) const TESTS: [(&str, Run); 12] = [
            ("checker::one_branch_without_a_fence", one_branch_without_a_fence),
            ("checker::a_fence_before_the_loop_is_none", a_fence_before_the_loop_is_none),
            (
                "checker::fences_in_callees_and_behind_tail_calls_count",
                fences_in_callees_and_behind_tail_calls_count,
            ),
            ("checker::a_locked_instruction_is_a_fence", a_locked_instruction_is_a_fence),
            ("checker::a_computed_jump_is_refused", a_computed_jump_is_refused),
            ("checker::a_call_through_a_register_is_refused", a_call_through_a_register_is_refused),
            ("checker::flushes_are_weak", flushes_are_weak),
            ("checker::one_branch_without_vzeroupper", one_branch_without_vzeroupper),
            ("checker::vzeroupper_in_a_callee_counts", vzeroupper_in_a_callee_counts),
            ("checker::narrow_avx_registers_do_not_count", narrow_avx_registers_do_not_count),
            ("checker::one_branch_without_a_full_fence", one_branch_without_a_full_fence),
            ("checker::other_fences_order_no_loads", other_fences_order_no_loads),
        ];

        fn pending(function: unsafe extern "C" fn()) -> Result<bool, String> {
            Flow::from(function as *const ()).map(|flow| flow.returns_pending)
        }

        fn expect(found: Result<bool, String>, expected: bool) -> Result<(), Failed> {
            if found? == expected { Ok(()) } else { Err(format!("expected {expected}").into()) }
        }

        #[unsafe(naked)]
        unsafe extern "C" fn forgetful_branch() {
            naked_asm!("movnti [rdi], rax", "test rsi, rsi", "jz 2f", "sfence", "2: ret")
        }

        fn one_branch_without_a_fence() -> Result<(), Failed> {
            expect(pending(forgetful_branch), true)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn fence_first() {
            naked_asm!("2: sfence", "clzero", "dec rsi", "jnz 2b", "ret")
        }

        fn a_fence_before_the_loop_is_none() -> Result<(), Failed> {
            expect(pending(fence_first), true)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn just_a_fence() {
            naked_asm!("sfence", "ret")
        }

        #[unsafe(naked)]
        unsafe extern "C" fn fence_by_call() {
            naked_asm!("movnti [rdi], rax", "call {}", "ret", sym just_a_fence)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn fence_by_tail_call() {
            naked_asm!("movnti [rdi], rax", "jmp {}", sym just_a_fence)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn store_by_call() {
            naked_asm!("call {}", "call {}", "ret", sym just_a_fence, sym forgetful_branch)
        }

        fn fences_in_callees_and_behind_tail_calls_count() -> Result<(), Failed> {
            expect(pending(fence_by_call), false)?;
            expect(pending(fence_by_tail_call), false)?;
            expect(pending(store_by_call), true)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn locked() {
            naked_asm!("movnti [rdi], rax", "lock add qword ptr [rsp - 8], 0", "ret")
        }

        fn a_locked_instruction_is_a_fence() -> Result<(), Failed> {
            expect(pending(locked), false)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn computed_jump() {
            naked_asm!("jmp rax")
        }

        fn a_computed_jump_is_refused() -> Result<(), Failed> {
            match pending(computed_jump) {
                Err(error) if error.contains("computed address") => Ok(()),
                other => Err(format!("{other:?}").into()),
            }
        }

        #[unsafe(naked)]
        unsafe extern "C" fn through_a_register() {
            naked_asm!("call rax", "ret")
        }

        fn a_call_through_a_register_is_refused() -> Result<(), Failed> {
            match pending(through_a_register) {
                Err(error) if error.contains("register") => Ok(()),
                other => Err(format!("{other:?}").into()),
            }
        }

        #[inline(never)]
        unsafe extern "C" fn flush_only() {
            // SAFETY: the function is only read, never called; the stack would be valid to flush.
            unsafe { asm!("clflush [rsp]", options(nostack, preserves_flags)) }
        }

        fn flushes_are_weak() -> Result<(), Failed> {
            expect(pending(flush_only), true)
        }

        fn wide(function: unsafe extern "C" fn()) -> Result<bool, String> {
            Flow::from(function as *const ()).map(|flow| flow.returns_wide)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn wide_branch() {
            naked_asm!("vmovdqu ymm3, [rsi]", "test rsi, rsi", "jz 2f", "vzeroupper", "2: ret")
        }

        fn one_branch_without_vzeroupper() -> Result<(), Failed> {
            expect(wide(wide_branch), true)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn just_vzeroupper() {
            naked_asm!("vzeroupper", "ret")
        }

        #[unsafe(naked)]
        unsafe extern "C" fn wide_then_zeroed() {
            naked_asm!("vmovdqu64 zmm3, [rsi]", "call {}", "ret", sym just_vzeroupper)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn zeroed_then_wide() {
            naked_asm!("call {}", "vpxor ymm3, ymm3, ymm3", "ret", sym just_vzeroupper)
        }

        fn vzeroupper_in_a_callee_counts() -> Result<(), Failed> {
            expect(wide(wide_then_zeroed), false)?;
            expect(wide(zeroed_then_wide), true)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn narrow() {
            naked_asm!("vmovdqu xmm3, [rsi]", "vmovntdq [rdi], xmm3", "ret")
        }

        fn narrow_avx_registers_do_not_count() -> Result<(), Failed> {
            expect(wide(narrow), false)
        }

        fn unordered_loads(function: unsafe extern "C" fn()) -> Result<bool, String> {
            Flow::from(function as *const ()).map(|flow| !flow.unordered_loads.is_empty())
        }

        #[unsafe(naked)]
        unsafe extern "C" fn full_fence() {
            naked_asm!("mfence", "movntdqa xmm0, [rsi]", "ret")
        }

        #[unsafe(naked)]
        unsafe extern "C" fn full_fence_skipped() {
            naked_asm!("test rsi, rsi", "jz 2f", "mfence", "2: vmovntdqa ymm0, [rsi]", "ret")
        }

        fn one_branch_without_a_full_fence() -> Result<(), Failed> {
            expect(unordered_loads(full_fence), false)?;
            expect(unordered_loads(full_fence_skipped), true)
        }

        #[unsafe(naked)]
        unsafe extern "C" fn other_fences() {
            naked_asm!("lfence", "sfence", "lock add dword ptr [rsp], 0", "movntdqa xmm0, [rsi]", "ret")
        }

        fn other_fences_order_no_loads() -> Result<(), Failed> {
            expect(unordered_loads(other_fences), true)
        }
    }
}
