# Faults to plant into copies of the module, to check that the tests detect them. Sourced, never run.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the sourcing scripts use it

# NAME|FILE|EXPRESSION of sed|the guest's test that must fail. The self-test cannot detect them: they are in code that it
# does not run, or need larger sizes.
PLANTED=(
    # The last page is not cleared, unless it is near the touched one.
    'last_page|clear.c|s/page_address(page), pages, hot/page_address(page), pages - (hot + 3 < pages), hot/|clearing::refaulted::Pool2M::movnti'
    # The last line of a long chunk is not cleared. Visible only if the kernel does not clear transparent pages first.
    'last_line|clear.c|s/weak(kaddr, now)/weak(kaddr, now > 1048576 ? now - BULKMEM_LINE : now)/|clearing::refaulted::Transparent::movnti'
    # The stock method does not clear the first page.
    'stock_first|clear.c|s/clear_user_highpage(page + i,/clear_user_highpage(page + (i ? i : 1),/|clearing::refaulted::Pool2M::stock::large'
    # An extent as long as the threshold counts as short.
    'threshold|policy.c|s/below = extent < /below = extent <= /|hints::threshold_of_single_pages::Pool2M'
    # The hint reaches one byte too far.
    'hint_end|hint.c|s/hint->addr < hint->length/hint->addr <= hint->length/|hints::edges_inside_a_page::Pool2M'
    # The hot pages are not counted.
    'hot_count|clear.c|s/^\tbulkmem_stats_count(&bulkmem_methods\[BULKMEM_STOCK\], 1, hot_pages, false);//|clearing::populated_at_once'
    # Hints outlive the file.
    'hints_stay|hint.c|/^void bulkmem_hint_drop_all/,/^}/s/drop(hint)/break/|hints::undone::Pool2M'
    # Memory of the device is not cleared.
    'uncleared|block.c|/^\t\tbulkmem_clear(/d|memory::what_it_was_before_is_never_seen::Wc_2m'
)
