//! The processors of the victim and of the work in the background.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of both; `None` leaves the choice to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Placement {
    pub(super) victim: Option<CpuSet>,
    pub(super) background: Option<CpuSet>,
    /// A note for the results.
    pub(super) note: Option<&'static str>,
}

impl Placement {
    /// Places the background on the last processor and the victim on the others; with `same`, or if there is only one, both
    /// on the last.
    pub(super) fn new(same: bool) -> Placement {
        match sched_getaffinity(None) {
            Ok(allowed) => Placement::of(&allowed, same),
            Err(_) => Placement {
                note: Some(
                    "the kernel does not report which processors may be used, so it places clearing and command itself",
                ),
                ..Placement::default()
            },
        }
    }

    fn of(allowed: &CpuSet, same: bool) -> Placement {
        let Some(last) = (0..CpuSet::MAX_CPU).rfind(|cpu| allowed.is_set(*cpu)) else {
            return Placement::default();
        };
        let mut one = CpuSet::new();
        one.set(last);
        let mut others = *allowed;
        others.unset(last);
        let alone = others.count() == 0;
        let victim = if same || alone { one } else { others };
        let note =
            (alone && !same).then_some("there is only one processor: the clearing and the command share it");
        Placement { victim: Some(victim), background: Some(one), note }
    }
}

/// Binds this thread. If the kernel refuses, the thread runs where it ran: the processors were allowed before.
pub(super) fn bind(processors: &CpuSet) {
    _ = sched_setaffinity(None, processors);
}

/// Binds this thread, and what it starts, to processors until dropped.
#[derive(Debug)]
pub(super) struct Bound(Option<CpuSet>);

impl Bound {
    pub(super) fn to(processors: Option<&CpuSet>) -> Bound {
        let before = processors.and_then(|_| sched_getaffinity(None).ok());
        if let (Some(processors), Some(_)) = (processors, &before) {
            bind(processors);
        }
        Bound(before)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            bind(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn the_background_has_the_last_processor_for_itself_where_there_is_another() {
        let apart = Placement::of(&set(&[1, 4, 7]), false);
        assert_eq!((apart.victim, apart.background), (Some(set(&[1, 4])), Some(set(&[7]))));
        let same = Placement::of(&set(&[1, 4, 7]), true);
        assert_eq!((same.victim, same.background, same.note), (Some(set(&[7])), Some(set(&[7])), None));
        let alone = Placement::of(&set(&[3]), false);
        assert_eq!((alone.victim, alone.background), (Some(set(&[3])), Some(set(&[3]))));
        assert!(alone.note.unwrap().contains("only one processor"));
        assert_eq!(Placement::of(&set(&[]), false), Placement::default());
    }

    #[test]
    fn a_thread_comes_back_to_where_it_was() {
        let before = sched_getaffinity(None).unwrap();
        let placement = Placement::new(false);
        {
            let _bound = Bound::to(placement.background.as_ref());
            assert_eq!(sched_getaffinity(None).unwrap(), placement.background.unwrap());
        }
        drop(Bound::to(None));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
