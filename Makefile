# Targets for working in a checkout. `make` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run check test test-arch test-kmod test-machines test-kmod-all test-kmod-debug test-glibc test-pmdk test-programs lint lines bench bench-programs kernel-build fio install install-c install-kmod uninstall-kmod

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build, calibrate and measure this machine (some minutes), write bulkmem-report.html, show the result
	@scripts/run.sh

test: ## Run every test; say what was skipped and why, and how to rerun what failed
	@scripts/test.sh

test-arch: ## Test the methods of aarch64 and riscv64 on emulated processors (an hour; a part is in `make test`)
	@scripts/test-arch.sh

test-kmod: ## The part of `make test` that boots virtual machines to test the Linux module
	@scripts/test-kmod.sh

test-kmod-all: ## The same with every kernel that the module supports, 5.10 to 7.3
	@scripts/test-kmod.sh --all

test-kmod-debug: ## The same on a kernel with KASAN and lockdep, which it builds first (once)
	@scripts/test-kmod.sh --kernel 6.1-debug

test-machines: ## The part of `make test` that boots virtual machines to test the pool under systemd, and persistent memory
	@scripts/test-kmod.sh pool pmem-6.12

test-glibc: ## Run glibc's own tests of memcpy, memset and the checked forms with the library to preload (ten minutes)
	@scripts/glibc-string-tests.sh

test-pmdk: ## Run PMDK's own tests of libpmem, and its pmembench, with Debian's libpmem and with ours (ten minutes)
	@scripts/pmdk-tests.sh

test-programs: ## Run NumPy, Redis, a JVM, and the tests of SQLite, git and Perl with the library to preload (an hour)
	@scripts/preload-programs.sh
	@scripts/preload-suites.sh

check: ## Check format and lints, and run the fast tests: under three minutes if the last build is recent
	@scripts/check.sh

lint: ## Check format, lints, documentation, scripts and conventions
	@scripts/lint.sh

lines: ## Count the lines of Rust, without tests, of the measuring crate and the command
	@scripts/lines.sh

bench: ## Check the promises on this machine (five minutes): ratios to every method and peer within one run
	@scripts/bench.sh

bench-programs: ## Time programs without the preloaded library and with it (20 minutes to 3 hours); first make install-c and calibrate
	@scripts/bench-programs.py '$(PREFIX)/lib/bulkmem/libbulkmem_preload.so'

kernel-build: ## Time a part of a Linux build next to clearing by methods and by the kernel (half an hour)
	@scripts/kernel-build.sh

fio: ## Build the engine for fio
	@scripts/build-fio.sh

install: ## Install the command, its manual pages and completions under PREFIX (default /usr/local)
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh

install-c: ## Install the C library with its header and manual pages, bulkmem's libpmem, and the library to preload, under PREFIX
	@PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' DESTDIR='$(DESTDIR)' scripts/install-c.sh

install-kmod: ## Install the Linux module, by DKMS where there is one, for the running kernel or KVER
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install-kmod.sh

uninstall-kmod: ## Unload the Linux module and remove it
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/uninstall-kmod.sh
