//! The measurements of a report: what each section says, and how its rows become charts.

use bulkmem_measure::engine::{Dimension, Measurement};

use super::super::layout::ChartLayout;

/// The section of one measurement.
#[derive(Debug)]
pub(super) struct MeasurementSection {
    pub(super) measurement: Measurement,
    pub(super) title: &'static str,
    /// What it shows, and how to read it.
    pub(super) intro: &'static [&'static str],
    pub(super) layout: ChartLayout,
    /// The layout of rows that do not have the dimension of the x axis.
    pub(super) rest: Option<ChartLayout>,
}

const LAYOUT: ChartLayout = ChartLayout { name: "", title: "", x: None, series: &[], mark_caches: false };

const POLICY: &str = "The thick line is the policy's choice, which bulkmem uses by default. It should be on or near the top \
                      everywhere. Hover over a point, or tap it, to see the method that was chosen. “(reading)” is how \
                      fast the same memory can be read: a physical reference, not a competitor.";

const SIZES: &str = "Each line is one method; higher is faster. The dashed vertical lines are cache sizes: to the left of \
                     one, the memory fits into that cache. To the right of the last, everything goes to memory, and \
                     methods that bypass the cache start to pay off.";

/// All sections, in the order of the report.
pub(super) const SECTIONS: &[MeasurementSection] = &[
    MeasurementSection {
        measurement: Measurement::Clear,
        title: "Clearing",
        intro: &["Speed of setting memory to zero, by size and method.", SIZES, POLICY],
        layout: sizes("clear", "Clearing"),
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Fill,
        title: "Filling",
        intro: &["Speed of filling memory with a byte, by size and method.", SIZES, POLICY],
        layout: sizes("fill", "Filling"),
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Copy,
        title: "Copying",
        intro: &["Speed of copying memory, by size and method.", SIZES, POLICY],
        layout: sizes("copy", "Copying"),
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Chunks,
        title: "Clearing in chunks",
        intro: &[
            "A large range cleared chunk by chunk, as a kernel or an allocator does it, by the size of the chunks. The \
             speed of a method with a flat line does not depend on the chunk size; a method with a rising line needs \
             large chunks to be fast.",
            "Code that clears 4 KiB at a time never tells the processor that gigabytes follow. The policy receives the \
             length of the whole range, so its line should be flat and high.",
        ],
        layout: ChartLayout {
            name: "chunks",
            title: "Clearing in chunks",
            x: Some(Dimension::Chunk),
            mark_caches: true,
            ..LAYOUT
        },
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Vm,
        title: "Memory for a virtual machine",
        intro: &[
            "Time until a virtual machine has its memory. The kernel clears fresh memory when it is first touched, here \
             before the machine starts; a method clears memory that is reused. Shorter is better.",
            "Larger pages save the kernel work for each page, several threads share the clearing, and for reused memory \
             the method makes the difference.",
        ],
        layout: ChartLayout {
            name: "vm",
            title: "Memory for a virtual machine",
            series: &[Dimension::Threads, Dimension::Memory, Dimension::PageSize, Dimension::Target],
            ..LAYOUT
        },
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Persist,
        title: "Persistent writes",
        intro: &[
            "Writes that survive a power failure, by the number of bytes that one store writes. Non-temporal stores \
             bypass the cache; ordinary stores are followed by an instruction that writes the line back (CLWB, \
             CLFLUSHOPT or CLFLUSH). Higher is faster.",
            "Nothing survives in ordinary memory: there, the figures show the cost of the instructions. On persistent \
             memory they show the speed of the device.",
        ],
        layout: ChartLayout {
            name: "persist",
            title: "Persistent writes",
            x: Some(Dimension::Width),
            ..LAYOUT
        },
        rest: Some(ChartLayout { name: "persist-calls", title: "Persistent writes, whole calls", ..LAYOUT }),
    },
    MeasurementSection {
        measurement: Measurement::Pollution,
        title: "Cache pollution",
        intro: &[
            "A list of another program is in the cache, and walking it is fast. Then memory is cleared or copied, and \
             the walk is timed again: the longer it takes, the more of the list was evicted. Shorter is better.",
            "A cache also empties while time passes. The controls let the same time pass without touching memory: a \
             method that is no worse than its control does no measurable harm.",
        ],
        layout: ChartLayout { name: "pollution", title: "Walking a cached list afterwards", ..LAYOUT },
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Corun,
        title: "A program next to background clearing",
        intro: &[
            "Run time of a program while memory is cleared in the background at a limited rate, by clearing method. \
             Shorter is better.",
            "The control uses the same processor time and touches no memory. The difference between a method and the \
             control is the effect on memory and caches.",
        ],
        layout: ChartLayout {
            name: "corun",
            title: "A program next to background clearing",
            series: &[Dimension::Rate],
            ..LAYOUT
        },
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Reuse,
        title: "When caching pays off",
        intro: &[
            "Memory is cleared or copied, and a share of the result is read back: nothing at the left, everything at \
             the right. The speed is that of both together; higher is faster.",
            "Methods that leave the result in the cache start lower and fall less. Caching pays off to the right of the \
             point where their line crosses those of methods that bypass the cache.",
        ],
        layout: ChartLayout {
            name: "reuse",
            title: "Write, then read back",
            x: Some(Dimension::ReadBack),
            ..LAYOUT
        },
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Fork,
        title: "Fork and copy-on-write",
        intro: &[
            "Cost of a fork for a process that writes to a buffer afterwards: the kernel copies each page that is \
             written. By the size of the buffer; shorter is better.",
            "The table of all figures has the number of pages that the kernel cleared and copied.",
        ],
        layout: sizes("fork", "Fork and copy-on-write"),
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Iops,
        title: "Random input and output",
        intro: &[
            "Blocks read and written at random positions, as databases do it, by method and number of threads. Higher \
             is better.",
            "The latency charts show how long single operations take: half of them are faster than p50, and one in ten \
             thousand is slower than p99.99. Lower is better. A line that rises steeply at the right means rare, long \
             waits.",
        ],
        layout: ChartLayout { name: "iops", title: "Random blocks", x: Some(Dimension::Threads), ..LAYOUT },
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Choice,
        title: "The policy's choice",
        intro: &[
            "Speed of the policy's choice, of every method and of other libraries, by size, for each intent, alignment and \
             state of the cache. Higher is faster.",
            POLICY,
        ],
        layout: sizes("choice", "The policy's choice"),
        rest: None,
    },
    MeasurementSection {
        measurement: Measurement::Targets,
        title: "Performance targets",
        intro: &["The comparisons by which the project's performance targets are checked. Higher is faster."],
        layout: sizes("targets", "Performance targets"),
        rest: None,
    },
];

const fn sizes(name: &'static str, title: &'static str) -> ChartLayout {
    ChartLayout { name, title, x: Some(Dimension::Size), series: &[], mark_caches: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_has_its_section() {
        let sections: Vec<Measurement> = SECTIONS.iter().map(|it| it.measurement).collect();
        assert!(Measurement::ALL.starts_with(&sections));
    }
}
