// SPDX-License-Identifier: GPL-2.0
/*
 * Processors on which MOVNTI is slower than ordinary stores at every length:
 * Skylake and its derivatives. Earlier and later ones gain from it. Source: the
 * 2022 series "huge page clearing optimizations", version 3, patches
 * "x86/cpuid: add X86_FEATURE_MOVNT_SLOW" and "x86/cpu/intel: set
 * X86_FEATURE_MOVNT_SLOW for Skylake".
 *
 * A profile that was measured on the machine overrides this list by
 * ignore_quirks=1.
 */
#include <linux/module.h>
#include <asm/cpu_device_id.h>
#include <asm/intel-family.h>

#include "bulkmem.h"

/* Linux 6.11 renamed the models. */
#ifdef INTEL_FAM6_SKYLAKE_X
# define SLOW(model)	X86_MATCH_INTEL_FAM6_MODEL(model, NULL)
#else
# define SLOW(model)	X86_MATCH_VFM(INTEL_##model, NULL)
#endif

static const struct x86_cpu_id movnt_slow[] = {
	SLOW(SKYLAKE_L),
	SLOW(SKYLAKE),
	SLOW(SKYLAKE_X),	/* and its steppings Cascade Lake and Cooper Lake */
	SLOW(KABYLAKE_L),
	SLOW(KABYLAKE),
	SLOW(COMETLAKE_L),
	SLOW(COMETLAKE),
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
