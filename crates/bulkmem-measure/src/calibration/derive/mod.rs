//! Derives rules and numbers of threads from figures.
//!
//! At each measured length, a candidate's regret is the geometric mean of its times over the conditions (aligned or not,
//! warm or cold, threads), in relation to the best. It may not be slower than the C library in any condition by more than
//! the noise, or by more than an eighth of its gain in another (as logarithms: 2.6 times as fast for 0.9 times). A condition whose
//! samples vary by a factor, while another of the same cache state does not, as small pages may, counts less, and bars and excuses
//! nothing. A gain within the noise changes nothing: the C library stays. Each table is fitted as a whole, so that there are few
//! changes where they gain little.

pub(crate) mod look;
mod pick;
mod segments;
pub(crate) mod table;

use std::collections::BTreeMap;

use bulkmem::method::CacheEffect;
use bulkmem::policy::Situation;
use bulkmem::{Intent, Operation};

use crate::calibration::{Condition, Cost, Figure, LookRule, Rule, Saturation};
use look::{Methods, Samples};
pub(crate) use pick::{NOISE, allowed_loss};
use segments::Regrets;
pub(crate) use table::FEWEST_SAMPLES;
use table::{Figures, Key, Row, Timing};

use crate::engine::workload::WARMED_EACH;

/// Steps in which the range between two measured lengths is searched for a threshold.
const STEPS: u32 = 16;
/// Shorter calls are by the C library, if it can do them and the intent is unknown: each is over before the gain pays for a
/// choice, and what is best depends most on the cache state.
const SHORTEST: u64 = bulkmem::pointers::SHORTEST_BY_POLICY as u64;
/// The shortest call of a large total that knows the cache state from those before it.
const SHORTEST_IN_STREAM: u64 = 4 << 10;

/// What a calibration decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Derived {
    /// For each operation and situation in rising order of length, the first from 0.
    pub rules: Vec<Rule>,
    /// The operations that look at the cache state.
    pub looks: Vec<LookRule>,
    /// The operations that several threads speed up.
    pub threads: Vec<Saturation>,
}

/// Derives rules and numbers of threads from figures. Each operation with any figure of the cost throughput gets rules
/// for every intent, in rising order of length, the first from 0. An intent without figures of its own gets the rules
/// for throughput, and the reason says so. Looks need more than figures, so there are none.
pub fn derive_policy(figures: &[Figure]) -> Derived {
    derive(figures, &Samples::default())
}

/// The same, with looks at the cache state for the operations that gain by them, and rules for both states.
pub(crate) fn derive(figures: &[Figure], looks: &Samples) -> Derived {
    let mut derived = Derived::default();
    for operation in Operation::ALL {
        let throughput = table::rows(figures, operation, Cost::Throughput);
        derived.threads.extend(saturation(operation, &throughput));
        let c_library = throughput.values().any(|row| row.contains_key(&Key::c_library()));
        let jump = looks.c_library_bypasses_from(operation);
        let mut tables = BTreeMap::new();
        for situation in [Situation::Throughput, Situation::Reuse, Situation::Stream] {
            let cost = Cost::of(situation);
            let own = table::rows(figures, operation, cost);
            let (rows, note) = if own.is_empty() {
                (&throughput, format!(" (by throughput: {situation} was not measured)"))
            } else {
                (&own, String::new())
            };
            tables.insert(situation, (picks(rows, situation, c_library, None, jump), note));
        }
        let [cached, uncached, several_threads] =
            [Situation::Cached, Situation::Uncached, Situation::SeveralThreads]
                .map(|situation| of_state(&throughput, situation));
        let reuse = table::rows(figures, operation, Cost::Reuse);
        let wrong_with = |cached: &BTreeMap<u64, Row>| WrongVerdicts {
            cached: segments::complete(cached),
            share: look::wrong_verdicts(operation, looks),
        };
        let [cached_reuse, uncached_reuse] =
            [Situation::CachedReuse, Situation::UncachedReuse].map(|situation| of_state(&reuse, situation));
        let (wrong, wrong_reuse) = (wrong_with(&cached), wrong_with(&cached_reuse));
        for (situation, rows, wrong) in [
            (Situation::Cached, cached, None),
            (Situation::Uncached, uncached, Some(&wrong)),
            (Situation::SeveralThreads, several_threads, Some(&wrong)),
            (Situation::UncachedReuse, uncached_reuse, Some(&wrong_reuse)),
            (Situation::CachedReuse, cached_reuse, None),
        ] {
            tables.insert(situation, (picks(&rows, situation, c_library, wrong, jump), String::new()));
        }
        let at = |situation, length| -> Option<&Key> {
            tables[&situation].0.iter().rfind(|pick| pick.from <= length).map(|pick| &pick.key)
        };
        let same = |a, b| {
            let choices = |situation| tables[&situation].0.iter().map(|pick| (pick.from, &pick.key));
            choices(a).eq(choices(b))
        };
        let own_for_threads = !same(Situation::Uncached, Situation::SeveralThreads);
        let looks_for_reuse = !same(Situation::CachedReuse, Situation::UncachedReuse);
        let own_for_cached = looks_for_reuse && !same(Situation::Reuse, Situation::CachedReuse);
        let look = look::derive(operation, &throughput, looks, |length| {
            Some(Methods {
                cached: at(Situation::Cached, length)?,
                uncached: at(Situation::Uncached, length)?,
                by_length: at(Situation::Throughput, length)?,
            })
        });
        tables.retain(|situation, _| match situation {
            Situation::Throughput | Situation::Reuse | Situation::Stream => true,
            Situation::Cached | Situation::Uncached => look.is_some(),
            Situation::SeveralThreads => look.is_some() && own_for_threads,
            Situation::UncachedReuse => look.is_some() && looks_for_reuse,
            Situation::CachedReuse => look.is_some() && own_for_cached,
        });
        derived.looks.extend(look);
        for (situation, (picks, note)) in tables {
            derived.rules.extend(picks.into_iter().map(|Pick { from, key, reason }| {
                let Key { method, parameters } = key;
                Rule { operation, situation, from, method, parameters, reason: reason + &note }
            }));
        }
    }
    derived
}

/// Returns the figures of a situation that a look finds. Memory that was too long to be measured as cached is not cached,
/// whatever a look finds. Short cached memory was in the first-level cache, where some processors execute stores that bypass
/// the cache as fast as others; what a program clears or copies is rarely there. Several threads decide where methods were compared
/// with them: at long lengths. At others, starting them hides the difference.
fn of_state(rows: &BTreeMap<u64, Row>, situation: Situation) -> BTreeMap<u64, Row> {
    let of = |row: &Row, warm: bool, threads: usize| -> Row {
        let mut row = row.clone();
        row.retain(|_, figures| {
            figures.0.retain(|condition, _| (condition.warm, condition.threads) == (warm, threads));
            !figures.0.is_empty()
        });
        row
    };
    let cached = matches!(situation, Situation::Cached | Situation::CachedReuse);
    let longest = rows.iter().rfind(|(_, row)| !of(row, true, 1).is_empty()).map(|(length, _)| *length);
    let warm = |length: u64| cached && longest.is_some_and(|longest| length <= longest);
    let most = |row: &Row| row.values().flat_map(|figures| figures.0.keys()).map(|it| it.threads).max();
    let shared = |row: &Row| -> Option<Row> {
        let row = of(row, false, most(row).filter(|_| situation == Situation::SeveralThreads)?);
        (row.len() > 1).then_some(row)
    };
    let rows = rows.iter().map(|(&length, row)| {
        let mut row = shared(row).unwrap_or_else(|| of(row, warm(length), 1));
        if cached && length < WARMED_EACH as u64 {
            row.retain(|key, _| key.choice().is_none_or(|it| it.method.effect != CacheEffect::Bypasses));
        }
        (length, row)
    });
    rows.filter(|(_, row)| !row.is_empty()).collect()
}

fn is_intent(situation: Situation) -> bool {
    Intent::ALL.into_iter().any(|intent| Situation::from(intent) == situation)
}

/// A method from a length on, and why.
#[derive(Clone, Debug, PartialEq)]
struct Pick {
    from: u64,
    key: Key,
    reason: String,
}

/// Returns the choice at each measured length of one operation and situation.
pub(crate) fn choices(figures: &[Figure], operation: Operation, situation: Situation) -> Vec<(u64, Key)> {
    let rows = table::rows(figures, operation, Cost::of(situation));
    let rows = if is_intent(situation) { rows } else { of_state(&rows, situation) };
    fitted(&segments::complete(&rows), situation, None)
}

/// Wrong verdicts of looks that find memory uncached.
struct WrongVerdicts {
    /// The rows of cached memory, completed.
    cached: BTreeMap<u64, Row>,
    /// By length, how likely the memory is cached all the same.
    share: BTreeMap<u64, f64>,
}

impl WrongVerdicts {
    /// Returns the likelihood at a length, that of the next measured length below.
    fn at(&self, length: u64) -> f64 {
        self.share.range(..=length).next_back().map_or(0.0, |(_, share)| *share)
    }

    /// Adds to the regrets at a length what the choice would cost in cached memory, as likely as that is.
    fn add_to(&self, regrets: &mut Regrets, length: u64) {
        let (share, Some(row)) = (self.at(length), self.cached.get(&length)) else { return };
        let in_cached = pick::regrets_of_all(row);
        let most = in_cached.values().copied().fold(0.0, f64::max);
        for (key, regret) in regrets {
            *regret = (1.0 - share) * *regret + share * in_cached.get(key).unwrap_or(&most);
        }
    }
}

/// Returns the choice at each length of a table.
fn fitted(rows: &BTreeMap<u64, Row>, situation: Situation, wrong: Option<&WrongVerdicts>) -> Vec<(u64, Key)> {
    let regrets = match situation {
        Situation::Stream => pick::least_disturbing,
        _ => pick::fastest,
    };
    let of_row = |(&length, row): (&u64, &Row)| {
        let mut regrets = regrets(row);
        if is_short(length, situation) && regrets.contains_key(&Key::c_library()) {
            regrets.retain(|key, _| key.is_c_library());
        }
        if let Some(wrong) = wrong {
            wrong.add_to(&mut regrets, length);
        }
        (length, regrets)
    };
    // Where only one candidate was measured, nothing is decided: the choice follows from the lengths around.
    let compares = |row: &Row| row.len() > 1;
    let any_compares = rows.values().any(compares);
    let rows = rows.iter().filter(|(_, row)| compares(row) || !any_compares);
    let table: Vec<_> = rows.map(of_row).filter(|(_, regrets)| !regrets.is_empty()).collect();
    // Below the shortest length, the C library can be one choice more.
    let fewer = usize::from(table.first().is_some_and(|(length, _)| !is_short(*length, situation)));
    let choices = segments::fit(&table, segments::MOST_CHANGES - fewer);
    table.into_iter().map(|(length, _)| length).zip(choices).collect()
}

fn is_short(length: u64, situation: Situation) -> bool {
    length < shortest(situation)
}

/// Returns the length from which a situation has a choice.
fn shortest(situation: Situation) -> u64 {
    match situation {
        Situation::Throughput => SHORTEST,
        Situation::Cached
        | Situation::Uncached
        | Situation::SeveralThreads
        | Situation::UncachedReuse
        | Situation::CachedReuse => SHORTEST_IN_STREAM,
        Situation::Reuse | Situation::Stream => 0,
    }
}

/// Returns the choices of one table with the lengths that they are used from, the first from 0. Below the shortest
/// measured length the C library is chosen if it is a candidate, and otherwise the choice for that length. Between
/// lengths with different choices, the threshold is where their interpolated times cross, or `jump`: where the C library begins to
/// bypass the cache.
fn picks(
    rows: &BTreeMap<u64, Row>,
    situation: Situation,
    c_library: bool,
    wrong: Option<&WrongVerdicts>,
    jump: Option<u64>,
) -> Vec<Pick> {
    let complete = segments::complete(rows);
    let why = match situation {
        Situation::Stream => pick::why_least_disturbing,
        _ => pick::why_fastest,
    };
    let choices = fitted(&complete, situation, wrong);
    let bypassing_helps = !matches!(situation, Situation::Cached | Situation::CachedReuse | Situation::Reuse);
    let jump = jump.filter(|_| bypassing_helps);
    let mut picks: Vec<Pick> = Vec::new();
    let mut below: Option<&(u64, Key)> = None;
    for segment in choices.chunk_by(|a, b| a.1 == b.1) {
        let (length, key) = &segment[0];
        let compared =
            segment.iter().filter(|(length, _)| !(key.is_c_library() && is_short(*length, situation)));
        let own: Vec<&Row> = compared.filter_map(|(length, _)| rows.get(length)).collect();
        // Below that, the C library works as at the lower length, and above as at the upper one.
        let jump = |low: u64| jump.filter(|at| key.is_c_library() && low < *at && *at <= *length);
        let from = match below {
            Some((low, old)) => {
                jump(*low).unwrap_or_else(|| match crossing(&complete, (*low, old), (*length, key), wrong) {
                    from if old.is_c_library() && is_short(from, situation) => shortest(situation),
                    from => from,
                })
            }
            None if !c_library || key.is_c_library() => 0,
            None => {
                let reason =
                    format!("shorter than the shortest length measured for {situation}, {length} bytes");
                picks.push(Pick { from: 0, key: Key::c_library(), reason });
                *length
            }
        };
        let mut reason = if key.is_c_library() && own.is_empty() {
            "shorter calls are over before a choice pays".to_owned()
        } else {
            why(key, &own)
        };
        let at_lengths =
            |wrong: &WrongVerdicts| segment.iter().map(|(length, _)| wrong.at(*length)).fold(0.0, f64::max);
        let most_wrong = wrong.map_or(0.0, at_lengths);
        if most_wrong >= 0.01 {
            let percent = 100.0 * most_wrong;
            reason += &format!(
                "; up to {percent:.0} % of what a look finds uncached may be cached, which counts, too"
            );
        }
        picks.push(Pick { from, key: key.clone(), reason });
        below = segment.last();
    }
    picks
}

type Ends<'r> = (&'r Figures, &'r Figures);

/// Returns the length, above the lower and at most the upper one, from which the upper choice is better. Interpolates
/// times as straight lines between logarithms.
fn crossing(
    rows: &BTreeMap<u64, Row>,
    (low, old): (u64, &Key),
    (high, new): (u64, &Key),
    wrong: Option<&WrongVerdicts>,
) -> u64 {
    let at = |share: f64| {
        let (low_ln, high_ln) = ((low as f64).ln(), (high as f64).ln());
        let length = (low_ln + share * (high_ln - low_ln)).exp() as u64;
        // Round numbers are as good.
        let length = if length >= 1024 { length / 64 * 64 } else { length };
        length.clamp(low.saturating_add(1).min(high), high)
    };
    let ends = |key: &Key| Some((rows[&low].get(key)?, rows[&high].get(key)?));
    let keys = (old, new);
    let (Some(old), Some(new)) = (ends(old), ends(new)) else { return at(0.5) };
    let conditions = common(old, new);
    if conditions.is_empty() {
        return at(0.5);
    }
    let c_library = ends(&Key::c_library()).map(|plain| {
        let tells = |it: &Condition| [new.0, new.1].iter().all(|figures| figures.0[it].tells());
        let mut shared = common(plain, new);
        shared.retain(|it| conditions.contains(it) && tells(it));
        (plain, shared)
    });
    let in_cached = wrong.and_then(|wrong| {
        let ends = |key: &Key| Some((wrong.cached.get(&low)?.get(key)?, wrong.cached.get(&high)?.get(key)?));
        let (old, new) = (ends(keys.0)?, ends(keys.1)?);
        Some((wrong, old, new, common(old, new)))
    });
    let is_better = |share: f64| {
        let gains = |from, to, conditions: &[Condition]| -> Vec<f64> {
            conditions.iter().map(|it| between(from, it, share) - between(to, it, share)).collect()
        };
        let mean = |row: &Row, from, to, conditions: &[Condition]| -> f64 {
            let gains = gains(from, to, conditions).into_iter();
            gains.zip(table::weigh(row, conditions)).map(|(gain, (_, weight))| gain * weight).sum()
        };
        let gain = mean(&rows[&high], old, new, &conditions);
        let gain = in_cached.as_ref().map_or(gain, |(wrong, old, new, conditions)| {
            let cached = wrong.at(low) * (1.0 - share) + wrong.at(high) * share;
            let row = &wrong.cached[&high];
            gain * (1.0 - cached) + mean(row, *old, *new, conditions) * cached
        });
        let barred = c_library.as_ref().is_some_and(|(plain, shared)| {
            let gains = gains(*plain, new, shared);
            let allowed = pick::allowed_loss(gains.iter().copied()).max(NOISE.ln_1p());
            gains.into_iter().any(|gain| gain < -allowed)
        });
        gain > 0.0 && !barred
    };
    (1..STEPS).map(|step| f64::from(step) / f64::from(STEPS)).find(|&share| is_better(share)).map_or(high, at)
}

/// Returns the conditions in which both candidates were measured at both lengths.
fn common(a: Ends<'_>, b: Ends<'_>) -> Vec<Condition> {
    let all = [a.1, b.0, b.1];
    a.0.0.keys().copied().filter(|it| all.iter().all(|figures| figures.0.contains_key(it))).collect()
}

/// Interpolates the logarithm of the time at a share of the way between two lengths.
fn between(ends: Ends<'_>, condition: &Condition, share: f64) -> f64 {
    let ln = |figures: &Figures| Timing::ns(&figures.0[condition]).ln();
    ln(ends.0) * (1.0 - share) + ln(ends.1) * share
}

/// Returns the numbers of threads of one operation by length. Empty if one thread is enough, or if no figure has several.
fn saturation(operation: Operation, rows: &BTreeMap<u64, Row>) -> Vec<Saturation> {
    let mut steps: Vec<Saturation> = Vec::new();
    let mut below: Option<(u64, BTreeMap<usize, f64>)> = None;
    for (&length, row) in rows {
        let Some(times) = by_threads(row) else { continue };
        let best = times.values().copied().fold(f64::INFINITY, f64::min);
        let within_noise = times.iter().find(|(_, ns)| **ns <= best * (1.0 + NOISE));
        let threads = within_noise.map_or(1, |(threads, _)| *threads);
        let known = steps.last().map_or(1, |step| step.threads);
        // Counts only grow with length: a decrease is noise.
        if threads > known {
            let gain = |times: &BTreeMap<usize, f64>| Some((times.get(&known)? / times.get(&threads)?).ln());
            // Where more threads overtake: the crossing of straight lines between logarithms.
            let crossing = below.and_then(|(low, before)| {
                let (under, over) = (gain(&before)?, gain(&times)?);
                let (low, high) = ((low as f64).ln(), (length as f64).ln());
                let at = (low - under / (over - under) * (high - low)).exp() as u64;
                (under < 0.0 && over > 0.0).then(|| at.next_multiple_of(4096))
            });
            steps.push(Saturation { operation, from: crossing.unwrap_or(length), threads });
        }
        below = Some((length, times));
    }
    steps
}

/// Returns the times by number of threads, of the candidate measured with most numbers of threads (the fastest of
/// those); none if only one thread and all were compared. Does not mix warm and cold memory.
fn by_threads(row: &Row) -> Option<BTreeMap<usize, f64>> {
    let times = |figures: &Figures, wanted: bool| -> BTreeMap<usize, f64> {
        let usual = |it: &Condition| it.aligned && it.warm == wanted && it.source.is_none();
        let conditions = figures.0.iter().filter(|(it, _)| usual(it));
        conditions.map(|(it, timing)| (it.threads, timing.ns())).collect()
    };
    [false, true]
        .into_iter()
        .flat_map(|warm| row.values().map(move |figures| times(figures, warm)))
        .filter(|times| times.contains_key(&1) && times.contains_key(&2))
        .min_by(|a, b| b.len().cmp(&a.len()).then(a[&1].total_cmp(&b[&1])))
}

#[cfg(test)]
mod tests;
