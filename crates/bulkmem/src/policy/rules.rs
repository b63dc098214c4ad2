//! The rules of a policy in the form that operations read: of fixed size, so that the first call of a program can build
//! them in static memory.

use std::fmt;

use super::Choice;
use super::aliasing::PageAliasing;
use super::choice::built_in;
use super::format::MOST_RULES;
use super::look::Look;
use super::situation::Situation;
use crate::durability::Durability;
use crate::machine::Features;
use crate::method::{self, CacheEffect, Method};
use crate::operation::{Intent, Operation};

const OPERATIONS: usize = Operation::ALL.len();
const TABLES: usize = OPERATIONS * Situation::ALL.len();
/// After the thresholds of the tables comes one for each operation, for a forced method.
const FORCED: usize = TABLES * MOST_RULES;

/// Shorter calls that end in a fence use the method for their own length, whatever the total length. A fence after stores that
/// bypass the cache takes some 170 ns, longer than they save on so little (docs/learned.md).
pub(crate) const SHORTEST_FENCED_PART: usize = 4096;

/// Methods whose speed depends on the length of one call: the C library selects its own method by it, and a processor
/// sees no more of REP than its count. A total length that arrives in short calls gains nothing from what they do with
/// long ones.
const JUDGE_BY_CALL: [&str; 5] = ["c_library", "rep_stosb", "rep_stosq", "rep_movsb", "rep_movsq"];

/// One rule: from this length on, this choice. In a cache line of its own, since a call reads few of them.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Threshold {
    pub(super) from: usize,
    /// `None` only in memory that no table uses.
    choice: Option<Choice>,
    by_call: bool,
    pub(super) reason: Option<&'static str>,
}

impl Threshold {
    const UNUSED: Threshold = Threshold { from: 0, choice: None, by_call: false, reason: None };

    fn new(from: usize, choice: Choice, reason: Option<&'static str>) -> Threshold {
        let by_call = JUDGE_BY_CALL.contains(&choice.method.name);
        Threshold { from, choice: Some(choice), by_call, reason }
    }

    #[inline(always)]
    pub(super) fn choice(&self, operation: Operation) -> &Choice {
        match &self.choice {
            Some(choice) => choice,
            None => built_in(operation),
        }
    }
}

/// The thresholds of one operation and situation: a range of all thresholds.
#[derive(Clone, Copy)]
struct Table {
    start: u16,
    length: u8,
    /// True if the rules were measured, as opposed to the defaults.
    measured: bool,
}

const _: () = assert!(MOST_RULES <= u8::MAX as usize && size_of::<Threshold>() == 64);

/// Tells a call of one operation whether it looks, and which rules to read. In adjacent cache lines, since other work evicts them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct OfOperation {
    /// When and how it looks at the cache state, if it does.
    look: Option<Look>,
    /// By intent: the length from which it looks; the greatest if it does not.
    looks_from: [usize; Intent::ALL.len()],
    /// By situation.
    tables: [Table; Situation::ALL.len()],
}

impl OfOperation {
    const EMPTY: OfOperation = OfOperation {
        look: None,
        looks_from: [usize::MAX; Intent::ALL.len()],
        tables: [Table { start: 0, length: 0, measured: false }; Situation::ALL.len()],
    };

    /// Field by field: the compiler would copy a whole one by memcpy, which must not be called while a policy is loaded.
    fn looks_never(&mut self) {
        self.look = None;
        self.looks_from = [usize::MAX; Intent::ALL.len()];
    }
}

/// The reason why a rule was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleError {
    /// The first rule of a table starts at 0, and each further one after the one before it, and the rules of a table
    /// are not interrupted by those of another.
    Order,
    /// There are [`MOST_RULES`] already.
    TooMany,
}

/// The rules of all operations and situations.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct Rules {
    operations: [OfOperation; OPERATIONS],
    thresholds: [Threshold; FORCED + OPERATIONS],
    /// How many of the thresholds belong to tables.
    used: u16,
    /// The copies that the C library does slowly, if it does any.
    aliasing: Option<PageAliasing>,
    /// By operation, rising: from this length on, so many threads.
    threads: [[(usize, usize); MOST_RULES]; OPERATIONS],
    thread_rules: [u8; OPERATIONS],
    /// All that the chosen methods need.
    requires: Features,
    /// The contents that survive a power failure.
    durability: Durability,
}

impl Rules {
    pub(crate) const EMPTY: Rules = Rules {
        operations: [OfOperation::EMPTY; OPERATIONS],
        thresholds: [Threshold::UNUSED; FORCED + OPERATIONS],
        used: 0,
        aliasing: None,
        threads: [[(0, 0); MOST_RULES]; OPERATIONS],
        thread_rules: [0; OPERATIONS],
        requires: Features::empty(),
        durability: Durability::FlushToMemory,
    };

    /// Removes all rules.
    pub(super) fn reset(&mut self) {
        self.used = 0;
        for of_operation in &mut self.operations {
            of_operation.looks_never();
            of_operation.tables.iter_mut().for_each(|table| table.length = 0);
        }
        self.aliasing = None;
        self.thread_rules.iter_mut().for_each(|count| *count = 0);
        self.requires = Features::empty();
        self.durability = Durability::FlushToMemory;
    }

    /// Adds a rule; those of one table one after another, rising from 0. A rule that repeats the choice before it is
    /// accepted and left out.
    pub(super) fn push(
        &mut self,
        (operation, situation): (Operation, impl Into<Situation>),
        from: usize,
        choice: Choice,
        origin: RuleOrigin,
    ) -> Result<(), RuleError> {
        let used = self.used;
        let situation = situation.into();
        // Where the intent reuse looks is computed from these and its rules by length.
        let of_operation = &mut self.operations[operation as usize];
        let of_look = matches!(situation, Situation::UncachedReuse | Situation::CachedReuse);
        if of_operation.look.is_some() && of_look {
            return Err(RuleError::Order);
        }
        let table = &mut of_operation.tables[situation as usize];
        if table.length == 0 {
            *table = Table { start: used, length: 0, measured: origin == RuleOrigin::Measured };
        }
        let is_last = table.start + u16::from(table.length) == used;
        let previous = if table.length == 0 { None } else { self.thresholds.get(usize::from(used) - 1) };
        let rises = previous.map_or(from == 0, |previous| previous.from < from);
        if !is_last || !rises {
            return Err(RuleError::Order);
        }
        if previous.is_some_and(|previous| previous.choice == Some(choice)) {
            return Ok(());
        }
        if usize::from(table.length) == MOST_RULES {
            return Err(RuleError::TooMany);
        }
        let reason = match origin {
            RuleOrigin::Measured => None,
            RuleOrigin::Default(reason) => Some(reason),
        };
        let Some(free) = self.thresholds.get_mut(usize::from(used)) else { return Err(RuleError::TooMany) };
        *free = Threshold::new(from, choice, reason);
        table.length += 1;
        self.used += 1;
        self.requires |= choice.method.requires;
        Ok(())
    }

    /// Adds a number of threads; rising.
    pub(super) fn push_threads(
        &mut self,
        operation: Operation,
        from: usize,
        threads: usize,
    ) -> Result<(), RuleError> {
        let count = usize::from(self.thread_rules[operation as usize]);
        let all = &mut self.threads[operation as usize];
        if count > 0 && all[count - 1].0 >= from {
            return Err(RuleError::Order);
        }
        let Some(free) = all.get_mut(count) else { return Err(RuleError::TooMany) };
        *free = (from, threads);
        self.thread_rules[operation as usize] += 1;
        Ok(())
    }

    /// Sets when and how an operation looks; once, and only if there are rules for both cache states.
    pub(super) fn set_look(&mut self, operation: Operation, look: Look) -> Result<(), RuleError> {
        let states = [Situation::Cached, Situation::Uncached];
        let complete = states.into_iter().all(|state| !self.thresholds(operation, state).is_empty());
        if !complete || self.look(operation).is_some() {
            return Err(RuleError::Order);
        }
        let reused = self.reused_from(operation, look.from);
        let of_operation = &mut self.operations[operation as usize];
        of_operation.look = Some(look);
        of_operation.looks_from[Intent::Throughput as usize] = look.from;
        of_operation.looks_from[Intent::Reuse as usize] = reused;
        if let Some(unmapped) = look.unmapped {
            self.requires |= unmapped.choice.method.requires;
        }
        Ok(())
    }

    /// Sets the method for copies that the C library does slowly; once.
    pub(super) fn set_aliasing(&mut self, aliasing: PageAliasing) -> Result<(), RuleError> {
        if self.aliasing.is_some() {
            return Err(RuleError::Order);
        }
        self.aliasing = Some(aliasing);
        self.requires |= aliasing.choice.method.requires;
        Ok(())
    }

    /// Uses one choice for every length and intent of an operation.
    pub(super) fn force(&mut self, operation: Operation, choice: Choice) {
        let at = FORCED + operation as usize;
        self.thresholds[at] = Threshold::new(0, choice, None);
        let table = Table { start: at as u16, length: 1, measured: false };
        let of_operation = &mut self.operations[operation as usize];
        of_operation.looks_never();
        of_operation.tables = [table; Situation::ALL.len()];
        if operation == Operation::Copy {
            self.aliasing = None;
        }
        self.requires |= choice.method.requires;
    }

    /// The rules of an operation and situation, rising; empty if there are none.
    #[inline(always)]
    pub(super) fn thresholds(&self, operation: Operation, situation: impl Into<Situation>) -> &[Threshold] {
        let Table { start, length, .. } =
            self.operations[operation as usize].tables[situation.into() as usize];
        let (start, length) = (usize::from(start), usize::from(length));
        self.thresholds.get(start..start + length).unwrap_or_default()
    }

    /// The smallest length, at least `least`, at which bytes that are used next had better bypass the cache if the memory is not
    /// cached, and not otherwise; the greatest if there is none. Where both choices keep to the cache, a look costs more than it tells.
    fn reused_from(&self, operation: Operation, least: usize) -> usize {
        let uncached = self.thresholds(operation, Situation::UncachedReuse);
        if uncached.is_empty() {
            return usize::MAX;
        }
        let cached = self.cached(operation, Intent::Reuse);
        let starts = self.thresholds(operation, cached).iter().chain(uncached).map(|it| it.from);
        let starts = starts.filter(|from| *from >= least).chain([least]);
        let pays = |from: &usize| {
            let uncached = self.choose(operation, *from, Situation::UncachedReuse);
            uncached.method.effect != CacheEffect::Allocates
                && uncached != self.choose(operation, *from, cached)
        };
        starts.filter(pays).min().unwrap_or(usize::MAX)
    }

    /// True if a call of the whole length with this method may be cut into several calls.
    pub(crate) fn may_be_cut(choice: &Choice) -> bool {
        !JUDGE_BY_CALL.contains(&choice.method.name)
    }

    /// True if any operation looks at the cache state.
    pub(crate) fn looks(&self) -> bool {
        self.operations.iter().any(|it| it.look.is_some())
    }

    /// True if the rules of an operation and intent were measured.
    pub(super) fn measured(&self, operation: Operation, intent: Intent) -> bool {
        self.operations[operation as usize].tables[Situation::from(intent) as usize].measured
    }

    /// The choice for `length` bytes in total.
    #[inline(always)]
    pub(crate) fn choose(
        &self,
        operation: Operation,
        length: usize,
        situation: impl Into<Situation>,
    ) -> &Choice {
        let [first, others @ ..] = self.thresholds(operation, situation) else { return built_in(operation) };
        // The first rule starts at 0, and is the answer for most calls. Others are few.
        let mut chosen = first;
        for next in others {
            if next.from > length {
                break;
            }
            chosen = next;
        }
        chosen.choice(operation)
    }

    /// The situation of cached memory, for an intent that looks.
    #[inline]
    pub(crate) fn cached(&self, operation: Operation, intent: Intent) -> Situation {
        match intent {
            Intent::Reuse if self.thresholds(operation, Situation::CachedReuse).is_empty() => {
                Situation::Reuse
            }
            Intent::Reuse => Situation::CachedReuse,
            _ => Situation::Cached,
        }
    }

    /// The situation of uncached memory that so many threads share, for an intent that looks.
    pub(crate) fn uncached(&self, operation: Operation, intent: Intent, threads: usize) -> Situation {
        let own = threads > 1 && !self.thresholds(operation, Situation::SeveralThreads).is_empty();
        match intent {
            Intent::Reuse if self.thresholds(operation, Situation::UncachedReuse).is_empty() => {
                Situation::Reuse
            }
            Intent::Reuse => Situation::UncachedReuse,
            _ if own => Situation::SeveralThreads,
            _ => Situation::Uncached,
        }
    }

    /// True if looks of an operation tell memory whose pages are not mapped yet.
    #[inline]
    pub(crate) fn finds_unmapped(&self, operation: Operation) -> bool {
        self.look(operation).is_some_and(|look| look.unmapped.is_some())
    }

    /// When and how an operation looks at the cache state, if it does.
    pub(crate) fn look(&self, operation: Operation) -> Option<&Look> {
        self.operations[operation as usize].look.as_ref()
    }

    /// The copies that the C library does slowly, if it does any.
    #[inline(always)]
    pub(crate) fn aliasing(&self) -> Option<&PageAliasing> {
        self.aliasing.as_ref()
    }

    /// The length from which an operation looks; the greatest if it does not. If the bytes are used next, that is where bypassing
    /// the cache begins to pay in uncached memory although they are read from memory then.
    #[inline(always)]
    pub(crate) fn looks_from(&self, operation: Operation, intent: Intent) -> usize {
        self.operations[operation as usize].looks_from[intent as usize]
    }

    /// The choice for one call of `length` bytes that is part of `total_len` bytes: that for the total length, unless that
    /// method's speed depends on the length of the call and the call is too short for its rule. Clears, fills and copies
    /// of fewer than `shortest` bytes get the choice for their own length.
    #[inline]
    pub(crate) fn choose_part(
        &self,
        operation: Operation,
        length: usize,
        total_len: usize,
        situation: impl Into<Situation>,
        shortest: usize,
    ) -> &Choice {
        let situation = situation.into();
        // Durable stores end in a fence whatever the method.
        if total_len <= length || (length < shortest && !operation.persists()) {
            return self.choose(operation, length, situation);
        }
        let thresholds = self.thresholds(operation, situation);
        let eligible = |it: &&Threshold| it.from <= total_len && (it.from <= length || !it.by_call);
        match thresholds.iter().rev().find(eligible) {
            Some(threshold) => threshold.choice(operation),
            None => built_in(operation),
        }
    }

    /// The smallest length for which another method is chosen; the greatest length if none is.
    pub(crate) fn first_without(&self, method: &Method, operation: Operation, intent: Intent) -> usize {
        let other = |it: &&Threshold| !std::ptr::eq(it.choice(operation).method, method);
        self.thresholds(operation, intent).iter().find(other).map_or(usize::MAX, |it| it.from)
    }

    /// The choices for calls of unknown intent that do not look, in rising order of length; each with the length that the calls
    /// are shorter than.
    pub(crate) fn without_look(&self, operation: Operation) -> impl Iterator<Item = (usize, &Choice)> {
        let looks_from = self.looks_from(operation, Intent::Throughput);
        let thresholds = self.thresholds(operation, Intent::Throughput);
        let ends = thresholds.iter().skip(1).map(|next| next.from).chain([usize::MAX]);
        let all = thresholds.iter().zip(ends).take_while(move |(it, _)| it.from < looks_from);
        all.map(move |(it, end)| (end.min(looks_from), it.choice(operation)))
    }

    /// The smallest length, at least `least` unless a method is forced, for which a rule that was measured or forced chooses
    /// another method than the C library, or from which the operation looks; the greatest length if there is none.
    pub(crate) fn chosen_from(&self, operation: Operation, least: usize) -> usize {
        let own = |it: &&Threshold| {
            it.reason.is_none() && !std::ptr::eq(it.choice(operation).method, method::c_library())
        };
        let from = self.thresholds(operation, Intent::Throughput).iter().find(own);
        let from = from.map_or(usize::MAX, |it| it.from).min(self.looks_from(operation, Intent::Throughput));
        if self.measured(operation, Intent::Throughput) { from.max(least) } else { from }
    }

    /// The fewest threads that saturate memory with an operation of that length; 1 if that is unknown.
    pub(crate) fn threads(&self, operation: Operation, length: usize) -> usize {
        let count = usize::from(self.thread_rules[operation as usize]);
        let all = &self.threads[operation as usize][..count];
        all.iter().rev().find(|(from, _)| *from <= length).map_or(1, |&(_, threads)| threads)
    }

    /// Returns the contents that survive a power failure.
    #[inline(always)]
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// All the instructions that the methods need.
    pub(super) fn requires(&self) -> Features {
        self.requires
    }
}

/// The origin of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleOrigin {
    Measured,
    /// With the reason.
    Default(&'static str),
}

impl fmt::Debug for Rules {
    /// The rules in use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for operation in Operation::ALL {
            for situation in Situation::ALL {
                let thresholds = self.thresholds(operation, situation).iter();
                let pairs: Vec<_> = thresholds.map(|it| (it.from, *it.choice(operation))).collect();
                map.entry(&(operation, situation), &pairs);
            }
            map.entry(&(operation, "look"), &self.look(operation));
            let count = usize::from(self.thread_rules[operation as usize]);
            map.entry(&(operation, "threads"), &&self.threads[operation as usize][..count]);
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method;

    const CLEAR: (Operation, Intent) = (Operation::Clear, Intent::Throughput);

    fn choice(method: &str) -> Choice {
        Choice::of(method::by_name(method).unwrap(), Operation::Clear)
    }

    fn rules(all: &[(usize, &str)]) -> Result<Box<Rules>, RuleError> {
        let mut rules = Box::new(Rules::EMPTY);
        for &(from, method) in all {
            rules.push(CLEAR, from, choice(method), RuleOrigin::Measured)?;
        }
        Ok(rules)
    }

    fn shape(rules: &Rules) -> Vec<(usize, &str)> {
        let all = rules.thresholds(CLEAR.0, CLEAR.1).iter();
        all.map(|it| (it.from, it.choice(Operation::Clear).method.name)).collect()
    }

    #[test]
    fn only_measured_and_forced_rules_are_chosen() {
        let mut rules = rules(&[(0, "c_library"), (20, "portable")]).unwrap();
        assert_eq!(rules.chosen_from(Operation::Clear, 0), 20);
        assert_eq!(rules.chosen_from(Operation::Clear, 30), 30);
        assert_eq!(rules.chosen_from(Operation::Fill, 0), usize::MAX);
        let fill = (Operation::Fill, Intent::Throughput);
        rules.push(fill, 0, choice("portable"), RuleOrigin::Default("a default")).unwrap();
        assert_eq!(rules.chosen_from(Operation::Fill, 0), usize::MAX);
        rules.force(Operation::Fill, choice("portable"));
        assert_eq!(rules.chosen_from(Operation::Fill, 30), 0, "forced");
        rules.force(Operation::Clear, choice("c_library"));
        assert_eq!(rules.chosen_from(Operation::Clear, 0), usize::MAX);
    }

    #[test]
    fn rules_rise_from_0_and_change_something() {
        let two = rules(&[(0, "c_library"), (20, "c_library"), (30, "portable")]).unwrap();
        assert_eq!(shape(&two), [(0, "c_library"), (30, "portable")]);
        assert_eq!(rules(&[(1, "portable")]).unwrap_err(), RuleError::Order);
        assert_eq!(rules(&[(0, "portable"), (0, "c_library")]).unwrap_err(), RuleError::Order);
        assert_eq!(
            rules(&[(0, "portable"), (9, "c_library"), (8, "portable")]).unwrap_err(),
            RuleError::Order
        );
    }

    #[test]
    fn tables_do_not_interrupt_each_other() {
        let mut rules = rules(&[(0, "portable")]).unwrap();
        let other = (Operation::Fill, Intent::Reuse);
        rules.push(other, 0, choice("portable"), RuleOrigin::Measured).unwrap();
        let late = rules.push(CLEAR, 7, choice("c_library"), RuleOrigin::Measured);
        assert_eq!(late, Err(RuleError::Order));
    }

    #[test]
    fn a_table_holds_64_rules_and_no_more() {
        let many: Vec<_> = (0..MOST_RULES).map(|at| (at, ["portable", "c_library"][at % 2])).collect();
        let full = rules(&many).unwrap();
        assert_eq!(shape(&full).len(), MOST_RULES);
        for (length, method) in &many {
            assert_eq!(full.choose(CLEAR.0, *length, CLEAR.1).method.name, *method);
        }
        let more: Vec<_> = many.into_iter().chain([(MOST_RULES, "portable")]).collect();
        assert_eq!(rules(&more).unwrap_err(), RuleError::TooMany);
        let mut rules = Rules::EMPTY;
        for from in 0..MOST_RULES {
            rules.push_threads(Operation::Clear, from, 2).unwrap();
        }
        assert_eq!(rules.push_threads(Operation::Clear, 100, 2), Err(RuleError::TooMany));
        assert_eq!(rules.push_threads(Operation::Fill, 5, 2), Ok(()));
        assert_eq!(rules.push_threads(Operation::Fill, 5, 2), Err(RuleError::Order));
    }

    #[test]
    fn every_table_can_be_full_at_the_same_time() {
        let mut rules = Box::new(Rules::EMPTY);
        for operation in Operation::ALL {
            for intent in Intent::ALL {
                for from in 0..MOST_RULES {
                    let choice = choice(["portable", "c_library"][from % 2]);
                    rules.push((operation, intent), from, choice, RuleOrigin::Measured).unwrap();
                }
            }
            rules.force(operation, choice("portable"));
        }
        assert_eq!(rules.choose(Operation::Persist, 5, Intent::Stream).method.name, "portable");
        rules.reset();
        assert!(rules.thresholds(Operation::Persist, Intent::Stream).is_empty());
    }

    #[test]
    fn a_part_gets_the_choice_for_the_total_length_unless_that_depends_on_the_call() {
        const KIB: usize = 1024;
        let rules = rules(&[(0, "c_library"), (100 * KIB, "portable"), (1000 * KIB, "c_library")]).unwrap();
        let part =
            |length, total_len| rules.choose_part(CLEAR.0, length, total_len, CLEAR.1, 4096).method.name;
        assert_eq!(part(10 * KIB, 500 * KIB), "portable", "the total length counts");
        assert_eq!(
            part(10 * KIB, 5000 * KIB),
            "portable",
            "the C library's long rule is not for short calls"
        );
        assert_eq!(part(1000 * KIB, 5000 * KIB), "c_library", "but for long ones");
        assert_eq!(part(10 * KIB, 99 * KIB), "c_library");
        assert_eq!(part(5000 * KIB, 10), "c_library", "a call can be longer");
        assert_eq!(part(4095, 500 * KIB), "c_library", "a fence would cost more than the call");
        assert_eq!(part(4096, 500 * KIB), "portable");
    }

    #[test]
    fn without_rules_the_built_in_method_is_chosen() {
        for operation in Operation::ALL {
            let chosen = Rules::EMPTY.choose(operation, 1, Intent::Throughput).method;
            assert_eq!(chosen, built_in(operation).method);
            let part = Rules::EMPTY.choose_part(operation, 1 << 20, 1 << 30, Intent::Stream, 0).method;
            assert_eq!(part, chosen);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn those_that_depend_on_the_call_are_in_the_table() {
        for name in JUDGE_BY_CALL {
            assert!(method::by_name(name).is_some(), "{name}");
        }
    }
}
