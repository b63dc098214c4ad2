//! The rules of one operation and intent, as a short list that is scanned from the small lengths up.

use super::Choice;
use crate::machine::Features;

/// Methods whose speed hangs on how long one call is: the C library changes its own method by it, and a processor
/// sees of REP no more than its count. An extent that arrives in short calls gets nothing of what they do with long
/// ones.
const JUDGE_BY_CALL: [&str; 5] = ["c_library", "rep_stosb", "rep_stosq", "rep_movsb", "rep_movsq"];

/// One rule: from this length on, this choice.
#[derive(Clone, Debug)]
pub(super) struct Rung {
    pub(super) from: usize,
    pub(super) choice: Choice,
    pub(super) reason: String,
}

/// The rules of one operation and intent.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    /// For the smallest lengths.
    first: Choice,
    /// What follows it, rising.
    steps: Box<[Step]>,
    /// What people read: one a rule. A choice never touches it.
    rungs: Box<[Rung]>,
}

/// For lengths from `from` on.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: usize,
    choice: Choice,
    /// Whether it is one of [`JUDGE_BY_CALL`].
    by_call: bool,
}

impl Ladder {
    /// From rules of any order; the one with the smallest length also serves all smaller ones. Of several from the
    /// same length the last holds, and a rule that says what the one before it says is left out.
    pub(super) fn new(first: Rung, more: impl IntoIterator<Item = Rung>) -> Ladder {
        let mut rungs = vec![Rung { from: 0, ..first }];
        rungs.extend(more);
        rungs.sort_by_key(|rung| rung.from);
        rungs.dedup_by(|later, kept| {
            let same = later.from == kept.from;
            if same {
                *kept = later.clone();
            }
            same
        });
        rungs.dedup_by(|later, kept| later.choice == kept.choice);
        let steps = rungs[1..].iter().map(|rung| Step {
            from: rung.from,
            choice: rung.choice,
            by_call: JUDGE_BY_CALL.contains(&rung.choice.method.name),
        });
        Ladder { first: rungs[0].choice, steps: steps.collect(), rungs: rungs.into() }
    }

    #[inline(always)]
    pub(super) fn choose(&self, length: usize) -> &Choice {
        let mut answer = &self.first;
        for step in &self.steps {
            if length < step.from {
                break;
            }
            answer = &step.choice;
        }
        answer
    }

    /// The choice for one call of `length` bytes that is part of an extent: the extent's, unless that method judges
    /// by the call and the call is too short for its rule.
    #[inline]
    pub(super) fn choose_part(&self, length: usize, extent: usize) -> &Choice {
        let mut answer = &self.first;
        for step in &self.steps {
            if extent.max(length) < step.from {
                break;
            }
            if step.from <= length || !step.by_call {
                answer = &step.choice;
            }
        }
        answer
    }

    pub(super) fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// All the instructions that its methods need.
    pub(super) fn requires(&self) -> Features {
        self.rungs.iter().fold(Features::empty(), |all, rung| all | rung.choice.method.requires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method;
    use crate::operation::Operation;

    fn rung(from: usize, method: &str) -> Rung {
        let method = method::by_name(method).unwrap();
        Rung { from, choice: Choice::of(method, Operation::Clear), reason: String::new() }
    }

    fn shape(ladder: &Ladder) -> Vec<(usize, &str)> {
        ladder.rungs().iter().map(|rung| (rung.from, rung.choice.method.name)).collect()
    }

    #[test]
    fn rules_are_ordered_and_say_something_new() {
        let ladder = Ladder::new(rung(7, "c_library"), [rung(30, "portable"), rung(20, "c_library")]);
        assert_eq!(shape(&ladder), [(0, "c_library"), (30, "portable")]);
        let ladder = Ladder::new(rung(0, "c_library"), [rung(30, "portable"), rung(30, "c_library")]);
        assert_eq!(shape(&ladder), [(0, "c_library")], "the last of one length holds");
        for length in [0, 1, usize::MAX] {
            assert_eq!(ladder.choose(length).method.name, "c_library");
        }
    }

    #[test]
    fn a_part_gets_the_extents_answer_unless_that_judges_by_the_call() {
        let ladder = Ladder::new(rung(0, "c_library"), [rung(100, "portable"), rung(1000, "c_library")]);
        let part = |length, extent| ladder.choose_part(length, extent).method.name;
        assert_eq!(part(10, 500), "portable", "the extent counts");
        assert_eq!(part(10, 5000), "portable", "the C library's long answer is not for short calls");
        assert_eq!(part(1000, 5000), "c_library", "but for long ones");
        assert_eq!(part(10, 99), "c_library");
        assert_eq!(part(5000, 10), "c_library", "a call is an extent");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn those_that_judge_by_the_call_are_in_the_table() {
        for name in JUDGE_BY_CALL {
            assert!(method::by_name(name).is_some(), "{name}");
        }
    }
}
