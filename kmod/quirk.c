// SPDX-License-Identifier: GPL-2.0
/*
 * Processors that are not to clear large ranges by MOVNTI: Skylake. Source: the
 * cover letter of the 2022 series "huge page clearing optimizations", version 3,
 * which disables its uncached path for Skylake, and says that MOVNTI does well on
 * Broadwell and Ice Lake but not on Skylake and Cascade Lake. It does not list
 * models; those below are the ones that its last patch is reported to set.
 * Published figures exist for Skylake-X only: 3.2 to 3.7 % slower than REP STOSB
 * from 128 MB on. The library has the same list in
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

#ifdef BULKMEM_TESTS
static bool pretend_movnt_slow;
module_param(pretend_movnt_slow, bool, 0444);
MODULE_PARM_DESC(pretend_movnt_slow,
		 "For tests: behave as on a processor where MOVNTI is slow (at load only)");
#else
static const bool pretend_movnt_slow;
#endif

bool bulkmem_movnt_slow(void)
{
	return pretend_movnt_slow || x86_match_cpu(movnt_slow);
}
