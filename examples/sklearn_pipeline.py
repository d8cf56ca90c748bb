"""A pipeline on mixed columns
===========================

1000 loans as a bank may hold them: two categories, numbers of which some are missing, one bad loan in six. An AUC score
at the end of the pipeline, beside logistic regression.

``python examples/sklearn_pipeline.py [--out out]`` writes the figure and a report to files.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import RocCurveDisplay
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import pymc_pacauc as pac

ROWS, NEW_ROWS, SHOWN = 1000, 5000, 60


def loans(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "income": rng.lognormal(8.0, 0.5, n),
            "amount": rng.lognormal(9.0, 0.8, n),
            "age": rng.integers(20, 75, n).astype(float),
            "purpose": rng.choice(["car", "house", "business"], n, p=[0.5, 0.3, 0.2]),
            "housing": rng.choice(["own", "rent"], n),
        }
    )
    score = 1.5 * np.log(X["amount"] / X["income"]) - 0.02 * X["age"] + 0.8 * (X["purpose"] == "business")
    bad = score + 0.3 * (X["housing"] == "rent") + 1.5 * rng.logistic(size=n) > 4.6
    X.loc[rng.random(n) < 0.1, "income"] = np.nan
    return X, np.where(bad, "1 bad", "0 good")  # the later label is the positive one, as everywhere in scikit-learn


def pipeline(classifier):
    log = FunctionTransformer(np.log, feature_names_out="one-to-one")
    logs = make_pipeline(SimpleImputer(strategy="median"), log, StandardScaler())
    columns = make_column_transformer(
        (logs, ["income", "amount"]),
        (OneHotEncoder(drop="first", sparse_output=False), ["purpose", "housing"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    return make_pipeline(columns.set_output(transform="pandas"), classifier)


def main(out: Path | None) -> None:
    X, y = loans(ROWS + NEW_ROWS, 1)
    X, new, y, labels = train_test_split(X, y, train_size=ROWS, stratify=y, random_state=1)

    search = GridSearchCV(pipeline(pac.AUCClassifier()), {"aucclassifier__gamma": ["cv", "default"]}, cv=3).fit(X, y)
    ours = search.best_estimator_
    classifier = ours[-1]
    logistic = pipeline(LogisticRegression()).fit(X, y)
    print(f"gamma by cross-validation: {search.best_params_['aucclassifier__gamma']}")
    print(f"AUC on {NEW_ROWS} new rows: {ours.score(new, labels):.3f}")
    called = ours.predict(new) == "1 bad"
    bad = labels == "1 bad"
    print(f"Called bad by Youden: {called[bad].mean():.2f} of the bad, {called[~bad].mean():.2f} of the good")

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for name, model in (("AUCClassifier", ours), ("LogisticRegression", logistic)):
        RocCurveDisplay.from_estimator(model, new, labels, pos_label="1 bad", name=name, ax=left)
    left.set(title="New rows", xlabel="false positive rate", ylabel="true positive rate")
    left.legend(frameon=False, loc="lower right")

    scale = ours[:-1].transform(X).std()
    mean, half = classifier.coef_[0] * scale, 1.645 * classifier.coef_sd_[0] * scale
    order = np.argsort(np.abs(mean.to_numpy()))
    middle.errorbar(mean.iloc[order], np.arange(order.size), xerr=half.iloc[order], fmt="o", color="#0072B2")
    middle.set_yticks(np.arange(order.size), np.array(classifier.feature_names_in_)[order])
    middle.axvline(0, color="grey", linewidth=0.8)
    middle.set(title="Coefficients, 90 % intervals", xlabel="per standard deviation of the column")

    chosen = new.iloc[:SHOWN]
    rows = ours[:-1].transform(chosen)
    score, (low, high) = classifier.decision_function(rows), classifier.predict_interval(rows, 0.9).T
    place = np.argsort(score)
    for label, color in (("0 good", "#0072B2"), ("1 bad", "#D55E00")):
        at = np.flatnonzero(labels[:SHOWN][place] == label)
        here = place[at]
        errors = [score[here] - low[here], high[here] - score[here]]
        right.errorbar(at, score[here], yerr=errors, fmt="o", color=color, markersize=3, linewidth=0.8, label=label[2:])
    right.axhline(0, color="grey", linewidth=0.8)
    right.set(title=f"{SHOWN} new loans, 90 % intervals", xlabel="rank", ylabel="score; above 0 is called bad")
    right.legend(frameon=False, loc="upper left")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "sklearn_pipeline.png", dpi=110)
        classifier.report(out / "sklearn_pipeline.html", title="Loans")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="directory for the figure and the report")
    main(parser.parse_known_args()[0].out)  # notebooks have arguments of their own
