//! The figures of a profile from which the kernel module's parameters are derived.

use bulkmem::Operation;
use bulkmem::method;
use bulkmem::policy::Choice;
use bulkmem_kmod::ClearTime;

use super::profile::{Figure, Profile};
use crate::engine::{Condition, Cost};

impl Profile {
    /// Returns how long each method took to clear aligned memory that was not in the cache, on one thread, as
    /// [`bulkmem_kmod::Plan::derive`] needs it.
    pub fn clear_times(&self) -> Vec<ClearTime> {
        self.figures.iter().filter_map(clear_time).collect()
    }
}

fn clear_time(figure: &Figure) -> Option<ClearTime> {
    let condition = Condition { aligned: true, warm: false, threads: 1 };
    let usual =
        (figure.operation, figure.cost, figure.condition) == (Operation::Clear, Cost::Throughput, condition);
    let method = method::by_name(&figure.method)?;
    let choice = Choice { method, parameters: figure.parameters };
    usual.then_some(ClearTime { choice, length: figure.length, ns: figure.median_ns })
}

#[cfg(test)]
mod tests {
    use bulkmem::method::Parameters;

    use super::*;

    #[test]
    fn only_plain_clears_from_memory_count() {
        let usual = Figure {
            operation: Operation::Clear,
            cost: Cost::Throughput,
            method: "portable".to_owned(),
            parameters: Parameters::default(),
            length: 4096,
            condition: Condition { aligned: true, warm: false, threads: 1 },
            median_ns: 100.0,
            quartiles_ns: [90.0, 110.0],
            samples: 5,
            disturbance_ns: None,
        };
        let found = clear_time(&usual).unwrap();
        assert_eq!((found.choice.method.name, found.length, found.ns), ("portable", 4096, 100.0));
        let condition = usual.condition;
        for other in [
            Figure { operation: Operation::Fill, ..usual.clone() },
            Figure { cost: Cost::Reuse, ..usual.clone() },
            Figure { condition: Condition { warm: true, ..condition }, ..usual.clone() },
            Figure { condition: Condition { aligned: false, ..condition }, ..usual.clone() },
            Figure { condition: Condition { threads: 2, ..condition }, ..usual.clone() },
            Figure { method: "unknown".to_owned(), ..usual.clone() },
        ] {
            assert!(clear_time(&other).is_none(), "{other:?}");
        }
    }
}
