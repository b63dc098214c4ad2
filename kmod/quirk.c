// SPDX-License-Identifier: GPL-2.0
/*
 * Processors on which MOVNTI is slower than ordinary stores: the Skylake family.
 * Earlier and later ones gain from it. Source: the 2022 series "huge page
 * clearing optimizations", version 3, patches "x86/cpuid: add
 * X86_FEATURE_MOVNT_SLOW" and "x86/cpu/intel: set X86_FEATURE_MOVNT_SLOW for
 * Skylake". Published figures exist for Skylake-X only: 3.2 to 3.7 % slower
 * than REP STOSB from 128 MB on. The library has the same list in
 * crates/bulkmem/src/policy/known.rs; one of its tests compares them.
 *
 * A profile that was measured on the machine overrides this list by
 * ignore_quirks=1.
 */
#include <linux/module.h>
#include <asm/cpu_device_id.h>

#include "bulkmem.h"

#define SLOW(model)	X86_MATCH_VENDOR_FAM_MODEL(INTEL, 6, model, NULL)

static const struct x86_cpu_id movnt_slow[] = {
	SLOW(78),	/* Skylake, mobile */
	SLOW(94),	/* Skylake, desktop */
	SLOW(85),	/* Skylake-X, Cascade Lake, Cooper Lake */
	{}
};

static bool pretend_movnt_slow;
module_param(pretend_movnt_slow, bool, 0444);
MODULE_PARM_DESC(pretend_movnt_slow,
		 "For tests: behave as on a processor where MOVNTI is slow (at load only)");

bool bulkmem_movnt_slow(void)
{
	return pretend_movnt_slow || x86_match_cpu(movnt_slow);
}
