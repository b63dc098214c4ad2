# Faults to plant into copies of the module, to check that the tests detect them. Sourced, never run.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the sourcing scripts use it

# NAME|FILE|EXPRESSION of sed|the guest's test that must fail. The self-test cannot detect them: they are in code that it
# does not run, or need larger sizes.
PLANTED=(
    # The last page is not cleared, unless it is near the touched one.
    'last_page|clear.c|s/clear_weak(plan, addr + rest, tail)/clear_weak(plan, addr + rest, tail - (tail > 1048576 ? PAGE_SIZE : 0))/|clearing::refaulted::Pool2M::movnti'
    # The last line of a long chunk is not cleared. Visible only if the kernel does not clear transparent pages first.
    'last_line|clear.c|s/weak(kaddr, now)/weak(kaddr, now > 1048576 ? now - BULKMEM_LINE : now)/|clearing::refaulted::Transparent::movnti'
    # The stock method does not clear the first page.
    'stock_first|clear.c|s/clear_user_highpage(page + i,/clear_user_highpage(page + (i ? i : 1),/|clearing::refaulted::Pool2M::stock::large'
    # An extent as long as the threshold counts as short.
    'threshold|policy.c|s/below = extent < /below = extent <= /|hints::threshold_of_single_pages::Pool2M'
    # The hint reaches one byte too far.
    'hint_end|hint.c|s/hint->addr < hint->length/hint->addr <= hint->length/|hints::edges_inside_a_page::Pool2M'
    # The hot pages are not counted.
    'hot_count|clear.c|s/^\tbulkmem_count(function, &bulkmem_methods\[BULKMEM_STOCK\], &parts.hot, false);//|clearing::populated_at_once'
    # Hints outlive the file.
    'hints_stay|hint.c|/^void bulkmem_hint_drop_all/,/^}/s/bulkmem_hint_drop(hint)/break/|hints::undone::Pool2M'
    # Memory of the device is not cleared.
    'uncleared|unit.c|/^\tbulkmem_clear(/d|memory::what_it_was_before_is_never_seen::Wb_2m'
    # Memory from the pool is not cleared.
    'uncleared_pool|unit.c|s/^\t\tbulkmem_unit_clear_retyped(page);/\t\tif (!page) bulkmem_unit_clear_retyped(page);/|memory::reused_memory_is_zero::Wc_4k'
    # The pool takes everything.
    'pool_unbounded|unit.c|s/pool->count <= pool_limit \&\& /true \&\& /;s/pool->count < pool_limit/true/|memory::the_pool_is_bounded'
    # The pool takes broken pages, and forgets that it did.
    'pool_broken|unit.c|s/ \&\& !bulkmem_is_poisoned(page, HUGE_PAGES);/;/;s/if (!bulkmem_is_poisoned(page, HUGE_PAGES)) {/if (true) {/|memory::a_broken_page_does_not_return::Wc_2m'
    # Broken pages are mapped one by one, and as parts of huge pages.
    'broken_small|memory.c|s/return VM_FAULT_HWPOISON;/page = pfn_to_page(page_to_pfn(page));/|memory::a_broken_page_is_not_mapped::Wc_4k'
    # Opening the device of memory needs no capability.
    'no_capability|memory.c|s/return file->admin .*/return file != NULL;/|memory::memory_needs_a_capability'
    # No limit to the rate.
    'no_rate|unit.c|s/allowed = rate_until + units.*/allowed = true;/|memory::users_retype_at_a_limited_rate'
    # References can be taken to the pages, also by KVM.
    'unfrozen|unit.c|s/while (!page_ref_freeze(page, 1)) {/while (false) {/;s/page_ref_unfreeze(page, 1);/;/|memory::a_virtual_machine_cannot_have_it::Wc_4k'
    # Children of a hinted process are not hinted.
    'no_heirs|process.c|s/bulkmem_process_mark(mark->family, task_tgid(child))/bulkmem_process_mark(mark->family, task_tgid(parent))/|callers::children_and_their_children::Pool2M'
    # The first thread that ends ends the hint of the process.
    'first_thread|process.c|s/if (atomic_read(&task->signal->live)/if (!atomic_read(\&task->signal->live)/|callers::a_thread_that_ends_first_changes_nothing'
    # The smaller transparent pages of a hinted process bypass the cache.
    'hinted_smaller|hint.c|s/if (size < PMD_SIZE)/if (!size)/|smaller::of_a_hinted_process_stay_cached'
    # A user has no limit of hinted processes.
    'no_family_limit|process.c|s/< FAMILIES_PER_USER/< 1000 * FAMILIES_PER_USER/|callers::a_user_has_a_limit'
    # Hints of cgroups do not reach those below.
    'no_cgroups_below|cgroup.c|s/found = cgroup_is_descendant(own, hinted->cgroup);/found = own == hinted->cgroup;/|cgroups::members_and_those_below::Pool2M'
    # Anybody who can open the device may hint a cgroup.
    'cgroup_for_all|cgroup.c|s/if (!capable(CAP_SYS_ADMIN))/if (false)/|cgroups::need_a_capability'
    # Removed cgroups stay in the list.
    'cgroups_stay|cgroup.c|s/if (!(hinted->cgroup->self.flags & CSS_ONLINE))/if (false)/|cgroups::end_with_the_cgroup'
    # The automatic rule holds after the call.
    'call_never_ends|automatic.c|s/^\tif (note) {/\tif (note \&\& !note->extent) {/|automatic::only_while_the_call_lasts::Pool2M'
    # It holds for pins that are not for long.
    'short_pins|automatic.c|s/length < PMD_SIZE/length == 0/|automatic::short_pins_are_no_extents'
    # The trace does not tell of hints.
    'trace|stats.c|s/trace_bulkmem_extent(function, method->name, bytes, ns, hinted);/trace_bulkmem_extent(function, method->name, bytes, ns, false);/|observing::every_extent_is_traced::movnti'
    # The time of the part after the touched page is lost.
    'time|clear.c|s/^\t\tparts->tail.ns = bulkmem_lap(&clock);/\t\tbulkmem_lap(\&clock);/|observing::every_extent_is_traced::rep_stosq'
    # No reschedule point between chunks.
    'chunk|clear.c|s/now = min(length, plan->chunk);/now = length;/|observing::the_longest_stretch_is_the_chunk::movnti'
    # All processes share one limit of hints.
    'global_hints|hint.c|s/hinted->count == HINTS_PER_PROCESS/bulkmem_hint_count_of_all() >= HINTS_PER_PROCESS/;s/^long bulkmem_hint_add/static unsigned long bulkmem_hint_count_of_all(void) { struct hinted *h; unsigned long n = 0; list_for_each_entry(h, \&all, of_all) n += h->count; return n; }\n\n&/|hints::one_process_leaves_room_for_others'
    # The last page is not copied, unless it is near the written one.
    'copy_last_page|copy.c|s/copy_weak(plan, addr + end, from + end, length - end)/copy_weak(plan, addr + end, from + end, length - end - (end + 16 * PAGE_SIZE < length ? PAGE_SIZE : 0))/|copies::chunks::movnti'
    # The last line of a long chunk is not copied.
    'copy_last_line|copy.c|s/weak(to, from, now, /weak(to, from, now > 1048576 ? now - BULKMEM_LINE : now, /|copies::chunks::movnti'
    # A page near the written one is not copied.
    'copy_hot|copy.c|s/bulkmem_copy_pages(&copy, first, end)/bulkmem_copy_pages(\&copy, first + (first < copy.hot), end)/|copies::chunks::movnti'
    # The stock method copies the second page to the first.
    'copy_stock|copy.c|s/copy->src + i, addr/copy->src + (i ? i : 1), addr/|copies::chunks::stock'
    # What a method left when it stopped stays.
    'copy_not_redone|copy.c|s/^\t\t\tend = pages;/\t\t\tend = pages - 1;/|copies::an_exception_is_not_seen::movnti'
    # A broken page is not reported.
    'copy_error_lost|copy.c|s/^\treturn err;/\treturn 0;/|copies::a_broken_page_ends_in_sigbus::stock'
    # A copy as long as the threshold counts as short.
    'copy_threshold|copy.c|s/below = size < /below = size <= /|copies::threshold'
    # The bytes after the last whole line are not written back.
    'flush_tail|flushcache.c|s/bulkmem_flushcache_part(method->flush, to + now, from + now, size - now);/memcpy(to + now, from + now, size - now);/|flushcache::nothing_is_lost::clwb'
    # Those before the first one are not.
    'flush_head|flushcache.c|s/bulkmem_flushcache_part(method->flush, to, from, now);/memcpy(to, from, now);/|flushcache::nothing_is_lost::clflushopt'
    # A line is written back before the stores to it.
    'flush_early|flushcache_stores.c|s/LINE_BY("movq") \(".*clwb (.*n"\)/\1 LINE_BY("movq")/|flushcache::nothing_is_lost::clwb'
    # Parts of words are not written back after ordinary stores.
    'flush_word|flushcache.c|s/^\t\tarch_wb_cache_pmem(to, size);/\t\tbarrier();/|flushcache::nothing_is_lost::movnti'
    # Ordinary stores in place of non-temporal ones.
    'flush_movnti|flushcache_stores.c|s/LOOP(LINE_BY("movnti"), BULKMEM_LINE)/LOOP(LINE_BY("movq"), BULKMEM_LINE)/|flushcache::nothing_is_lost::movnti'
    # A copy to persistent memory as long as the threshold counts as short.
    'flushcache_threshold|flushcache.c|s/small = size < /small = size <= /|flushcache::threshold'
    # Its bytes are not counted exactly.
    'flushcache_count|flushcache.c|s/bulkmem_flushcache_count(method, size);/bulkmem_flushcache_count(method, size \& ~1UL);/|flushcache::threshold'
    # The function is always replaced.
    'flushcache_always|main.c|s/if (!bulkmem_flushcache_policy.replaced)/if (false)/|flushcache::off_by_default'
)
