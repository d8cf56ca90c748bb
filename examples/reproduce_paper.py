"""Tables 1 and 2 and Figures 1 to 3 of Ridgway, Alquier, Chopin and Liang (2014), with the paper's digits beside ours.

    python -m examples.reproduce_paper [--colon colon.csv] [--only pima spect ...] [--out docs]

Writes ``theory/reproduction.md`` and ``figures/paper_figure_*.png`` under ``--out``. One thread; about twenty minutes.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
from pathlib import Path

from examples.paper.cases import cases
from examples.paper.figures import figure_1, figure_2, figure_3
from examples.paper.outcomes import run
from examples.paper.page import figures_text, page


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--colon", type=Path, help="CSV file of the colon data, which are not shipped")
    parser.add_argument("--only", nargs="+", help="names of data sets")
    parser.add_argument("--no-figures", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    figures = arguments.out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for name, case in cases(arguments.colon).items():
        if arguments.only is None or name in arguments.only:
            outcomes[name] = outcome = run(case)
            print(f"{name}:", ", ".join(f"{method} {outcome.auc(method).mean():.4f}" for method in outcome.results))
    drawn = "Figures were not asked for."
    if not arguments.no_figures and "pima" in outcomes:
        marginals = figure_1(outcomes["pima"].chosen("EP-AUC")["gamma"], figures / "paper_figure_1.png")
        figure_2(outcomes, figures / "paper_figure_2.png")
        drawn = figures_text(marginals, figure_3(figures / "paper_figure_3.png"))
    (arguments.out / "theory" / "reproduction.md").write_text(page(outcomes, drawn))


if __name__ == "__main__":
    main()
