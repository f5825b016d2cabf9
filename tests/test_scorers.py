"""Scorers in scikit-learn's own searches and cross-validations, beside scikit-learn's own scores."""

# ruff: noqa: N803, N806 - X and Y are scikit-learn's names

import pickle
import sys
import warnings

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, load_iris, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, f1_score, make_scorer, ndcg_score, top_k_accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneGroupOut, cross_val_score, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import torch_topk as tt
from torch_topk.scorers import Scorer

FOLDS = KFold(3, shuffle=True, random_state=0)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:500], y[:500]


@pytest.fixture(scope="module")
def tags():
    X, Y = make_multilabel_classification(160, n_features=12, n_classes=6, n_labels=2, random_state=0)
    assert (Y.sum(1) == 0).any()
    assert (Y.sum(1) > 2).any()
    return X, Y


class Told(ClassifierMixin, BaseEstimator):
    """A classifier whose scores are its input."""

    def __init__(self, classes=()):
        self.classes = classes

    def fit(self, X, y):
        del X, y
        self.classes_ = np.array(self.classes)
        return self

    def predict(self, X):
        return self.classes_[X.argmax(1)]

    def decision_function(self, X):
        return X


def told(*classes):
    return Told(classes).fit(None, None)


# One label a row.


def test_a_search_by_ndcg_picks_another_model_than_one_by_accuracy():
    # The class is one of three, which a column tells, and mostly the one that two bits tell together. A tree learns
    # the bits, and puts nothing behind its first guess; a linear model cannot, but ranks all three before the others.
    draw = np.random.default_rng(0)
    trio, bits = draw.integers(3, size=900), draw.integers(2, size=(900, 2))
    member = np.where(draw.random(900) < 0.35, draw.integers(3, size=900), bits[:, 0] ^ bits[:, 1])
    X = np.column_stack([np.eye(3)[trio], bits]) + 0.05 * draw.normal(size=(900, 5))
    y = np.array([f"class {i}" for i in range(9)])[3 * trio + member]
    models = [DecisionTreeClassifier(random_state=0), LogisticRegression()]
    pipeline = make_pipeline(StandardScaler(), models[0])
    grid = {models[0].__class__.__name__.lower(): models}

    by_accuracy = GridSearchCV(pipeline, grid, scoring="accuracy").fit(X, y)
    by_ndcg = GridSearchCV(pipeline, grid, scoring=Scorer("ndcg@3")).fit(X, y)
    assert isinstance(by_accuracy.best_estimator_[-1], DecisionTreeClassifier)
    assert isinstance(by_ndcg.best_estimator_[-1], LogisticRegression)
    assert by_ndcg.best_score_ == by_ndcg.cv_results_["mean_test_score"][1]
    assert np.ptp(by_accuracy.cv_results_["mean_test_score"]) > 0.05
    assert np.ptp(by_ndcg.cv_results_["mean_test_score"]) > 0.1
    assert by_ndcg.score(X, y) == Scorer("ndcg@3")(by_ndcg, X, y)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        KNeighborsClassifier(4),  # whose scores tie
        RandomForestClassifier(5, random_state=0),
        GaussianNB(),
        OneVsRestClassifier(LinearSVC()),
        SVC(decision_function_shape="ovr"),
        RidgeClassifier(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_hit_rate_is_top_k_accuracy(digits, estimator):
    theirs = make_scorer(top_k_accuracy_score, response_method=("decision_function", "predict_proba"), k=3)
    scoring = {"ours": Scorer("hit_rate@3", ties="reverse"), "theirs": theirs}
    found = cross_validate(estimator, *digits, scoring=scoring, cv=FOLDS, error_score="raise")
    assert np.ptp(found["test_ours"]) > 0
    np.testing.assert_allclose(found["test_ours"], found["test_theirs"], rtol=1e-12)


def test_ndcg_is_ndcg_score(digits):
    X, y = digits
    one_hot = LabelBinarizer().fit(y).transform
    theirs = make_scorer(lambda y, scores: ndcg_score(one_hot(y), scores, k=3), response_method="decision_function")
    ours = Scorer("ndcg@3")
    found = [cross_val_score(RidgeClassifier(), X, y, scoring=each, cv=FOLDS) for each in (ours, theirs)]
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_several_metrics_are_read_off_one_ranking(digits):
    scorer = Scorer(["ndcg", "hit_rate@1", tt.MRR(k=5)], k=[2, 3])
    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 9]}, scoring=scorer, refit="ndcg@3", cv=FOLDS)
    found = search.fit(*digits).cv_results_
    for key in ("ndcg@2", "ndcg@3", "hit_rate@1", "mrr@5"):
        alone = cross_val_score(KNeighborsClassifier(9), *digits, scoring=Scorer(key), cv=FOLDS)
        np.testing.assert_allclose(found[f"mean_test_{key}"][1], alone.mean())
    assert search.best_score_ == found["mean_test_ndcg@3"].max()
    assert search.score(*digits) == scorer(search, *digits)["ndcg@3"]


@pytest.mark.parametrize("named", ["ndcg@3", {"name": "ndcg", "k": 3}, tt.NDCG(k=3), tt.NDCG(k=[3]), (tt.NDCG, 3)])
def test_one_metric_gives_a_number(named):
    metric, options = (named[0], {"k": named[1]}) if isinstance(named, tuple) else (named, {})
    value = Scorer(metric, **options)(told(0, 1, 2), np.array([[3.0, 1, 2]]), [2])
    assert type(value) is float
    assert value == pytest.approx(1 / np.log2(3))


@pytest.mark.parametrize(
    ("several", "keys"),
    [
        (["ndcg@3"], ["ndcg@3"]),
        ("ndcg@1,3", ["ndcg@1", "ndcg@3"]),
        ({"first": "ndcg@1", "more": "ndcg@3"}, ["first@1", "more@3"]),
        (tt.TopKMetrics("ndcg@3", prefix="top/"), ["top/ndcg@3"]),
        ([tt.NDCG(k=[1, 3])], ["ndcg@1", "ndcg@3"]),
    ],
)
def test_several_metrics_give_a_dict(several, keys):
    values = Scorer(several)(told(0, 1, 2), np.array([[3.0, 1, 2]]), [2])
    assert list(values) == keys
    assert values[keys[-1]] == pytest.approx(1 / np.log2(3))


def test_a_metric_is_a_definition():
    metric = tt.HitRate(k=1)
    metric.update(np.array([[1.0, 0.0]]), np.array([0]))
    scorer = Scorer(metric)
    assert [scorer(told(0, 1), np.array([[1.0, 0.0]]), [1]) for _ in range(2)] == [0, 0]
    assert metric.compute() == 1
    metric.update(np.array([[1.0, 0.0]]), np.array([0]))
    assert scorer(told(0, 1), np.array([[1.0, 0.0]]), [1]) == 0


def test_lower_is_better_is_negated(monkeypatch):
    monkeypatch.setattr(tt.MRR, "higher_is_better", False)
    X, y = np.array([[3.0, 1, 2]]), [2]
    assert Scorer(tt.MRR(k=3))(told(0, 1, 2), X, y) == -0.5
    assert Scorer("mrr")(told(0, 1, 2), X, y) == -0.5
    assert Scorer(["mrr@3", "hit_rate@2"])(told(0, 1, 2), X, y) == {"neg_mrr@3": -0.5, "hit_rate@2": 1}


def test_a_fold_is_this_process_own():
    def gather(*_, **__):
        raise AssertionError

    metric = tt.HitRate(k=1, distributed_available_fn=lambda: True, dist_sync_fn=gather)
    assert Scorer(metric)(told(0, 1), np.eye(2), [0, 0]) == 0.5


@pytest.mark.parametrize("classes", [("b", "c", "a"), (30, 10, 20), (True, False)])
def test_columns_are_in_the_order_of_classes(classes):
    # Not sorted, as an estimator of one's own may have them.
    X = np.eye(len(classes))
    assert Scorer("precision@1")(told(*classes), X, np.array(classes)) == 1
    assert Scorer("precision@1")(told(*classes), X, np.array(classes)[::-1].tolist()) == len(classes) % 2 / len(classes)


def test_text_labels_score_as_numbers_do(digits):
    X, y = digits
    words = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    for labels in (words[y], words[y].astype(object)):  # sorted, they stand in another order
        found = cross_val_score(GaussianNB(), X, labels, scoring=Scorer("hit_rate@2"), cv=FOLDS)
        np.testing.assert_allclose(found, cross_val_score(GaussianNB(), X, y, scoring=Scorer("hit_rate@2"), cv=FOLDS))


def test_binary_scores_rank_both_classes():
    X, y = load_iris(return_X_y=True)
    X, y = X[50:], np.array(["no", "yes"])[y[50:] - 1]
    for estimator in (RidgeClassifier(), LinearSVC(), GaussianNB()):
        found = cross_validate(estimator, X, y, cv=FOLDS, scoring={"ours": Scorer("hit_rate@1"), "theirs": "accuracy"})
        np.testing.assert_allclose(found["test_ours"], found["test_theirs"])
        assert 0 < found["test_ours"].mean() < 1
        assert Scorer("hit_rate@2")(estimator.fit(X, y), X, y) == 1


def test_a_class_that_a_fold_lacks_is_a_miss():
    X, y = load_iris(return_X_y=True)
    y = np.array(["a", "b", "c"])[y]
    group = np.where(y == "b", 0, np.arange(len(y)) % 2 + 1)  # the first fold tests all of class b and nothing else
    model = RidgeClassifier()
    assert cross_val_score(model, X, y, groups=group, cv=LeaveOneGroupOut(), scoring=Scorer("hit_rate@3"))[0] == 0

    known = y != "b"
    model.fit(X[known], y[known])
    scorer = Scorer(["hit_rate@1", "hit_rate@2", "ndcg@2"])
    assert scorer(model, X[known], y[known])["hit_rate@1"] == accuracy_score(y[known], model.predict(X[known])) == 1
    assert scorer(model, X, y) == pytest.approx(dict.fromkeys(["hit_rate@1", "hit_rate@2", "ndcg@2"], 2 / 3))


def test_a_fold_of_one_class_ranks_that_class():
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(2, random_state=0).fit(X[y == 1], y[y == 1])
    assert Scorer("hit_rate@2")(forest, X, y) == pytest.approx(1 / 3)


def test_labels_say_what_the_ids_are():
    # Label "b" is not among the classes, and "c" is item 2 all the same.
    X, y = np.array([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]]), ["a", "c", "b"]
    recall = tt.LabelRecall(3, k=1, labels=[2])
    assert Scorer(recall, labels=["a", "b", "c"])(told("a", "c"), X, y) == 1
    with pytest.raises(ValueError, match="speaks of labels by id"):
        Scorer(recall)(told("a", "c"), X, y)
    assert Scorer(tt.LabelRecall(3, k=1, labels=[1, 2]), labels=np.array(["a", "b", "c"]))(told("a", "c"), X, y) == 0.5
    assert Scorer(recall, labels=["c", "b", "a"])(told("a", "c"), X, ["a", "c", "c"]) == 1
    assert Scorer(tt.LabelRecall(2, k=1, labels=[0]), labels=["c", "a"])(told("a", "c"), X, ["a", "c", "c"]) == 0.5


def test_metrics_of_labels_score(digits):
    X, y = digits
    found = cross_validate(
        GaussianNB(),
        X,
        y,
        cv=FOLDS,
        scoring={"ours": Scorer(tt.LabelFBeta(10, k=1, average="macro", zero_division=0)), "theirs": "f1_macro"},
    )
    np.testing.assert_allclose(found["test_ours"], found["test_theirs"], rtol=1e-12)
    report = tt.LabelReport(10, k=[1, 3])
    scores = Scorer(report)(GaussianNB().fit(X, y), X, y)
    assert list(scores) == [f"{name}@{k}" for name in ("precision", "recall", "f1") for k in (1, 3)]
    assert scores["f1@1"] == pytest.approx(f1_score(y, GaussianNB().fit(X, y).predict(X), average="macro"))


def test_a_column_of_labels_is_labels():
    assert Scorer("precision@1")(told(0, 1), np.eye(2), np.array([[0], [1]])) == 1


# Indicators.


def by_hand(Y, scores, k):
    """Precision at k, equal scores in order of their columns."""
    first = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(Y, first, axis=1).mean()


def of_ones(estimator, X):
    """The probability of a 1, from a list of arrays."""
    return np.stack([p[:, 1] for p in estimator.predict_proba(X)], axis=1)


LABELLERS = {
    "margins one by one": (OneVsRestClassifier(RidgeClassifier()), lambda model, X: model.decision_function(X)),
    "margins": (RidgeClassifier(), lambda model, X: model.decision_function(X)),
    "probabilities one by one": (OneVsRestClassifier(GaussianNB()), lambda model, X: model.predict_proba(X)),
    "probabilities": (MLPClassifier((8,), max_iter=30, random_state=0), lambda model, X: model.predict_proba(X)),
    "a forest's list": (RandomForestClassifier(7, random_state=0), of_ones),
    "neighbours' list": (KNeighborsClassifier(5), of_ones),
    "a list of one's own": (MultiOutputClassifier(GaussianNB()), of_ones),
    "a tree's list": (make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3, random_state=0)), of_ones),
}


@pytest.mark.parametrize("form", LABELLERS)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer:UserWarning")
def test_labels_are_ranked_whatever_form_their_scores_have(tags, form):
    (estimator, scores), (X, Y) = LABELLERS[form], tags
    model = clone(estimator).fit(X[:100], Y[:100])
    X, Y = X[100:], Y[100:]
    expected = by_hand(Y, scores(model, X), 2)
    assert 0.2 < expected < 1
    scorer = Scorer("precision@2")
    for truth in (Y, Y.astype(bool), Y.astype(float), csr_array(Y), coo_matrix(Y), Y.tolist()):
        assert scorer(model, X, truth) == pytest.approx(expected, rel=1e-12)


def test_multilabel_ndcg_is_ndcg_score(tags):
    theirs = make_scorer(ndcg_score, response_method="decision_function", k=3)
    model = RidgeClassifier()
    found = cross_validate(model, *tags, scoring={"ours": Scorer("ndcg@3"), "theirs": theirs}, cv=FOLDS)
    np.testing.assert_allclose(found["test_ours"], found["test_theirs"], rtol=1e-9)
    skipping = cross_val_score(model, *tags, scoring=Scorer("ndcg@3", empty="skip"), cv=FOLDS)
    assert (skipping > found["test_ours"]).all()


def test_a_search_takes_sparse_indicators(tags):
    X, Y = tags
    grid = {"estimator__alpha": [1.0, 1e4]}
    found = [
        GridSearchCV(OneVsRestClassifier(RidgeClassifier()), grid, scoring=Scorer("ndcg@3"), cv=FOLDS)
        .fit(X, truth)
        .cv_results_["mean_test_score"]
        for truth in (Y, csr_array(Y))
    ]
    np.testing.assert_allclose(*found)
    assert found[0][0] != found[0][1]


def test_a_label_that_no_training_row_holds_comes_last(tags):
    # Its probabilities are one column, of 0: taken for the last column's, as make_scorer has it, it would come first.
    X, Y = tags
    Y = Y.copy()
    Y[:100, 3], Y[:100, 4] = 0, 1
    for estimator in (RandomForestClassifier(7, random_state=0), KNeighborsClassifier(5)):
        model = estimator.fit(X[:100], Y[:100])
        probabilities = model.predict_proba(X[100:])
        ones = np.stack([p[:, 1] if p.shape[1] == 2 else np.full(60, j == 4) for j, p in enumerate(probabilities)], 1)
        assert Scorer("precision@2")(model, X[100:], Y[100:]) == pytest.approx(by_hand(Y[100:], ones, 2))
        assert Scorer("precision@1")(model, X[100:], np.eye(6)[[3] * 60]) == 0
        assert Scorer("precision@1")(model, X[100:], np.eye(6)[[4] * 60]) > 0.5
    one_vs_rest = OneVsRestClassifier(GaussianNB())
    with pytest.warns(UserWarning, match="present in all training examples"):
        one_vs_rest.fit(X[:100], Y[:100])
    last = Scorer("hit_rate@5", response_method="predict_proba")
    assert last(one_vs_rest, X[100:], np.eye(6)[[3] * 60]) == 0


def test_a_regressor_ranks_its_outputs(tags):
    X, Y = tags
    grades = Y * np.arange(1, 7)
    theirs = make_scorer(ndcg_score, response_method="predict", k=3)
    scoring = {"ours": Scorer("ndcg@3", response_method="predict"), "theirs": theirs}
    found = cross_validate(LinearRegression(), X, grades, scoring=scoring, cv=FOLDS)
    np.testing.assert_allclose(found["test_ours"], found["test_theirs"], rtol=1e-9)


# Weights.


def test_sample_weight_weighs_rows(digits):
    X, y = digits
    weight = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    model = GaussianNB().fit(X, y)
    hits = top_k_accuracy_score(y, model.predict_proba(X), k=2, sample_weight=weight)
    assert Scorer("hit_rate@2", ties="reverse")(model, X, y, sample_weight=weight) == pytest.approx(hits, rel=1e-12)
    assert Scorer("hit_rate@2", ties="reverse")(model, X, y, weight.tolist()) == pytest.approx(hits, rel=1e-12)
    assert Scorer("hit_rate@2", ties="reverse")(model, X, y) != pytest.approx(hits, rel=1e-3)


def test_weights_are_routed_to_the_scorer_that_asks(digits):
    X, y = digits
    weight = np.random.default_rng(0).random(len(y))
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), GaussianNB().set_fit_request(sample_weight=False))
        theirs = make_scorer(top_k_accuracy_score, response_method="predict_proba", k=3)
        scoring = {
            "weighted": Scorer("hit_rate@3", ties="reverse").set_score_request(sample_weight=True),
            "named": Scorer("hit_rate@3", ties="reverse").set_score_request(sample_weight="other"),
            "plain": Scorer("hit_rate@3", ties="reverse").set_score_request(sample_weight=False),
            "theirs": theirs.set_score_request(sample_weight=True),
        }
        model[0].set_fit_request(sample_weight=False)
        params = {"sample_weight": weight, "other": np.ones(len(y))}
        found = cross_validate(model, X, y, scoring=scoring, cv=FOLDS, params=params)
        np.testing.assert_allclose(found["test_weighted"], found["test_theirs"], rtol=1e-12)
        np.testing.assert_allclose(found["test_named"], found["test_plain"], rtol=1e-12)
        assert (found["test_weighted"] != found["test_plain"]).all()

        alone = GridSearchCV(model, {}, scoring=scoring["weighted"], cv=FOLDS)
        alone = clone(alone).fit(X, y, sample_weight=weight)
        assert alone.best_score_ == pytest.approx(found["test_weighted"].mean(), rel=1e-12)

        unasked = {"scoring": Scorer("hit_rate@3"), "params": {"sample_weight": weight}, "cv": FOLDS}
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_validate(model, X, y, **unasked)


def test_without_routing_a_search_hands_weights_on_as_to_other_scorers(digits):
    X, y = digits
    weight = np.random.default_rng(0).random(len(y))
    theirs = make_scorer(top_k_accuracy_score, response_method="predict_proba", k=3)
    scoring = {"ours": Scorer("hit_rate@3", ties="reverse"), "theirs": theirs}
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, scoring=scoring, refit="ours", cv=FOLDS)
    found = search.fit(X, y, sample_weight=weight).cv_results_
    np.testing.assert_allclose(found["mean_test_ours"], found["mean_test_theirs"], rtol=1e-12)


def test_routing_must_be_enabled():
    with pytest.raises(RuntimeError, match=r"set_config\(enable_metadata_routing=True\)"):
        Scorer("mrr").set_score_request(sample_weight=True)


# As objects.


def test_a_scorer_survives_copies_and_processes(digits):
    scorer = Scorer(["ndcg@3", tt.HitRate(k=2)], ties="reverse")
    model = GaussianNB().fit(*digits)
    expected = scorer(model, *digits)
    for copy in (pickle.loads(pickle.dumps(scorer)), clone(scorer, safe=False)):
        assert copy(model, *digits) == expected
        assert repr(copy) == repr(scorer)
    with config_context(enable_metadata_routing=True):
        asked = Scorer("mrr").set_score_request(sample_weight="w")
        for copy in (asked, pickle.loads(pickle.dumps(asked)), clone(asked, safe=False)):
            assert copy.get_metadata_routing().score.requests == {"sample_weight": "w"}
        assert Scorer("mrr").get_metadata_routing().score.requests == {"sample_weight": None}


def test_two_jobs_give_the_scores_of_one(digits):
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-1]}, scoring=Scorer("ndcg@3"), cv=FOLDS)
    one, two = (clone(search).set_params(n_jobs=n).fit(*digits).cv_results_["mean_test_score"] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_permutation_importance_takes_several(digits):
    X, y = digits
    found = permutation_importance(GaussianNB().fit(X, y), X, y, scoring=Scorer(["ndcg@3", "mrr"]), n_repeats=1)
    assert list(found) == ["ndcg@3", "mrr"]


@pytest.mark.parametrize(
    ("scorer", "shown"),
    [
        (Scorer("ndcg@3"), "Scorer('ndcg@3')"),
        (Scorer(["ndcg", "mrr"], k=3, ties="reverse"), "Scorer(['ndcg', 'mrr'], k=3, ties='reverse')"),
        (Scorer(tt.NDCG(k=3, gain="exp")), "Scorer(NDCG(k=3, gain='exp', ideal='relevant'))"),
        (
            Scorer("mrr", response_method="predict", labels=["a"]),
            "Scorer('mrr', response_method='predict', labels=['a'])",
        ),
        (Scorer("mrr", k=np.array([1, 2])), "Scorer('mrr', k=array([1, 2]))"),
    ],
)
def test_repr_makes_it_again(scorer, shown):
    assert repr(scorer) == shown


def test_routing_needs_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match="Metadata routing needs scikit-learn: pip install scikit-learn"):
        Scorer("mrr").set_score_request(sample_weight=True)


# What is refused.


@pytest.mark.parametrize(
    ("metrics", "options", "error", "said"),
    [
        ("ndgc@3", {}, ValueError, "'ndgc' is no metric. Did you mean 'ndcg'?"),
        ("ndcg@3", {"tie": "reverse"}, TypeError, "no option 'tie'. Did you mean 'ties'?"),
        (tt.NDCG(k=3), {"ties": "reverse"}, TypeError, "ties must be given to the metric, NDCG(k=3"),
        (
            tt.NDCG(k=[1, 3]),
            {},
            ValueError,
            "NDCG(k=[1, 3], gain='linear', ideal='relevant') gives 2 at once: give it one k",
        ),
        (tt.LabelRecall(4, k=3, average=None), {}, ValueError, "gives 4 at once: give it one k and an average"),
        (3, {}, TypeError, "metrics must be names, metrics"),
        ("mrr", {"response_method": ()}, TypeError, "response_method must be the name of a method, or several, but"),
        (
            "mrr",
            {"response_method": 3},
            TypeError,
            "response_method must be the name of a method, or several, but is 3",
        ),
        ("mrr", {"labels": ["a", "b", "a"]}, ValueError, "labels must hold each label only once, but are ['a', 'b', "),
    ],
)
def test_what_makes_no_scorer(metrics, options, error, said):
    with pytest.raises(error) as raised:
        Scorer(metrics, **options)
    assert said in str(raised.value)


class Nameless(BaseEstimator):
    def predict_proba(self, X):
        return X


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (SVC(decision_function_shape="ovo"), "scores the 6 pairs of 4 classes, not the classes: make the estimator"),
        (
            make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
            "decision_function of SVC scores the 6 pairs",
        ),
    ],
)
def test_scores_of_pairs_are_refused(digits, estimator, said):
    X, y = digits
    with pytest.raises(ValueError, match=said):
        Scorer("mrr")(estimator.fit(X[y < 4], y[y < 4]), X, y)


def test_scores_of_three_pairs_are_refused_too():
    # Three classes have three pairs, so that the columns do not tell.
    X, y = load_iris(return_X_y=True)
    by_pair = SVC(decision_function_shape="ovo")
    for estimator in (by_pair, make_pipeline(StandardScaler(), by_pair), GridSearchCV(by_pair, {})):
        with pytest.raises(ValueError, match="scores the 3 pairs of 3 classes"):
            Scorer("mrr")(estimator.fit(X, y), X, y)
    chosen = GridSearchCV(by_pair, {"decision_function_shape": ["ovr"]}).fit(X, y)
    assert Scorer("hit_rate@1")(chosen, X, y) > 0.9


@pytest.mark.parametrize(
    ("estimator", "y", "options", "error", "said"),
    [
        (told(0, 1), [0, 1], {"response_method": "predict"}, ValueError, "predict of Told gives labels, which have no"),
        (told(0, 1), [0, 1], {"response_method": "rate"}, AttributeError, "Told has no rate, which a ranking is made"),
        (LinearRegression(), [0, 1], {}, AttributeError, "LinearRegression has no decision_function or predict_proba,"),
        (Nameless(), [0, 1], {}, AttributeError, "Nameless has no classes_, which say what label each column"),
        (told("a", "b"), [0, 1], {}, TypeError, "y holds 0, but classes_ of Told 'a': give both alike."),
        (told(0, 1), ["0", "1"], {}, TypeError, "y holds '0', but classes_ of Told 0: give both alike."),
        (told(0, 1, 2, 3), [0, 1], {}, ValueError, "of Told has shape (2, 2), but there are 4 classes: expected a col"),
        (told(0, 1), [0, 1, 1], {}, ValueError, "target of shape (3,)"),
        (told(0, 1), [0, 2], {"labels": [0, 1]}, ValueError, "labels lack 2, but Told or y has it: give them all."),
        (told(0, 1), [0, 0], {"labels": [0, 2]}, ValueError, "labels lack 1, but Told or y has it: give them all."),
        (told(0, 1), [[0, 1], [1, 1]], {"labels": [0, 1]}, ValueError, "labels is for one label a row, but y of shape"),
        (
            told(0, 1),
            np.ones((2, 3)),
            {},
            ValueError,
            "y has shape (2, 3), but decision_function of Told gives (2, 2):",
        ),
        (
            told(0, 1),
            np.ones((2, 2, 2)),
            {},
            ValueError,
            "y must be labels (n,) or indicators (n, L), but has shape (2",
        ),
    ],
)
def test_what_cannot_be_scored(estimator, y, options, error, said):
    with pytest.raises(error) as raised:
        Scorer("mrr", **options)(estimator, np.eye(2), y)
    assert said in str(raised.value)


def test_outputs_of_several_classes_are_refused(tags):
    X, Y = tags
    kinds = np.column_stack([Y[:, 0], Y[:, :3].sum(1)])
    forest = RandomForestClassifier(2, random_state=0).fit(X, kinds)
    with pytest.raises(
        ValueError, match=r"output 1 of RandomForestClassifier is one of \[0, 1, 2, 3\], but y must hold"
    ):
        Scorer("mrr")(forest, X, kinds)
    with pytest.raises(ValueError, match="RandomForestClassifier has 2 outputs, but y has one label a row"):
        Scorer("mrr")(forest, X, kinds[:, 0])


def test_a_search_says_why_a_score_failed():
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(SVC(decision_function_shape="ovo"), {}, scoring=Scorer("mrr"), cv=FOLDS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
    assert "scores the 3 pairs of 3 classes" in str(caught[0].message)
    assert np.isnan(search.cv_results_["mean_test_score"]).all()


def test_faults_in_scores_are_raised():
    with pytest.raises(tt.InputError, match="1 query has a NaN score"):
        Scorer("mrr")(told(0, 1), np.array([[np.nan, 1.0], [0.0, 1.0]]), [0, 1])
    assert Scorer("mrr", non_finite="last")(told(0, 1), np.array([[np.nan, 1.0], [0.0, 1.0]]), [1, 1]) == 1


def test_labels_by_id_need_all_of_them_or_their_names() -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    model = LogisticRegression().fit(X[y != 1], y[y != 1])
    for metric in (tt.LabelRecall(3, k=1), tt.PSP(1, propensities=np.ones(3))):
        with pytest.raises(ValueError, match="speaks of labels by id, and LogisticRegression knows 2, but not 1"):
            Scorer(metric)(model, X, y)
    assert 0 <= Scorer(tt.LabelRecall(3, k=1), labels=[0, 1, 2])(model, X, y) <= 1
    with pytest.raises(ValueError, match="NaN or None"):
        Scorer("recall@1")(model, X, np.where(y == 0, np.nan, y))
