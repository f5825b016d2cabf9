"""Values of queries as tables, and the comparison of systems: beside SciPy, ranx's numbers, and loops of resamples."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from markdown_it import MarkdownIt

import torch_topk as tt
from torch_topk.stats import Loss, Pair

TESTS = ["permutation", "bootstrap", "t", "wilcoxon"]
NAN = float("nan")


def table(values, names=None, ids=None):
    values = np.asarray(values, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    names = names or [f"metric {column}" for column in range(values.shape[1])]
    return tt.QueryValues(np.arange(len(values)) if ids is None else ids, names, values)


def two(queries, columns=1, seed=0, shift=0.1):
    """Values of two systems that are related, as those of the same queries are."""
    random = np.random.default_rng(seed)
    base = random.random((queries, columns))
    return base, base + shift * random.random(columns) + 0.3 * random.standard_normal((queries, columns))


def compared(a, b, **options):
    return tt.compare({"a": table(a), "b": table(b)}, correction=None, **options)


def p_values(comparison):
    return [pair.p for pair in comparison.pairs]


# Tests and intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [2, 3, 20, 200])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_t_is_scipys(queries, level):
    a, b = two(queries, 3)
    comparison = compared(a, b, test="t", level=level)
    for column, pair in enumerate(comparison.pairs):
        expected = scipy.stats.ttest_rel(b[:, column], a[:, column])
        assert pair.p == pytest.approx(expected.pvalue, rel=1e-12)
        low, high = expected.confidence_interval(level)
        assert (pair.low, pair.high) == pytest.approx((low, high), rel=1e-12)
        for system, values in (("a", a[:, column]), ("b", b[:, column])):
            mean, error = values.mean(), scipy.stats.sem(values)
            around = scipy.stats.t.interval(level, queries - 1, mean, error)
            assert comparison.intervals[system][pair.metric] == pytest.approx(around, rel=1e-12)
            assert comparison.means[system][pair.metric] == pytest.approx(mean, rel=1e-14)


@pytest.mark.parametrize("queries", [3, 12, 49, 51, 300])
@pytest.mark.parametrize("rounded", [False, True])
def test_wilcoxon_is_scipys(queries, rounded):
    a, b = two(queries, 3)
    if rounded:
        a, b = a.round(1), b.round(1)
    for column, pair in enumerate(compared(a, b, test="wilcoxon").pairs):
        assert pair.p == scipy.stats.wilcoxon(b[:, column] - a[:, column]).pvalue


@pytest.mark.parametrize("queries", [2, 5, 10])
@pytest.mark.parametrize("rounded", [False, True])
def test_every_sign_is_flipped_where_queries_are_few(queries, rounded):
    a, b = two(queries, 4)
    if rounded:
        a, b = a.round(1), b.round(1)
    for column, pair in enumerate(compared(a, b, rounds=2**queries).pairs):
        differences = (b - a)[:, column].tolist()
        sums = [
            sum(sign * d for sign, d in zip(signs, differences, strict=True))
            for signs in product((1, -1), repeat=queries)
        ]
        found = sum(abs(each) > abs(sum(differences)) - 1e-9 for each in sums)
        assert pair.p == found / 2**queries
        exact = scipy.stats.permutation_test(
            (a[:, column], b[:, column]), lambda x, y: np.mean(y - x), permutation_type="samples"
        )
        assert pair.p == exact.pvalue


@pytest.mark.parametrize("rounded", [False, True])
def test_random_flips_come_near_every_flip(rounded):
    a, b = two(13, 4)
    if rounded:
        a, b = a.round(1), b.round(1)
    exact, rounds = p_values(compared(a, b, rounds=2**13)), 2**13 - 1
    found = p_values(compared(a, b, rounds=rounds))
    assert found != exact
    for p, random in zip(exact, found, strict=True):
        assert abs(random - p) < 4 * math.sqrt(p * (1 - p) / rounds) + 1 / rounds


@pytest.mark.parametrize("test", ["permutation", "bootstrap"])
def test_what_was_observed_is_one_of_the_draws(test):
    assert p_values(compared(np.zeros(100), np.ones(100), test=test, rounds=999)) == [1 / 1000]


def test_bootstrap_comes_near_every_resample():
    a, b = two(5, 4)
    rounds = 20_000
    for column, pair in enumerate(compared(a, b, test="bootstrap", rounds=rounds, level=0.9).pairs):
        differences = (b - a)[:, column]
        means = np.array([np.mean(drawn) for drawn in product(differences.tolist(), repeat=5)])
        p = np.mean(abs(means - differences.mean()) >= abs(differences.mean()) - 1e-12)
        assert abs(pair.p - p) < 4 * math.sqrt(p * (1 - p) / rounds) + 1 / rounds
        # A percentile is as far off as its share of the resamples.
        for end, share in ((pair.low, 0.05), (pair.high, 0.95)):
            slack = 4 * math.sqrt(share * (1 - share) / rounds)
            assert np.mean(means < end - 1e-9) < share + slack
            assert np.mean(means <= end + 1e-9) > share - slack


@pytest.mark.parametrize("test", TESTS)
def test_no_more_is_found_by_chance_than_the_level_says(test):
    random = np.random.default_rng(3)
    a, b = random.random((2, 60, 1500))
    found = np.array(p_values(compared(a, b, test=test, rounds=500)))
    for level in (0.05, 0.3):
        # Four standard errors; the bootstrap of a mean finds a little more than it should among few queries.
        slack = 4 * math.sqrt(level * (1 - level) / 1500) + (0.01 if test == "bootstrap" else 0)
        assert abs(np.mean(found <= level) - level) < slack


@pytest.mark.parametrize("test", TESTS)
def test_intervals_cover_the_difference_as_often_as_they_say(test):
    random = np.random.default_rng(4)
    a = random.random((60, 1500))
    b = a + random.exponential(0.2, (60, 1500))
    pairs = compared(a, b, test=test, rounds=500).pairs
    covered = np.mean([pair.low <= 0.2 <= pair.high for pair in pairs])
    assert 0.9 < covered < 0.965


# The reciprocal ranks of 40 queries, and what ranx 0.3.21 says of them and of hits at 2: compare(stat_test="student")
# and compare(stat_test="fisher", n_permutations=100_000), on runs that hold the one right document at these ranks.
RANX = {
    ("mrr", "a", "b"): (0.33396315297409984, 0.33348, (20, 6, 14)),
    ("mrr", "a", "c"): (0.04252932086896951, 0.04266, (21, 7, 12)),
    ("mrr", "b", "c"): (0.34023621871515203, 0.33644, (22, 7, 11)),
    ("hit_rate@2", "a", "b"): (0.5702839158682149, 0.77628, (7, 28, 5)),
    ("hit_rate@2", "a", "c"): (0.12818515453676096, 0.19033, (14, 19, 7)),
    ("hit_rate@2", "b", "c"): (0.3030341228047666, 0.4054, (14, 17, 9)),
}


def test_ranx_says_the_same():
    systems = {}
    for seed, name in enumerate("abc"):
        ranks = np.random.default_rng(seed).geometric(0.25 + 0.05 * seed, 40)
        systems[name] = table(np.stack([1 / ranks, ranks <= 2], 1), ["mrr", "hit_rate@2"])
    for test in ("t", "permutation"):
        comparison = tt.compare(systems, against="all", test=test, correction=None, rounds=100_000)
        assert len(comparison.pairs) == len(RANX)
        for pair in comparison.pairs:
            student, fisher, counts = RANX[pair.metric, pair.a, pair.b]
            if test == "t":
                assert pair.p == pytest.approx(student, rel=1e-12)
            else:
                # Four standard errors of a difference of two shares of 100,000.
                assert abs(pair.p - fisher) < 4 * math.sqrt(2 * fisher * (1 - fisher) / 100_000)
            assert (pair.wins, pair.ties, pair.losses) == counts


# Corrections --------------------------------------------------------------------------------------------


def holm(p):
    """The largest of p_1 m, p_2 (m - 1), ... down to one's own place, as Holm has it."""
    order = sorted(range(len(p)), key=p.__getitem__)
    return [max(min(1, (len(p) - j) * p[order[j]]) for j in range(order.index(i) + 1)) for i in range(len(p))]


def hochberg(p):
    """The least of p_j m / j from one's own place up, as Benjamini and Hochberg have it."""
    order = sorted(range(len(p)), key=p.__getitem__)
    return [min(min(1, len(p) / (j + 1) * p[order[j]]) for j in range(order.index(i), len(p))) for i in range(len(p))]


def test_loops_of_corrections_are_the_worked_example():
    p = [0.01, 0.04, 0.03, 0.005]
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert hochberg(p) == pytest.approx([0.02, 0.04, 0.04, 0.02])


@pytest.mark.parametrize(("correction", "by_hand"), [("holm", holm), ("bh", hochberg), (None, list)])
@pytest.mark.parametrize("against", ["baseline", "all"])
def test_correction_is_over_all_pairs_of_the_call(correction, by_hand, against):
    random = np.random.default_rng(0)
    base = random.random((30, 5))
    systems = {
        name: table(base + 0.05 * random.standard_normal((30, 5)) + 0.02 * place) for place, name in enumerate("abcd")
    }
    comparison = tt.compare(systems, test="t", correction=correction, against=against)
    assert len(comparison.pairs) == 5 * (3 if against == "baseline" else 6)
    assert [(pair.a, pair.b) for pair in comparison.pairs[:3]] == [("a", "b"), ("a", "c"), ("a", "d")]
    assert [pair.p_corrected for pair in comparison.pairs] == pytest.approx(by_hand(p_values(comparison)))
    significant = {pair.significant for pair in comparison.pairs}
    assert significant == {True, False}
    assert all(pair.significant == (pair.p_corrected < 0.05) for pair in comparison.pairs)


# Pairs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
def test_systems_that_are_the_same(test):
    a = np.random.default_rng(0).random((30, 2))
    for pair in tt.compare({"a": table(a), "b": table(a.copy())}, test=test).pairs:
        assert (pair.difference, pair.low, pair.high, pair.relative, pair.effect) == (0, 0, 0, 0, 0)
        assert (pair.p, pair.p_corrected, pair.significant) == (1, 1, False)
        assert (pair.wins, pair.ties, pair.losses) == (0, 30, 0)
    zeros = tt.compare({"a": table(np.zeros(5)), "b": table(np.zeros(5))}, test=test).pairs[0]
    assert zeros.p == 1
    assert math.isnan(zeros.relative)


@pytest.mark.parametrize("test", TESTS)
def test_one_difference_for_all_queries(test):
    pair = compared(np.zeros(20), np.full(20, 0.5), test=test).pairs[0]
    assert (pair.difference, pair.low, pair.high, pair.effect) == (0.5, 0.5, 0.5, math.inf)
    assert pair.p < 1e-3
    assert compared(np.full(20, 0.5), np.zeros(20), test=test).pairs[0].effect == -math.inf


def test_numbers_of_a_pair_are_those_of_a_loop():
    a, b = two(25, 1)
    a, b = a.round(1), b.round(1)
    pair = compared(a, b, test="t").pairs[0]
    old, new = a[:, 0].tolist(), b[:, 0].tolist()
    differences = [after - before for before, after in zip(old, new, strict=True)]
    mean = sum(differences) / 25
    deviation = math.sqrt(sum((each - mean) ** 2 for each in differences) / 24)
    assert (pair.mean_a, pair.mean_b) == pytest.approx((sum(old) / 25, sum(new) / 25))
    assert pair.difference == pytest.approx(mean)
    assert pair.effect == pytest.approx(mean / deviation)
    assert pair.relative == pytest.approx(mean / (sum(old) / 25))
    assert pair.wins == sum(d > 0 for d in differences)
    assert pair.ties == sum(d == 0 for d in differences) > 0
    assert pair.losses == sum(d < 0 for d in differences)
    assert compared(-a, -b).pairs[0].relative == pytest.approx(-pair.relative)  # a share of the baseline's size


def test_where_lower_is_better():
    names = ["mr", "val/amr", "MRR@10", "P(rel=2)@5", "seconds"]
    a, b = table(np.full((20, 5), 2.0), names), table(np.full((20, 5), 1.0), names)
    comparison = tt.compare({"a": a, "b": b}, lower_is_better=["seconds"])
    better = [pair.metric for pair in comparison.pairs if pair.wins == 20]
    assert better == ["mr", "val/amr", "seconds"]
    assert all(pair.losses == 20 for pair in comparison.pairs if pair.metric not in better)
    assert {pair.difference for pair in comparison.pairs} == {-1}
    assert [line.split() for line in str(comparison).splitlines()[2:12:2]] == [
        ["mr", "↓", "2.0000", "1.0000*ᵃ"],
        ["val/amr", "↓", "2.0000", "1.0000*ᵃ"],
        ["MRR@10", "2.0000*ᵇ", "1.0000"],
        ["P(rel=2)@5", "2.0000*ᵇ", "1.0000"],
        ["seconds", "↓", "2.0000", "1.0000*ᵃ"],
    ]
    assert len(comparison.regressions(metric="MRR@10", n=99)) == 20
    assert comparison.regressions(metric="mr") == []


def test_baseline_and_pairs():
    a, b = two(10)
    systems = {"a": table(a), "b": table(b), "c": table(b + 0.1)}
    comparison = tt.compare(systems, baseline="c")
    assert comparison.systems == ("c", "a", "b")
    assert [(pair.a, pair.b) for pair in comparison.pairs] == [("c", "a"), ("c", "b")]
    every = tt.compare(systems, baseline="c", against="all")
    assert [(pair.a, pair.b) for pair in every.pairs] == [("c", "a"), ("c", "b"), ("a", "b")]


# Queries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", TESTS)
def test_queries_are_matched_by_id(test):
    a, b = two(30, 2)
    ids = [f"q{number}" for number in range(30)]
    order = np.random.default_rng(1).permutation(30)
    straight = tt.compare({"a": table(a, ids=ids), "b": table(b, ids=ids)}, test=test)
    shuffled = tt.compare({"a": table(a, ids=ids), "b": table(b[order], ids=[ids[i] for i in order])}, test=test)
    assert shuffled.pairs == straight.pairs
    same(shuffled.tables["b"], straight.tables["b"])


@pytest.mark.parametrize("test", TESTS)
def test_a_metric_is_by_itself(test):
    """Its numbers are those without the other metrics, and without the queries that it leaves out."""
    a, b = two(40, 3)
    a[::4, 0] = b[::4, 0] = NAN
    together = compared(a, b, test=test)
    assert together.left_out == {"metric 0": 10, "metric 1": 0, "metric 2": 0}
    assert "over 40 queries, 10 of them left out of metric 0." in together.legend
    for column, pair in enumerate(together.pairs):
        counted = ~np.isnan(a[:, column])
        alone = compared(a[counted, column], b[counted, column], test=test).pairs[0]
        assert pair[3:] == pytest.approx(alone[3:], rel=1e-12)
        assert pair.wins + pair.ties + pair.losses == counted.sum()


def test_resamples_hang_on_the_seed_alone():
    a, b = two(30)
    for test in ("permutation", "bootstrap"):
        assert compared(a, b, test=test).pairs == compared(a, b, test=test, seed=0).pairs
        assert compared(a, b, test=test, seed=1).pairs != compared(a, b, test=test).pairs


def test_regressions_are_the_largest_losses():
    ids = ["w", "x", "y", "z"]
    base = table([[0.5, 5], [0.5, 5], [0.5, NAN], [1.0, 5]], ["ndcg", "mr"], ids)
    v1 = table([[0.25, 5], [0.75, 9], [0.0, NAN], [1.0, 6]], ["ndcg", "mr"], ids)
    v2 = table([[0.5, 1], [0.5, 1], [0.5, NAN], [0.125, 8]], ["ndcg", "mr"], ids)
    comparison = tt.compare({"base": base, "v1": v1, "v2": v2})
    losses = [Loss("z", "v2", 1.0, 0.125, -0.875), Loss("y", "v1", 0.5, 0.0, -0.5), Loss("w", "v1", 0.5, 0.25, -0.25)]
    assert comparison.regressions() == losses
    assert comparison.regressions(2) == losses[:2]
    assert comparison.regressions(system="v1") == losses[1:]
    assert comparison.regressions(metric="mr") == [
        Loss("x", "v1", 5.0, 9.0, 4.0),
        Loss("z", "v2", 5.0, 8.0, 3.0),
        Loss("z", "v1", 5.0, 6.0, 1.0),
    ]
    for options, message in (
        ({"metric": "map"}, "metric must be one of 'ndcg', 'mr', but is 'map'"),
        ({"system": "base"}, "system must be one of 'v1', 'v2', but is 'base'"),
        ({"n": -1}, "n must be at least 0, but is -1"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            comparison.regressions(**options)


def test_suites_are_compared_by_what_they_collected():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(50, 20, generator=generator), torch.randint(0, 20, (50,), generator=generator)
    better = scores + 0.5 * torch.nn.functional.one_hot(target, 20)
    suites = {}
    for name, given in (("random", scores), ("better", better)):
        suites[name] = tt.TopKMetrics(["ndcg", "mrr"], k=[3, 10], collect=True)
        suites[name].update(given, target)
    comparison = tt.compare(suites, test="t")
    assert comparison.metrics == ("ndcg@3", "ndcg@10", "mrr@3", "mrr@10")
    for name, suite in suites.items():
        assert comparison.means[name] == pytest.approx({key: value.item() for key, value in suite.compute().items()})
    a, b = (tt.functional.ndcg(given, target, k=10).numpy() for given in (scores, better))
    assert comparison.pairs[1].p == pytest.approx(scipy.stats.ttest_rel(b, a).pvalue)


# What is refused ----------------------------------------------------------------------------------------

GOOD = {"q1": 0.1, "q2": 0.4, "q3": 0.3}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"q1": 0.1, "q2": 0.4, "x": 1, "y": 2},
            "'b' lacks 1 of the 3 queries of 'a' ('q3'), and has 2 that it lacks ('x', 'y'). Evaluate both on the same",
        ),
        (
            {1: 0.1, 2: 0.4, 3: 1, 4: 2},
            "'b' lacks 3 of the 3 queries of 'a' ('q1', 'q2', 'q3'), and has 4 that it lacks (1, 2, 3, …)",
        ),
        ({**GOOD, "q4": 0.5}, "'b' lacks 0 of the 3 queries of 'a', and has 1 that it lacks ('q4')"),
        ({**GOOD, "q2": NAN}, "'b' has NaN for 1 of the queries ('q2') by 'value'"),
        ({**GOOD, "q3": math.inf}, "'b' has an infinite value for 1 of the queries ('q3') by 'value'"),
        (
            {query: {"mrr": 1} for query in GOOD},
            "'a' lacks the metric 'mrr': it has ['value']. Name those to compare with",
        ),
        ({"ndcg@10": 0.2, "val/mrr": 0.3}, "The queries of 'b' are called 'ndcg@10', 'val/mrr': metrics, it seems."),
        (
            {"ndcg@10": {"q1": 0.2, "q2": 0.1}, "mrr": {"q1": 0.2, "q2": 0.1}},
            "what compute() returns, or {metric: {query id: value}}, is not taken",
        ),
        (
            {"q1": {"mrr": 1}, "q2": {"map": 1}},
            "'q1' has ['mrr'] and 'q2' has ['map']. The outer keys are the queries'",
        ),
        ({"q1": {"mrr": 1}, "q2": 0.5}, "'q1' has ['mrr'] and 'q2' has 0.5"),
    ],
)
def test_systems_that_do_not_match(other, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tt.compare({"a": GOOD, "b": other})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "z"}, "test must be one of 'permutation', 'bootstrap', 't', 'wilcoxon', but is 'z'"),
        ({"correction": "bonferroni"}, "correction must be one of 'holm', 'bh', None, but is 'bonferroni'"),
        ({"against": "c"}, "against must be one of 'baseline', 'all', but is 'c'"),
        ({"baseline": "c"}, "baseline must be one of 'a', 'b', but is 'c'"),
        ({"level": 95}, "level must lie between 0 and 1, but is 95"),
        ({"rounds": 0}, "rounds must be an int of at least 1, but is 0"),
        ({"seed": True}, "seed must be an int of at least 0, but is True"),
        ({"metrics": "valu"}, "'a' lacks the metric 'valu': it has ['value']. Did you mean 'value'?"),
        ({"metrics": []}, "metrics must name at least one metric, and each only once, but is []"),
        ({"metrics": ["value", "value"]}, "each only once"),
        ({"lower_is_better": "value"}, "lower_is_better must list metrics among ('value',), but is 'value'"),
        ({"lower_is_better": ["mr"]}, "lower_is_better must list metrics among ('value',), but is ['mr']"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tt.compare({"a": GOOD, "b": GOOD}, **options)


def test_too_little_to_compare():
    with pytest.raises(ValueError, match=re.escape("two systems or more to compare, but holds ['a']")):
        tt.compare({"a": GOOD})
    with pytest.raises(ValueError, match="At least 2 queries must count to compare systems by 'value', but 1 do"):
        tt.compare({"a": {"q1": 0.5, "q2": NAN}, "b": {"q1": 0.5, "q2": NAN}})
    with pytest.raises(ValueError, match="but 0 do"):
        tt.compare({"a": {}, "b": {}})
    with pytest.raises(TypeError, match=r"systems must be a mapping of names \(strings\) to values, but is a list"):
        tt.compare([GOOD, GOOD])
    with pytest.raises(TypeError, match=r"but has the keys \[1, 2\]"):
        tt.compare({1: GOOD, 2: GOOD})
    with pytest.raises(
        TypeError, match=r"must be QueryValues, a suite made with collect=True, .* but are of type list"
    ):
        tt.compare({"a": GOOD, "b": [0.1, 0.2, 0.3]})


def test_metrics_are_picked_where_systems_differ():
    a = table(two(10, 2)[0], ["mrr", "ndcg"])
    b = table(two(10, 2)[1], ["ndcg", "map"])
    with pytest.raises(ValueError, match=r"'a' lacks the metric 'map'|'b' lacks the metric 'mrr'"):
        tt.compare({"a": a, "b": b})
    pair, *more = tt.compare({"a": a, "b": b}, metrics="ndcg").pairs
    assert not more
    assert (pair.mean_a, pair.mean_b) == pytest.approx((a["ndcg"].mean(), b["ndcg"].mean()))


# Tables -------------------------------------------------------------------------------------------------

AWKWARD = ["a|b", "_under_", "50% & $5 #1", "<b>&amp;", "[x](y)*", "{~^}\\", "x--y", "two\nlines", "`code`"]


@pytest.fixture(scope="module")
def small():
    random = np.random.default_rng(0)
    base = random.random((50, 2))
    shifts = {"bm25": 0, "dense": 0.2, "hybrid": [0.4, -2]}
    systems = {
        name: table(base + shift + 0.1 * random.random((50, 2)), ["ndcg@10", "mr"]) for name, shift in shifts.items()
    }
    return tt.compare(systems, against="all")


def test_text(small):
    laid_out, legend = str(small).split("\n\n")
    head, rule, *rows = laid_out.split("\n")
    assert head.split() == ["(a)", "bm25", "(b)", "dense", "(c)", "hybrid"]
    assert not set(rule) - {"-", " "}
    assert len(rows) == 4
    means = {metric: [f"{small.means[name][metric]:.4f}" for name in small.systems] for metric in small.metrics}
    (bm25, dense, hybrid), mr = means["ndcg@10"], means["mr"]
    assert rows[0].split() == ["ndcg@10", bm25, f"{dense}ᵃ", f"{hybrid}*ᵃᵇ"]
    assert rows[2].split() == ["mr", "↓", f"{mr[0]}ᵇ", mr[1], f"{mr[2]}*ᵃᵇ"]
    for row, metric in ((rows[1], "ndcg@10"), (rows[3], "mr")):
        ends = [f"[{low:.4f}, {high:.4f}]" for low, high in (small.intervals[name][metric] for name in small.systems)]
        assert re.findall(r"\[.*?\]", row) == ends
    assert " ".join(legend.split()) == small.legend
    for part in ("permutation test, p < 0.05, corrected by Holm, 6 pairs", "95 % intervals", "over 50 queries."):
        assert part in small.legend
    assert repr(small) == "<Comparison of bm25, dense, hybrid by ndcg@10, mr>"
    assert f"{small.means['bm25']['mr']:.2f}ᵇ " in str(replace(small, digits=2))


def cells_of(html):
    html = re.sub(r' style="[^"]*"', "", html).replace("strong>", "b>")
    return [re.sub(r"\s+", " ", cell).strip() for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", html, re.DOTALL)]


def test_markdown_and_html_are_the_same_table(small):
    hybrid, (low, high) = small.means["hybrid"]["ndcg@10"], small.intervals["hybrid"]["ndcg@10"]
    expected = f"<b>{hybrid:.4f}</b><sup>ab</sup><br>[{low:.4f}, {high:.4f}]"
    html = cells_of(small.to_html())
    assert html[:5] == ["", "(a) bm25", "(b) dense", "(c) hybrid", "ndcg@10"]
    assert html[7] == expected
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(small.to_markdown())
    assert cells_of(rendered) == html
    assert small._repr_html_() == small.to_html()
    assert "p &lt; 0.05" in small.to_html()


def test_latex(small):
    lines = small.to_latex().splitlines()
    assert lines[0] == r"\begin{tabular}{llll}"
    assert [line for line in lines if "rule" in line] == [r"\toprule", r"\midrule", r"\bottomrule"]
    hybrid = small.means["hybrid"]["mr"]
    number = f"{hybrid:.4f}".replace("-", "$-$")
    assert hybrid < 0
    assert rf"& \textbf{{{number}}}$^{{ab}}$" in lines[6]
    assert lines[6].split(" & ")[0].strip() == r"mr $\downarrow$"
    assert all(line.count(" & ") == 3 for line in lines if line.endswith(r"\\"))


def test_awkward_names():
    a, b = two(10, len(AWKWARD))
    systems = {name: table(a if name == AWKWARD[0] else b, AWKWARD) for name in AWKWARD}
    comparison = tt.compare(systems)
    shown = [" ".join(name.split()) for name in AWKWARD]
    for html in (
        comparison.to_html(),
        MarkdownIt("commonmark", {"html": True}).enable("table").render(comparison.to_markdown()),
    ):
        cells = cells_of(html)
        assert [unescape(cell)[4:] for cell in cells[1:10]] == shown
        assert [unescape(cell) for cell in cells[10::10]] == shown
        assert not re.search("<(?!/?(table|thead|tbody|tr|th|td|b|strong|sup|br|p)[ >])", html.replace("<br>", ""))
    latex = [line.split(" & ")[0].strip() for line in comparison.to_latex().splitlines()[4:-2:2]]
    assert latex == [
        r"a\textbar{}b",
        r"\_under\_",
        r"50\% \& \$5 \#1",
        r"\textless{}b\textgreater{}\&amp;",
        r"{[}x](y){*}",
        r"\{\textasciitilde{}\textasciicircum{}\}\textbackslash{}",
        r"x-{}-y",
        "two lines",
        "`code`",
    ]
    assert all(name in str(comparison) for name in shown)


def test_more_systems_than_letters():
    systems = {f"system {number}": table(np.arange(20) + number) for number in range(27)}
    text = str(tt.compare(systems, test="t"))
    head = text.splitlines()[0]
    letters = re.findall(r"\((\w+)\) system (\d+)", head)
    assert len({letter for letter, _ in letters}) == len(letters) == 27
    assert letters[25:] == [("aa", "25"), ("bb", "26")]


def test_pandas(small):
    frame = small.to_pandas()
    assert list(frame.columns) == list(Pair._fields)
    assert [tuple(row) for row in frame.itertuples(index=False)] == [tuple(pair) for pair in small.pairs]
    assert frame.dtypes["wins"].kind == "i"
    assert frame.dtypes["significant"].kind == "b"


# Values of queries --------------------------------------------------------------------------------------


def same(found, expected):
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.names == expected.names
    np.testing.assert_array_equal(found.values, expected.values)


@pytest.fixture
def queries():
    return tt.QueryValues(["q2", "q1"], ("mrr", "ndcg@10"), [[1.0, 0.9], [NAN, 0.4]])


def test_values_of_queries(queries):
    assert len(queries) == 2
    np.testing.assert_array_equal(queries["mrr"], [1.0, NAN])
    assert queries["ndcg@10"].tolist() == [0.9, 0.4]
    assert repr(queries) == "<QueryValues of 2 queries: mrr, ndcg@10>"
    with pytest.raises(KeyError, match=r"'ndcg@1' is no metric of this table\. Did you mean 'ndcg@10'\?"):
        queries["ndcg@1"]
    with pytest.raises(AttributeError):
        queries.names = ()


@pytest.mark.parametrize(
    ("ids", "expected", "kind"),
    [
        ([3, 1], [3, 1], "i"),
        (range(2), [0, 1], "i"),
        (np.array([3, 1], dtype=np.uint8), [3, 1], "i"),
        (torch.tensor([3, 1], dtype=torch.int32), [3, 1], "i"),
        (np.array(["b", "a"]), ["b", "a"], "U"),
        (["b", "a"], ["b", "a"], "O"),
        (pd.Index(["b", "a"]), ["b", "a"], "O"),
        ([np.int64(3), 1], [3, 1], "i"),
    ],
)
def test_ids(ids, expected, kind):
    found = tt.QueryValues(ids, ("m",), np.zeros((2, 1))).ids
    assert found.tolist() == expected
    assert found.dtype.kind == kind
    assert kind != "i" or found.dtype == np.int64


@pytest.mark.parametrize(
    ("ids", "names", "values", "error", "message"),
    [
        ([1, 1], ["m"], [[1], [2]], ValueError, "ids must differ, but 1 is there 2 times"),
        (["x", "y", "x"], ["m"], [[1], [2], [3]], ValueError, "ids must differ, but 'x' is there 2 times"),
        ([1, 2], ["m", "m"], [[1, 1], [2, 2]], ValueError, "names must differ, but 'm' is there 2 times"),
        ([1, "1"], ["m"], [[1], [2]], TypeError, "ids must be all integers or all strings, but are of int, str"),
        ([1.0, 2.0], ["m"], [[1], [2]], TypeError, "but are of float"),
        ([True, False], ["m"], [[1], [2]], TypeError, "but are of bool"),
        ([("a", 1), ("b",)], ["m"], [[1], [2]], TypeError, "ids must be all integers or all strings, but are of tuple"),
        ([1, 2], [10], [[1], [2]], TypeError, "names must be strings, what the metrics are called, but are (10,)"),
        ([1, 2], ["m"], [1, 2], ValueError, "a row an id and a column a name, here (2, 1), but are (2,)"),
        (np.zeros((1, 2), int), ["m"], [[1], [2]], ValueError, "ids must be (Q,), one a query, but are (1, 2)"),
    ],
)
def test_values_that_are_refused(ids, names, values, error, message):
    with pytest.raises(error, match=re.escape(message)):
        tt.QueryValues(ids, names, values)


def test_forms_that_are_read(queries):
    class Suite:
        def collected(self):
            return queries

    rows = {"q2": {"mrr": 1.0, "ndcg@10": 0.9}, "q1": {"ndcg@10": torch.tensor(0.4), "mrr": NAN}}
    for form in (queries, Suite(), queries.to_pandas(), queries.to_pandas().reset_index(), rows):
        found = tt.QueryValues.read(form)
        np.testing.assert_allclose(found.values, queries.values, rtol=1e-7)
        assert (found.ids.tolist(), found.names) == (queries.ids.tolist(), queries.names)
    same(tt.QueryValues.read({7: 1, 5: True}), tt.QueryValues([7, 5], ["value"], [[1], [1]]))
    same(tt.QueryValues.read({}), tt.QueryValues([], ["value"], np.zeros((0, 1))))


def test_pandas_there_and_back(queries):
    frame = queries.to_pandas()
    assert frame.index.name == "query_id"
    assert list(frame.columns) == ["mrr", "ndcg@10"]
    assert frame.loc["q1", "ndcg@10"] == 0.4
    same(tt.QueryValues.from_pandas(frame), queries)
    numbered = tt.QueryValues([5, 3], ["m"], [[1], [2]])
    same(tt.QueryValues.from_pandas(numbered.to_pandas()), numbered)
    missing = pd.DataFrame({"hits": pd.array([True, None], dtype="boolean")}, index=[1, 2])
    np.testing.assert_array_equal(tt.QueryValues.from_pandas(missing).values, [[1], [NAN]])
    long = queries.to_long()
    assert list(long.columns) == ["query_id", "metric", "value"]
    assert long.query("query_id == 'q1' and metric == 'ndcg@10'")["value"].tolist() == [0.4]
    assert len(long) == 4


def test_frames_that_are_refused():
    frame = pd.DataFrame({"m": [0.1, 0.2], "text": ["0.1", "b"]}, index=["q", "q"])
    with pytest.raises(TypeError, match=r"must hold numbers, each of one metric, but \['text'\] do not"):
        tt.QueryValues.from_pandas(frame)
    with pytest.raises(ValueError, match="ids must differ, but 'q' is there 2 times"):
        tt.QueryValues.from_pandas(frame[["m"]])


def test_polars_and_parquet(queries, tmp_path):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    frame = queries.to_polars()
    assert frame.columns == ["query_id", "mrr", "ndcg@10"]
    assert frame.schema["query_id"] == polars.String
    assert frame["ndcg@10"].to_list() == [0.9, 0.4]
    same(tt.QueryValues.read(frame.to_pandas()), queries)
    with pytest.raises(TypeError, match=re.escape("Give a frame of polars as frame.to_pandas().")):
        tt.QueryValues.read(frame)
    queries.to_parquet(tmp_path / "values.parquet")
    same(tt.QueryValues.read(pd.read_parquet(tmp_path / "values.parquet")), queries)
    assert set(polars.read_parquet(tmp_path / "values.parquet").columns) == set(frame.columns)


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("pandas", lambda queries, _: queries.to_pandas()),
        ("polars", lambda queries, _: queries.to_polars()),
        ("pyarrow", lambda queries, _: queries.to_parquet("x")),
        ("pandas", lambda _, comparison: comparison.to_pandas()),
        ("tabulate", lambda _, comparison: str(comparison)),
        ("tabulate", lambda _, comparison: comparison.to_latex()),
    ],
    ids=["to_pandas", "to_polars", "to_parquet", "pairs", "text", "latex"],
)
def test_what_is_missing_is_named(module, use, queries, small, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs? {module}: pip install 'torch-topk\[report\]'"):
        use(queries, small)
    if module == "tabulate":
        assert small._repr_html_() is None
        assert repr(small)


def test_the_example_runs(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'torch-topk[examples]'")
    script = Path(__file__).parents[1] / "examples" / "compare.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown, pairs, losses = done.stdout.split("\n\n")[0], *done.stdout.split("\n\n")[2:]
    assert shown.split("\n")[0].split() == ["(a)", "64", "pixels", "(b)", "20", "components", "(c)", "8", "directions"]
    assert len(pairs.splitlines()) == 8
    assert len(re.findall(r"^Image \d+, a \d: 0\.\d{3} by pixels, 0\.\d{3} by components$", losses, re.MULTILINE)) == 3
    assert not [*tmp_path.iterdir()]
