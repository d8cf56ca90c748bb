"""What could go wrong between the engines and people, with its number before and after: docs/develop/reliability.md.

    python -m benchmarks.reliability [--runs 40] [--datasets 500] [--out docs]

Every number under *after* is computed by this script, on data with fixed seeds; those under *before* are what version
0.1 gave on the same or on like data.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_pacauc as pac
from benchmarks import coverage_auc, starts
from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.compat import inference_data
from pymc_pacauc.model.results import dataset_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.problem.provenance import looks_standardized
from tests import fuzzing
from tests.oracles import exact_line

QUIET = {"cores": 1, "random_seed": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}
ROOT = Path(__file__).parents[1]


def refusal(call):
    """The first sentence of the error that a call raises."""
    try:
        call()
    except (TypeError, ValueError, FloatingPointError) as error:
        return f"{type(error).__name__}: {str(error).split('. ')[0].split(': ')[0]}"
    return "no error"


def simulated(seed, n=60, d=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int), rng


# -- results ---------------------------------------------------------------------------------------------------------


def sampled():
    X, y, _ = simulated(3)
    with pm.Model() as model:
        rows, labels = pm.Data("X", X), pm.Data("y", y)
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", rows @ theta, labels, gamma=20.0)
        idata = pm.sample(500, step=pac.TemperingSMC(), chains=2, **QUIET)
    return model, idata, X, y


def fitted_to_something_else(model, idata, X, y):
    before = pac.certificate(idata).auc
    with model:
        pm.set_data({"X": np.tile(X, (40, 1)), "y": np.tile(y, 40)})
    after, answer = pac.certificate(idata).auc, refusal(lambda: pac.certificate(idata, model=model))
    with model:
        pm.set_data({"X": X, "y": y})
    yield "certificate after `pm.set_data` to 40 copies of the rows", "0.395 → 0.695", f"{before:.3f} → {after:.3f}"
    yield "the same with `model=`", "0.695", answer


def sliced(idata):
    def part(selection):
        groups = {name: dataset_of(idata, name).isel(draw=selection) for name in ("posterior", "sample_stats")}
        return inference_data(groups)

    whole = pac.log_evidence(idata).estimate, pac.certificate(idata).auc
    for name, selection, log_z, auc in (
        ("slice(1, None)", slice(1, None), "-11.1 → -4.9", "0.406 → 0.499"),
        ("slice(10, None)", slice(10, None), "-11.1 → NaN", "NaN"),
        ("slice(None, None, 7)", slice(None, None, 7), "—", "—"),
    ):
        found = pac.log_evidence(part(selection)).estimate, pac.certificate(part(selection)).auc
        yield f"log Z of `isel(draw={name})`", log_z, f"{whole[0]:.2f} → {found[0]:.2f}"
        yield f"certificate of `isel(draw={name})`", auc, f"{whole[1]:.3f} → {found[1]:.3f}"


# -- draws -----------------------------------------------------------------------------------------------------------


def started_from_a_fit(runs):
    """E[theta^2] over its exact value, from a fit, of the coefficient that is further off, over independent runs."""
    case = starts.prior_mean(1)
    exact = np.array([marginal.second_moment for marginal in case.marginals])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, light in (("Gaussian base and moves, today's engine otherwise", True), ("today", False)):
            ratios = []
            for seed in range(runs):
                rng = np.random.default_rng(seed)
                with starts.light_tails() if light else warnings.catch_warnings():
                    state = starts.run_tempering(case.from_fit, starts.Settings(particles=1000), rng)
                theta, _ = case.from_fit.finish(state.population, rng)
                ratios.append(np.mean(theta**2, axis=0) / exact)
            mean = np.mean(ratios, axis=0)
            worst = int(np.argmax(np.abs(mean - 1.0)))
            yield name, mean[worst], np.std(ratios, axis=0, ddof=1)[worst] / np.sqrt(runs)


# -- ties and scales -------------------------------------------------------------------------------------------------


def ties():
    wrong, count = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(3, 13))[[0, 1, 2, 0, 1, 2, 0]]
        y, root = np.array([1, 0, 1, 0, 1, 0, 0]), rng.normal(size=(13, 13))
        problem = linear_gaussian_problem(rows, y, 5.0, prior_covariance=root @ root.T)
        w = rng.standard_normal((200, 13))
        whitened = LinearRisk(problem.scores.whitened_design, problem.pairs)
        exact = pac.empirical_risk((problem.prior.color(w) @ rows[:3].T)[:, [0, 1, 2, 0, 1, 2, 0]], y)
        wrong += int(np.sum(np.abs(whitened(w) - exact) > 1e-12))
        count += exact.size
    yield "draws whose risk is wrong, three distinct rows of seven, full covariance", "57 %", f"{wrong / count:.0%}"


def scales():
    rng = np.random.default_rng(4)
    x = rng.normal(size=12)
    y = (x + rng.normal(size=12) < 0).astype(int)
    exact = exact_line(x, y, 10.0, prior_mean=1.5, prior_sd=1.0).log_evidence
    tiny = fit(linear_gaussian_problem(1e-13 * x[:, None], y, 10.0, prior_mean=1.5)).log_evidence
    yield f"EP's log Z with scores of 1e-13 and a prior mean (exact {exact:.2f})", "-1.95 for -4.01", f"{tiny:.2f}"
    X, labels, _ = simulated(5)
    far = linear_gaussian_problem(X, labels, 20.0, offset=1e8 * np.arange(60.0))
    yield "EP with an offset 1e8 prior standard deviations away", "converged, log Z = +1.8e6", refusal(lambda: fit(far))
    yield (
        "`linear_risk` of an infinite theta",
        "0.75",
        refusal(lambda: pac.arrays.linear_risk([np.inf, 0.0], X, labels)),
    )
    yield (
        "`linear_risk` of scores that overflow",
        "0.5",
        refusal(lambda: pac.arrays.linear_risk([1e308, 1e308], X * 10, labels)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rough = fit(linear_gaussian_problem(X, labels, 60.0), "vb", max_sweeps=3)
    bound = -60.0 * rough.expected_risk - rough.divergence
    yield (
        "unconverged VB: reported bound - bound of the q returned",
        "of another q",
        f"{rough.log_evidence - bound:.1e}",
    )


# -- certificates and prediction -------------------------------------------------------------------------------------


def cautions():
    X = np.random.default_rng(2).gamma(2.0, size=(80, 3))
    forms = [
        (X - X.mean(0)) / X.std(0),
        (X - X.mean(0)) / X.std(0, ddof=1),
        X - X.mean(0),
        X / X.std(0),
        (X - X.min(0)) / np.ptp(X, axis=0),
        X / np.abs(X).max(0),
        (X - np.median(X, 0)) / np.subtract(*np.quantile(X, [0.75, 0.25], axis=0)),
        np.argsort(np.argsort(X, axis=0), axis=0).astype(float),
    ]
    found = sum(map(looks_standardized, forms))
    yield (
        "forms of standardisation with the sample that are pointed out",
        f"2 of {len(forms)}",
        f"{found} of {len(forms)}",
    )
    data, y, _ = simulated(6, n=100, d=4)
    with pm.Model() as model:
        scale = pm.Data("scale", [1.0, 1.0])
        theta = pm.Normal("theta", 0.0, scale[[0, 0, 1, 1]], shape=4)
        pac.AUCPotential("auc", data @ theta, y, gamma=50.0)
    tuned = pac.maximize_evidence(model, over=["scale"], progressbar=False)
    yield "certificate of `maximize_evidence(...).approx`", "a number", refusal(lambda: pac.certificate(tuned.approx))
    chosen = pac.select_gamma(model, [5.0, 50.0], folds=2, method="smc", random_seed=1, progressbar=False)
    certified = pac.certificate(chosen, tuned_prior="accept").auc
    yield '`certificate(select_gamma(method="smc").refit)`', "TypeError", f"{certified:.3f}"


def prediction():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 3))
    y = (2 * X[:, 0] + X[:, 1:] @ [1.0, -0.7] + rng.normal(size=400) > 0).astype(int)
    train, test = slice(0, 200), slice(200, None)
    for held in (False, True):
        with pm.Model() as model:
            rows = pm.Data("X", X[train]) if held else X[train]
            theta = pm.Normal("theta", size=2)
            pac.AUCPotential("auc", 2 * rows[:, 0] + rows[:, 1:] @ theta, y[train], gamma=100.0)
            approx = pm.fit(method=pac.EP(), progressbar=False)
        if not held:
            answer = refusal(lambda approx=approx: pac.predict_scores(approx, X[test][:, 1:]))
            yield "test AUC, known offset in the scores, covariates as constants", "0.685 (offset dropped)", answer
        else:
            scores = pac.predict_scores(approx, X[test], summary=True)["mean"]
            yield "the same, covariates in `pm.Data`", "0.885", f"{1 - pac.empirical_risk(scores, y[test]):.3f}"
    import pandas as pd

    with pm.Model(coords={"covariate": ["a", "b", "c"]}):
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X[train] @ theta, y[train], gamma=100.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    frame = pd.DataFrame(X[test], columns=["a", "b", "c"])[["c", "a", "b"]]
    auc = 1 - pac.empirical_risk(pac.predict_scores(approx, frame, summary=True)["mean"], y[test])
    yield "test AUC from a DataFrame with its columns in another order", "0.740", f"{auc:.3f}"
    with pm.Model() as model:
        gamma, scale = pm.Data("gamma", 30.0), pm.Data("scale", 1.0)
        pac.AUCPotential("auc", X[train] @ pm.Normal("theta", 0, scale, size=3), y[train], gamma=gamma)
    answer = refusal(lambda: pac.maximize_evidence(model, over=["gamma"]))
    yield '`maximize_evidence(over=["gamma"])`', "“does not depend on gamma”", answer
    with pm.Model():
        theta, gamma = pm.Normal("theta", size=3), pm.HalfNormal("gamma")
        answer = refusal(lambda: pac.AUCPotential("auc", X @ theta, y, gamma=gamma))
    yield "a random gamma", "accepted, collapses", answer


def sparse():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(600, 81))
    y = np.zeros(600, dtype=int)
    y[np.argsort(-(X[:, :3] @ [1.0, -1.0, 0.8] + rng.normal(size=600)))[:60]] = 1
    with pm.Model():
        theta = pac.SpikeSlab("theta", shape=81)
        pac.AUCPotential("auc", X @ theta, y, gamma=200.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            approx = pm.fit(method=pac.EP(), progressbar=False)
    state = "converged" if approx.converged else "not converged"
    found = f"{approx.log_evidence:.1f}, {state} in {approx.sweeps} sweeps, {len(caught)} warning(s)"
    yield "log Z under `SpikeSlab` at its default p, 60 positives, 81 covariates", "+134.7 (above 0)", found


# -- the page --------------------------------------------------------------------------------------------------------

FIXED_BY_TESTS = (
    (
        "Labels and inputs",
        "right, or a clear error: `positive=` as an array, masked arrays, NaT, large integers, zero draws, files",
        "tests/comparison/test_pairs.py, tests/comparison/test_risk.py, tests/datasets/test_loaders.py",
    ),
    (
        "Read-only installation, no home, a full or damaged cache",
        "kernels compile without a cache, one warning with the remedy",
        "tests/test_faults.py",
    ),
    (
        "Ctrl-C in `pm.fit(method=pac.EP())`",
        "returns the approximation so far, marked unconverged",
        "tests/test_fitting.py",
    ),
    ("EP in several threads", "BLAS threads are left as they were found", "tests/test_faults.py"),
    (
        "Every result by every analysis function",
        "works, or refuses in the same words",
        "tests/analysis/test_contract.py",
    ),
    (
        "Selections, joins and files of draws",
        "the same evidence, path and certificate",
        "tests/model/test_results.py",
    ),
)


def table(rows, header=("what", "before", "after")):
    yield "| " + " | ".join(header) + " |"
    yield "|---|" + "---|" * (len(header) - 1)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def page(runs, datasets):
    yield "# Reliability"
    yield ""
    yield "Written by `make reliability` (`benchmarks/reliability.py`): what people do with results, what comes of it."
    yield "*After* is measured by the script. *Before* is what version 0.1 gave, on like data, not always the same:"
    yield "compare what happens, not the digits."
    yield ""
    model, idata, X, y = sampled()
    for title, rows in (
        ("A result knows what it was fitted to", fitted_to_something_else(model, idata, X, y)),
        ("Slicing and thinning", sliced(idata)),
        ("Ties", ties()),
        ("Scales", scales()),
        ("Certificates", cautions()),
        ("Prediction and gamma", prediction()),
        ("Spike and slab", sparse()),
    ):
        yield f"## {title}"
        yield ""
        yield from table(rows)
        yield ""
    yield "## Draws from a start at a fit"
    yield ""
    yield f"E[theta²] over its exact value, prior mean, n = 16, d = 2, gamma = 20, N = 1000, {runs} runs, the"
    yield "coefficient that is further off; see `python -m benchmarks.starts` for other data, d = 1, a Laplace prior,"
    yield "integer covariates and the time."
    yield ""
    measured = [("version 0.1, 200 runs", "0.919 ± 0.007")]
    measured += [(name, f"{ratio:.3f} ± {error:.3f}") for name, ratio, error in started_from_a_fit(runs)]
    yield from table(measured, ("base", "ratio"))
    yield ""
    yield "## Coverage of DeLong's interval"
    yield ""
    cells = [cell for row in coverage_auc.measure_all(datasets) for cell in row]
    yield f"Nominal 0.95, {len(cells)} cells of four shapes, class sizes 5 to 1000 and AUC 0.5 to 0.995, {datasets}"
    yield "data sets each (`python -m benchmarks.coverage_auc`)."
    yield ""
    yield from table(coverage_rows(cells), ("interval", "lowest coverage", "mean coverage", "mean width"))
    yield ""
    yield "## Held by tests"
    yield ""
    yield from table(FIXED_BY_TESTS, ("what", "what happens", "tests"))
    yield ""
    yield from fuzz_lines()


def coverage_rows(cells):
    for name, covered, width in (
        ("before: logit DeLong", "logit_coverage", "logit_width"),
        ("after", "coverage", "width"),
    ):
        coverages = [getattr(cell, covered) for cell in cells]
        widths = [getattr(cell, width) for cell in cells]
        yield name, f"{min(coverages):.3f}", f"{np.mean(coverages):.3f}", f"{np.mean(widths):.3f}"


def fuzz_lines():
    """How many properties there are, of how many public names."""
    properties = fuzzing.fuzzed()
    names = sorted({name for names, _ in properties.values() for name in names})
    of_names = {name: sum(name in about for about, _ in properties.values()) for name in names}
    yield (
        f"Fuzzing: {len(properties)} properties of {len(names)} public names, up to {fuzzing.FAST} examples each in "
        f"`make test`, {fuzzing.SLOW} in `make slow`;"
    )
    yield "`tests/test_fuzzing.py` fails where a public name has none. Names, with the number of their properties:"
    yield ", ".join(f"`{name}`" + (f" ({count})" if count > 1 else "") for name, count in of_names.items()) + "."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40, help="SMC runs from a fit")
    parser.add_argument("--datasets", type=int, default=500, help="simulated data sets for each coverage")
    parser.add_argument("--out", type=Path, default=Path("docs/develop"))
    arguments = parser.parse_args()
    lines = []
    for line in page(arguments.runs, arguments.datasets):
        print(line, flush=True)
        lines.append(line)
    (arguments.out / "reliability.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
