//! What a bench found, ready to be shown or stored.

use crate::calibration::{Condition, Cost};
use bulkmem::method::Parameters;
use bulkmem::{Intent, Operation};
use serde::{Deserialize, Serialize};

use crate::engine::{Kind, Provenance};

/// Who was measured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contestant {
    /// What it is.
    pub kind: Kind,
    /// The method's or the peer's name; for the policy, the method it chose.
    pub name: String,
    /// The method's parameters; all zero for others.
    pub parameters: Parameters,
    /// Whether it is one of those that "the best peer" means: the C library, libpmem, and the plain methods that
    /// the sources compare with.
    pub baseline: bool,
}

/// One contestant in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// Bytes an operation.
    pub length: u64,
    /// What was to happen to the bytes next.
    pub intent: Intent,
    /// What the times are the cost of; follows from the intent.
    pub cost: Cost,
    /// The circumstances.
    pub condition: Condition,
    /// Who.
    pub contestant: Contestant,
    /// Median, nanoseconds an operation. For the cost `stream` the disturbance is included.
    pub median_ns: f64,
    /// First and third quartile, nanoseconds.
    pub quartiles_ns: [f64; 2],
    /// How many samples.
    pub samples: u32,
    /// Gigabytes (10⁹ bytes) a second, by the median.
    pub gb_per_s: f64,
    /// For the cost `stream`: how much longer a cache-resident neighbour took afterwards than after the same time
    /// without touching memory, nanoseconds; medians' difference. Negative: not distinguishable from nothing.
    pub disturbance_ns: Option<f64>,
    /// The best peer's median divided by this one: above 1 is faster than every peer. None without a peer.
    pub ratio_to_best_peer: Option<f64>,
    /// For the policy's row: its median divided by the best method's in hindsight, in this condition alone, minus 1; 0
    /// where it is the best. A choice that does not know the condition is judged by [`BenchReport::overall`].
    pub regret: Option<f64>,
    /// Cycles, instructions and last-level cache misses an operation, where the kernel gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<crate::Counts>,
}

/// One length, intent and number of threads on the whole, over the conditions (aligned or not, warm or cold) that
/// were measured. Times are compared by their geometric mean over these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overall {
    /// Bytes an operation.
    pub length: u64,
    /// What was to happen to the bytes next.
    pub intent: Intent,
    /// Threads that shared the work.
    pub threads: usize,
    /// How many conditions.
    pub conditions: usize,
    /// The best peer's time divided by the choice's: above 1 is faster than every peer. None without a peer.
    pub ratio_to_best_peer: Option<f64>,
    /// That peer.
    pub best_peer: Option<String>,
    /// The choice's time divided by that of the best method in hindsight, minus 1: of those that [`derive_policy`](crate::calibration::derive())
    /// could choose, which lose to the C library in no condition, or little beside what they gain in another.
    pub regret: Option<f64>,
    /// That method.
    pub best_method: Option<String>,
}

/// The regret of a whole report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegretSummary {
    /// Geometric mean of choice ÷ best over all places ([`Overall::regret`]), minus 1.
    pub geometric_mean: f64,
    /// The largest regret of a place.
    pub worst: f64,
    /// The length of that place.
    pub worst_length: u64,
    /// How many places.
    pub rows: usize,
}

/// What it costs to let the policy choose, at a fixed length that is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChoosingCost {
    /// Bytes an operation.
    pub length: u64,
    /// The chosen method called directly, median nanoseconds.
    pub direct_ns: f64,
    /// The public interface, median nanoseconds.
    pub chosen_ns: f64,
    /// `Policy::choose` alone, median nanoseconds.
    pub choose_ns: f64,
}

impl ChoosingCost {
    /// What choosing adds, nanoseconds.
    pub fn overhead_ns(&self) -> f64 {
        self.chosen_ns - self.direct_ns
    }
}

/// What a bench found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Where, when and with what.
    pub provenance: Provenance,
    /// The operation.
    pub operation: Operation,
    /// Where the policy came from, for people.
    pub policy: String,
    /// The rows: by length, intent and condition; in each place sorted, the fastest first.
    pub rows: Vec<BenchRow>,
    /// The policy's regret over all places; None where no place had both the choice and a method.
    pub regret: Option<RegretSummary>,
    /// What choosing costs; None where it was not measured.
    pub choosing: Option<ChoosingCost>,
    /// What was left out and why: peers not installed, counters not available, lengths that memory does not hold.
    pub notes: Vec<String>,
    /// False where it was stopped, or the time ran out, before every place was measured.
    pub complete: bool,
}

impl BenchReport {
    /// The rows on the whole: a choice cannot know whether its ranges are aligned or in the cache.
    pub fn overall(&self) -> Vec<Overall> {
        crate::measurements::choice::verdict::overall(&self.rows)
    }
}
