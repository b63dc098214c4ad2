//! The measurements of a report: what each section says, and how its rows become charts.

use bulkmem_measure::engine::{Dimension, Measurement};

#[derive(Debug)]
pub(in super::super) struct MeasurementSection {
    pub(in super::super) title: &'static str,
    /// The title of the charts, if it is another one.
    pub(in super::super) chart_title: Option<&'static str>,
    /// Explains what it shows, and how to read it.
    pub(in super::super) intro: &'static [&'static str],
    /// The dimension along the x axis; candidates stand there without one.
    pub(in super::super) x: Option<Dimension>,
    /// Title of the charts of rows that do not have that dimension.
    pub(in super::super) without_x: Option<&'static str>,
    /// Dimensions that distinguish series instead of charts.
    pub(in super::super) series: &'static [Dimension],
}

const BY_SIZE: MeasurementSection = MeasurementSection {
    title: "",
    chart_title: None,
    intro: &[],
    x: Some(Dimension::Size),
    without_x: None,
    series: &[],
};
const BY_CANDIDATE: MeasurementSection = MeasurementSection { x: None, ..BY_SIZE };

const SIZES: &str = "Each line is one method; higher is faster. The dashed vertical lines are cache sizes: to the left of \
                     one, the memory fits into that cache. To the right of the last, everything goes to memory, and \
                     methods that bypass the cache start to pay off.";
const COMMITS: &str = "Small groups show the cost of fences, large ones that of moving bytes. Only data are written by \
                       the method; metadata are always stored by MOVNTI.";
const POLICY: &str = "The thick line is the policy's choice, which bulkmem uses by default. It should be on or near the top \
                      everywhere. Hover over a point, or tap it, to see the method that was chosen. “(reading)” is how \
                      fast the same memory can be read: a physical reference, not a competitor.";

pub(in super::super) fn about(measurement: Measurement) -> MeasurementSection {
    match measurement {
        Measurement::Clear => MeasurementSection {
            title: "Clearing",
            intro: &["Speed of setting memory to zero, by size and method.", SIZES, POLICY],
            ..BY_SIZE
        },
        Measurement::Fill => MeasurementSection {
            title: "Filling",
            intro: &["Speed of filling memory with a byte, by size and method.", SIZES, POLICY],
            ..BY_SIZE
        },
        Measurement::Copy => MeasurementSection {
            title: "Copying",
            intro: &["Speed of copying memory, by size and method.", SIZES, POLICY],
            ..BY_SIZE
        },
        Measurement::Chunks => MeasurementSection {
            title: "Clearing in chunks",
            x: Some(Dimension::Chunk),
            intro: &[
                "A large range cleared chunk by chunk, as a kernel or an allocator does it, by the size of the chunks. \
             The speed of a method with a flat line does not depend on the chunk size; a method with a rising line \
             needs large chunks to be fast.",
                "Code that clears 4 KiB at a time never tells the processor that gigabytes follow. The policy receives \
             the length of the whole range, so its line should be flat and high.",
            ],
            ..BY_SIZE
        },
        Measurement::Vm => MeasurementSection {
            title: "Memory for a virtual machine",
            series: &[Dimension::Threads, Dimension::Memory, Dimension::PageSize, Dimension::Target],
            intro: &[
                "Time until a virtual machine has its memory. The kernel clears fresh memory when it is first touched, \
             here before the machine starts; a method clears memory that is reused. Shorter is better.",
                "Larger pages save the kernel work for each page, several threads share the clearing, and for reused \
             memory the method makes the difference.",
            ],
            ..BY_CANDIDATE
        },
        Measurement::Persist => MeasurementSection {
            title: "Persistent writes",
            x: Some(Dimension::Width),
            without_x: Some("Persistent writes, whole calls"),
            intro: &[
                "Writes that survive a power failure, by the number of bytes that one store writes. Non-temporal stores \
             bypass the cache; ordinary stores are followed by an instruction that writes the line back (CLWB, \
             CLFLUSHOPT or CLFLUSH). Higher is faster.",
                "Nothing survives in ordinary memory: there, the figures show the cost of the instructions. On \
             persistent memory they show the speed of the device.",
            ],
            ..BY_SIZE
        },
        Measurement::Blocks => MeasurementSection {
            title: "Persistent writes by block",
            x: Some(Dimension::Chunk),
            intro: &[
                "Blocks with a fence after each, by their length. Where the lines of MOVNTI and of stores that write lines \
             back cross, the other kind of store becomes faster. Higher is faster.",
                "The controls are non-temporal stores that complete each line before the next (whole lines), that start \
             in the middle of a line (misaligned), and that write the first half of every line before the second half \
             of any (half lines), each without and with a pause in the middle of a block. Half lines are slower where \
             a block has more lines than the processor has buffers.",
            ],
            ..BY_SIZE
        },
        Measurement::Pollution => MeasurementSection {
            title: "Cache pollution",
            chart_title: Some("Walking a cached list afterwards"),
            intro: &[
                "A list of another program is in the cache, and walking it is fast. Then memory is cleared or copied, \
             and the walk is timed again: the longer it takes, the more of the list was evicted. Shorter is better.",
                "A cache also empties while time passes. The controls let the same time pass without touching memory: a \
             method does no measurable harm if it is not worse than its control.",
                "Copies also have charts for what they read and what they write, alone.",
            ],
            ..BY_CANDIDATE
        },
        Measurement::Corun => MeasurementSection {
            title: "A program next to background clearing",
            series: &[Dimension::Rate],
            intro: &[
                "Run time of a program while memory is cleared or copied in the background, by method, or cleared by the \
             kernel. Shorter is better.",
                "The control uses the same processor time and touches no memory. The difference between a method and \
             the control is the effect on memory and caches. The thin line at the end of a bar is its 95 % interval: \
             where it overlaps the control's, the difference may be noise.",
            ],
            ..BY_CANDIDATE
        },
        Measurement::Reuse => MeasurementSection {
            title: "When caching pays off",
            x: Some(Dimension::ReadBack),
            chart_title: Some("Write, then read back"),
            intro: &[
                "Memory is cleared or copied, and a share of the result is read back: nothing at the left, everything \
             at the right. The speed is that of both together; higher is faster.",
                "Methods that leave the result in the cache start lower and fall less. Caching pays off to the right of \
             the point where their line crosses those of methods that bypass the cache.",
            ],
            ..BY_SIZE
        },
        Measurement::Fork => MeasurementSection {
            title: "Fork and copy-on-write",
            intro: &[
                "Cost of a fork for a process that writes to a buffer afterwards: the kernel copies each page that is \
             written. By the size of the buffer; shorter is better.",
                "“pages …” clear, copy and use as many pages within a process, by methods that fill or bypass the cache.",
                "The table of all figures has the number of pages that the kernel cleared and copied.",
            ],
            ..BY_SIZE
        },
        Measurement::Iops => MeasurementSection {
            title: "Random input and output",
            x: Some(Dimension::Threads),
            chart_title: Some("Random blocks"),
            intro: &[
                "Blocks read and written at random positions, as databases do it, by method and number of threads. \
             Higher is better.",
                "The latency charts show how long single operations take: half of them are faster than p50, and one in \
             ten thousand is slower than p99.99. Lower is better. A line that rises steeply at the right means \
             rare, long waits.",
            ],
            ..BY_SIZE
        },
        Measurement::WriteCache => MeasurementSection {
            title: "A write cache",
            x: Some(Dimension::Group),
            chart_title: Some("Blocks through a write cache"),
            intro: &[
                "A block cache in persistent memory, such as dm-writecache: blocks are written to slots and made durable, \
             then the entries that point to them, and old blocks are written back. By method and the number of writes \
             per commit. Higher is better.",
                COMMITS,
            ],
            ..BY_SIZE
        },
        Measurement::Log => MeasurementSection {
            title: "A log",
            x: Some(Dimension::Group),
            chart_title: Some("Records appended to a log"),
            intro: &[
                "Records are appended and made durable, then the header that counts them. By method and the number of \
             records per commit. Higher is better.",
                COMMITS,
            ],
            ..BY_SIZE
        },
        Measurement::Threshold => MeasurementSection {
            title: "Where the C library bypasses the cache",
            chart_title: Some("memset and memcpy"),
            intro: &[
                "Speed of the C library's memset (clear) and memcpy (copy) by length. From a threshold on, they use \
             non-temporal stores, which leave nothing in the cache: the findings name it, with the tunable that sets it.",
                "The table of all figures has, for each length, how much of what was written last is not in the cache, and the \
             time of a neighbour's walk in the cache after the call, in percent of the time before.",
            ],
            ..BY_SIZE
        },
        Measurement::Numa => MeasurementSection {
            title: "Local and remote memory",
            series: &[Dimension::MemoryNode, Dimension::SourceNode],
            intro: &[
                "Speed of the processors of each NUMA node with the memory of each node. Memory is local to the processors of \
             its own node and remote to all others. Higher is faster.",
                "A machine with one node has no remote memory: then the figures only show that local memory was measured.",
            ],
            ..BY_CANDIDATE
        },
        Measurement::Choice => MeasurementSection {
            title: "The policy's choice",
            chart_title: Some("All candidates"),
            intro: &[
                "Speed of the policy's choice, of every method and of other libraries, by size, for each intent, \
             alignment and cache state. Higher is faster.",
                "Cold memory is not in the cache, warm memory is, as far as it fits. The pages of a fresh destination are \
             not mapped yet, and its figures include the kernel's page faults.",
                POLICY,
            ],
            ..BY_SIZE
        },
        Measurement::Targets => MeasurementSection {
            title: "Performance targets",
            chart_title: Some("Targets"),
            intro: &["The comparisons that check the project's performance targets. Higher is faster."],
            ..BY_SIZE
        },
        Measurement::Tunables => MeasurementSection {
            title: "Tunables of the C library",
            chart_title: Some("Settings of the C library"),
            intro: &[
                "Speed of memcpy (copy) and memset (clear) of the C library with other thresholds, by size. Compare with \
             “unchanged” of the same run. Higher is faster.",
            ],
            ..BY_SIZE
        },
    }
}
