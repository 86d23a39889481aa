"""An exact interval for how often something happens."""

import math


def interval(count, trials, confidence=0.95):
    """Clopper and Pearson's interval of a binomial proportion."""
    tail = (1 - confidence) / 2
    low = bisected(lambda p: at_least(count, trials, p) - tail) if count else 0.0
    high = bisected(lambda p: tail - (1 - at_least(count + 1, trials, p))) if count < trials else 1.0
    return low, high


def at_least(count, trials, probability):
    """The probability of so many successes or more."""
    if not 0 < probability < 1:
        return float(probability >= 1 or count == 0)
    logs = (math.log(probability), math.log1p(-probability))

    def term(successes):
        ways = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
        return math.exp(ways + successes * logs[0] + (trials - successes) * logs[1])

    below = math.fsum(term(successes) for successes in range(count))
    return max(0.0, 1 - below)


def bisected(rising):
    """Where a rising function of a probability is zero."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
