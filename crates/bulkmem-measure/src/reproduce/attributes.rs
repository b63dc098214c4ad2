//! What the sources conclude of cache attributes, and whether it holds here.

use super::Conclusion;
use super::conclusions::{ELLIOTT_2015, SAME, STREAMING_LOADS, conclusion, missing};
use super::ours::Ours;
use crate::engine::Direction;

/// From here on a ratio is nearer to two orders of magnitude than to one.
const TWO_ORDERS: f64 = 31.6;

/// Judges what is said of write-combining and uncached memory.
pub(super) fn by_attribute(ours: &Ours<'_>) -> Vec<Conclusion> {
    let plain = |attribute: &str, direction| ours.iops_in(attribute, "c_library", direction);
    let in_each = |attribute: &str, direction| plain(attribute, direction).zip(plain("wb", direction));
    let without = |what: &str| {
        missing(&format!(
            "{what} of /dev/bulkmem, which the kernel module gives (docs/kernel/README.md): \
             `bulkmem bench iops --attr wb,wc,uc`"
        ))
    };
    let uncached = in_each("uc", Direction::Read).zip(in_each("uc", Direction::Write));
    let uncached = uncached.map(|((read, wb_read), (write, wb_write))| {
        let (reads, writes) = (wb_read / read, wb_write / write);
        (
            reads.min(writes) > TWO_ORDERS,
            format!(
                "{reads:.0} times fewer reads and {writes:.0} times fewer writes than in write-back memory"
            ),
        )
    });
    let words = |(here, there): (f64, f64)| format!("{here:.0} a second against {there:.0}");
    let reads = in_each("wc", Direction::Read).map(|pair| (pair.0 / pair.1 < 0.5, words(pair)));
    let writes = in_each("wc", Direction::Write).map(|pair| (pair.0 / pair.1 > 1.0 + SAME, words(pair)));
    let copies = ours.iops_in("wc", "movnti", Direction::Read).zip(plain("wc", Direction::Read));
    let copies = copies.map(|pair| (pair.0 / pair.1 > 2.0, words(pair)));
    let stores = ours.iops_in("wc", "movnti", Direction::Write).zip(plain("wc", Direction::Write));
    let stores = stores.map(|pair| (pair.0 / pair.1 < 1.0 - SAME, words(pair)));
    let streamed = STREAMING_LOADS.iter().filter_map(|name| ours.iops_in("wc", name, Direction::Read));
    let streamed = streamed.max_by(f64::total_cmp).zip(plain("wc", Direction::Read));
    let streamed = streamed.map(|pair| (pair.0 / pair.1 > 1.0 + SAME, words(pair)));
    vec![
        conclusion(
            ELLIOTT_2015,
            "Uncached mappings are two orders of magnitude slower than write-back ones",
            "37 K against 3.6 M reads, 21 K against 2.5 M writes a second",
            uncached.ok_or_else(|| without("random reads and writes in uncached and write-back memory")),
        ),
        conclusion(
            ELLIOTT_2015,
            "Write-combining memory is read several times as slowly as write-back memory",
            "764 K against 3.6 M reads a second",
            reads.ok_or_else(|| without("random reads in write-combining and write-back memory")),
        ),
        conclusion(
            ELLIOTT_2015,
            "Write-combining memory is written faster than write-back memory",
            "3.7 M against 2.5 M writes a second",
            writes.ok_or_else(|| without("random writes in write-combining and write-back memory")),
        ),
        conclusion(
            ELLIOTT_2015,
            "A copy by non-temporal stores reads write-combining memory several times as fast as memcpy",
            "3.2 M against 764 K reads a second",
            copies.ok_or_else(|| without("random reads by MOVNTI and by memcpy in write-combining memory")),
        ),
        conclusion(
            ELLIOTT_2015,
            "Write-combining memory is written more slowly by non-temporal stores than by memcpy",
            "2.1 M against 3.7 M writes a second",
            stores.ok_or_else(|| without("random writes by MOVNTI and by memcpy in write-combining memory")),
        ),
        conclusion(
            ELLIOTT_2015,
            "MOVNTDQA might help reads of write-combining memory (nobody had tried)",
            "no figure: a question",
            streamed
                .ok_or_else(|| without("random reads by MOVNTDQA and by memcpy in write-combining memory")),
        ),
    ]
}
