"""Run every benchmark; write what they print to docs/theory/benchmark_tables.md, verdicts to benchmarks.md beside it.

    python -m benchmarks.report [--only quality smc ...] [--jobs 2] [--out docs]

Each script runs by itself too. ``--only`` renews their sections and keeps the others as they are on the page of tables.
Both pages are written after every script. Scripts keep to one thread, so as many as there are cores can run side by
side. Lines that begin with Won, Lost or Even are verdicts; in the sections of tables they stand in comments.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = {
    "quality": ("Held-out AUC", []),
    "defaults": ("AUCClassifier as it comes", ["--variants"]),
    "estimator_time": ("Time of AUCClassifier", []),
    "imbalance": ("Rare positives: AUC risk against log-loss", []),
    "growth": ("Growth of the time of one fit", ["--figures", "docs/figures"]),
    "overhead": ("What PyMC's interface costs on small data", []),
    "memory": ("Memory of one fit", []),
    "risk": ("The exact risk", []),
    "ep": ("Expectation propagation", []),
    "smc": ("Tempering SMC", []),
    "certificates": ("Certificates", ["--datasets", "50", "--plot", "docs/figures/certificates.png"]),
    "survival": ("Censored times", []),
    "ordered": ("Ordered classes and strata", []),
    "weights_cost": ("What weights of pairs cost", []),
    "hierarchy": ("Coefficients by stratum", []),
    "priors": ("Three priors", []),
    "processes": ("Gaussian processes at scale", ["latent", "whole", "hsgp", "lengthscales"]),
    "kernels": ("Kernel features", []),
}
VERDICTS = {"Won": "What we win", "Lost": "What we lose", "Even": "Where there is no difference"}
PACKAGES = (
    *("numpy", "scipy", "numba", "pymc", "scikit-learn", "scikit-survival", "statsmodels"),
    *("xgboost", "libauc", "torch"),
    *("nutpie", "particles", "blackjax"),
)


def machine():
    """Processor, cores, memory and versions."""
    names = [line.split(":")[1].strip() for line in cpu_info() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    processor = names[0] if names else platform.processor() or platform.machine()
    return (
        f"{processor}, {os.cpu_count()} cores, {memory:.0f} GB; Python {platform.python_version()}; {', '.join(found)}."
    )


def cpu_info():
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def section(title, command, printed):
    lines = []
    for line in printed.strip().splitlines():
        if line.startswith(tuple(f"{verdict}: " for verdict in VERDICTS)):
            lines.append(f"<!-- {line} -->")
        else:
            lines.append(f"### {line.lstrip('# ')}" if line.startswith("##") else line)  # under the section's own
    return f"## {title}\n\n`{command}`\n\n" + "\n".join(lines) + "\n"


def printed_before(page):
    """What the scripts had printed when the page was written, by the titles of their sections."""
    found = {}
    usual = re.search(r"^Unless a section names another machine: (.*)$", page, flags=re.MULTILINE)
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        _, _, body = body.strip().partition("\n\n")  # the command
        if usual and not body.startswith("On "):
            body = f"On {usual[1]}\n\n{body}"
        body = re.sub(r"^<!-- (.*) -->$", r"\1", body, flags=re.MULTILINE)
        found[title] = re.sub(r"^###+", "##", body, flags=re.MULTILINE)
    return found


def summary(printed):
    """The verdicts of all scripts, sorted by their outcome."""
    lines = []
    for verdict, title in VERDICTS.items():
        found = [line for text in printed for line in text.splitlines() if line.startswith(f"{verdict}: ")]
        if found:
            lines += [f"### {title}", "", *(f"- {line.removeprefix(f'{verdict}: ')}" for line in found), ""]
    return "\n".join(lines)


def run(name):
    """What a script prints, under the machine it ran on; None if it failed."""
    print(f"benchmarks/{name}.py", flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", *SCRIPTS[name][1]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    outcome = "failed" if done.returncode else "done"
    print(f"benchmarks/{name}.py: {outcome} after {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    return None if done.returncode else f"On {machine()}\n\n{done.stdout}"


def written(printed):
    """The page of results and the page of tables, of what scripts have printed, by their names."""
    sections = []
    machines = Counter(text.split("\n")[0] for text in printed.values() if text.startswith("On "))
    usual = machines.most_common(1)[0][0] if machines else "On one not known."
    for name, (title, options) in SCRIPTS.items():
        if name in printed:
            command = " ".join(["python", "-m", f"benchmarks.{name}", *options])
            sections.append(section(title, command, printed[name].removeprefix(f"{usual}\n\n")))
    missing = [f"`benchmarks/{name}.py`" for name in SCRIPTS if name not in printed]
    not_run = f"Not run yet: {', '.join(missing)}.\n\n" if missing else ""
    results = f"""# Results

A linear score by EP ranks new rows as well as logistic regression and Cox's model, or a little better; boosted trees
are ahead where covariates interact (dna). A fit takes longer than one of logistic regression and, for a Gaussian
process, than GaussianProcessClassifier; draws by tempering SMC take less work than by the samplers it is compared
with. Peers, data and numbers are in the [tables](benchmark_tables.md), which `make bench` writes, as this page.

## Ranking new rows

Held-out AUC, of censored times concordance, means over 20 random splits; *better* and *worse* than ours where a paired
test says so at 5 %:

```{{include}} ../../README.md
:start-after: <!-- learners: from docs/theory/benchmark_tables.md, by python -m benchmarks.readme -->
:end-before: "- **Logistic regression, Cox** when"
```

## Time

![CPU seconds of one fit against rows and covariates](../figures/growth.png)

*CPU seconds of one fit, one thread, against rows (10 columns) and columns (500 rows): EP, its peers, and the paper's
EP, written plainly. EP-AUC uses all pairs up to 1000 rows, and a subsample beyond ([many rows](subsampled_pairs.md)).*

## Certificates

![Certified AUC against rows](../figures/certificates.png)

*What each bound certifies of the same posterior, means over data sets of two Gaussian classes.
[How tight, and how often they failed](certificates.md#how-tight-and-how-often-they-failed).*

## Verdicts

Of all sections of the tables; "ahead" and "behind" where a paired test rejects at 5 %. EP-AUC chooses gamma as on the
[page that reproduces the paper](reproduction.md), by the expected AUC of a drawn score; *gamma by the mean score* is
what `pac.select_gamma` does.

{summary([printed[name] for name in SCRIPTS if name in printed])}"""
    tables = f"""# Tables of all benchmarks

Written by `make bench` (`benchmarks/report.py`), in an environment of its own with the peers that
`benchmarks/requirements-peers.txt` pins. One thread; competitors take turns. Ratios and exponents mean more than
seconds. The [results in short](benchmarks.md).

Unless a section names another machine: {usual.removeprefix("On ")}

EP-AUC chooses gamma as on the [page that reproduces the paper](reproduction.md), by the expected AUC of a drawn score;
*gamma by the mean score* is what `pac.select_gamma` does.

{not_run}"""
    return results, tables + "\n".join(sections)


def write(printed, results, page):
    for path, text in zip((results, page), written(printed), strict=True):
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*SCRIPTS, "nothing"])
    parser.add_argument("--jobs", type=int, default=1, help="scripts side by side")
    parser.add_argument("--out", type=Path, default=Path("docs/theory"))
    arguments = parser.parse_args()
    results, page = arguments.out / "benchmarks.md", arguments.out / "benchmark_tables.md"
    before = printed_before(page.read_text()) if page.exists() else {}
    printed = {name: before[title] for name, (title, _) in SCRIPTS.items() if title in before}
    wanted = [name for name in SCRIPTS if arguments.only is None or name in arguments.only]
    failed = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        running = {pool.submit(run, name): name for name in wanted}
        for done in as_completed(running):
            if done.result() is None:
                failed.append(f"benchmarks/{running[done]}.py")
            else:
                printed[running[done]] = done.result()
                write(printed, results, page)
    write(printed, results, page)
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
