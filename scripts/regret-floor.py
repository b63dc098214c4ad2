#!/usr/bin/python3
"""Shows how much regret no policy can avoid on a machine: scripts/regret-floor.py FIRST SECOND

FIRST and SECOND are results of two runs of `bulkmem bench targets --output FILE` (one thread, 64 KiB and more). For each
operation, length, cache state and page size, the method or library that was best in the first run is judged by the second run: a table
with a measurement of its own for each length, and without the cost of a look, could choose no better. The regret of the
policy is that of the second run. As in `bench targets`, the samples of a round are compared with each other, each half of the
second run's rounds selects the best, and the other half says how fast that is.
"""

import collections
import json
import math
import statistics
import sys

POLICY = "policy"
# As in `bench targets`: fewer samples tell nothing, or are not halved.
LEAST, FOR_HALVES = 5, 12


def read(path):
    """Returns {configuration: {candidate: {condition: samples}}}. The policy does not know the conditions."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    for row in rows:
        config, candidate = row["config"], row["candidate"]
        # Rows of reused memory are of many calls, and of two candidates.
        usual = config.get("intent") == "throughput" and config.get("threads") == 1 and row["metric"] == "bandwidth"
        usual = usual and "memory" not in config
        if usual and config.get("size", 0) >= 64 << 10 and candidate["kind"] in (POLICY, "method", "peer"):
            name = candidate["name"] + json.dumps(candidate["parameters"], sort_keys=True)
            name = POLICY if candidate["kind"] == POLICY else name
            config_key = (config["operation"], config.get("cache"), config["size"], config.get("page_size"))
            found[config_key][name][config.get("alignment"), config.get("source")] = row["samples"]
    return found


def mean(logarithms):
    logarithms = list(logarithms)
    return math.exp(sum(logarithms) / len(logarithms))


def half(rounds, which):
    """Rounds come in pairs of opposite order."""
    return [ratio for at, ratio in enumerate(rounds) if which is None or at // 2 % 2 == which]


def speed(of, policy, conditions, which=None):
    """How many times as fast as the policy a candidate is."""
    ratios = lambda it: [own / other for own, other in zip(of[it], policy[it])]
    return mean(math.log(statistics.median(half(ratios(it), which))) for it in conditions)


def best(candidates, policy, conditions, which=None):
    return max(candidates, key=lambda name: speed(candidates[name], policy, conditions, which))


def regrets(first, second):
    """Yields (operation and state, regret of the first run's best, regret of the policy) as factors."""
    for key, now in second.items():
        before = first.get(key, {})
        conditions = [it for it in now.get(POLICY, {}) if it in before.get(POLICY, {})]
        if not conditions or min(len(now[POLICY][it]) for it in conditions) < LEAST:
            continue

        def measured(candidates):
            whole = lambda of: all(len(of.get(it, [])) >= LEAST for it in conditions)
            return {name: of for name, of in candidates.items() if name != POLICY and whole(of)}

        policy, rivals = now[POLICY], measured(now)
        known = {name: of for name, of in measured(before).items() if name in rivals}
        if not known:
            continue
        if all(len(policy[it]) >= FOR_HALVES for it in conditions):
            judged = ((best(rivals, policy, conditions, it), 1 - it) for it in (0, 1))
            fastest = mean(math.log(speed(rivals[name], policy, conditions, it)) for name, it in judged)
        else:
            fastest = speed(rivals[best(rivals, policy, conditions)], policy, conditions)
        other = best(known, before[POLICY], conditions)
        yield key[:2], fastest / speed(rivals[other], policy, conditions), fastest


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = list(regrets(read(sys.argv[1]), read(sys.argv[2])))
    if not found:
        sys.exit("error: the files have no configuration in common; both must be results of `bulkmem bench targets`")
    groups = collections.defaultdict(list)
    for key, *both in found:
        groups["{}, {}".format(*key)].append(both)
    groups["all"] = [both for _, *both in found]
    print(f"{'regret, geometric mean':24}  lengths  the other run's best  policy")
    for name, rows in groups.items():
        floor, policy = (mean(map(math.log, column)) - 1 for column in zip(*rows))
        print(f"{name:24}  {len(rows):7}  {floor:20.1%}  {policy:6.1%}")


if __name__ == "__main__":
    main()
