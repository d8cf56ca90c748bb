"""Run every benchmark and write what they print to docs/benchmarks.md.

    python -m benchmarks.report [--only quality smc ...] [--out docs]

Each script runs by itself too. What they print is kept under out/benchmarks, so that ``--only`` renews one and keeps
the others. Lines that begin with Won, Lost or Even go to the top of the page.
"""

import argparse
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = {
    "quality": ("Held-out AUC", []),
    "imbalance": ("Rare positives: AUC risk against log-loss", []),
    "growth": ("Growth of the time of one fit", ["--figures", "docs/figures"]),
    "memory": ("Memory of one fit", []),
    "risk": ("The exact risk", []),
    "ep": ("Expectation propagation", []),
    "smc": ("Tempering SMC", []),
    "certificates": ("Certificates", ["--datasets", "200", "--largest", "5000"]),
    "hierarchy": ("Coefficients by stratum", []),
    "priors": ("Three priors", []),
    "processes": ("Gaussian processes at scale", ["latent", "whole", "hsgp", "lengthscales"]),
    "kernels": ("Kernel features", []),
}
VERDICTS = {"Won": "What we win", "Lost": "What we lose", "Even": "Where there is no difference"}
PACKAGES = (
    *("numpy", "scipy", "numba", "pymc", "scikit-learn", "xgboost", "libauc", "torch"),
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
        f"{processor}, {os.cpu_count()} cores (shared with other work), {memory:.0f} GB; Python "
        f"{platform.python_version()}; {', '.join(found)}."
    )


def cpu_info():
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def section(title, command, printed):
    lines = [line for line in printed.strip().splitlines() if not line.startswith(tuple(f"{v}: " for v in VERDICTS))]
    lines = [f"#{line}" if line.startswith("##") else line for line in lines]  # under this section's own heading
    return f"## {title}\n\n`{command}`\n\n" + "\n".join(lines).strip() + "\n"


def summary(printed):
    """The verdicts of all scripts, sorted by their outcome."""
    lines = []
    for verdict, title in VERDICTS.items():
        found = [line for text in printed for line in text.splitlines() if line.startswith(f"{verdict}: ")]
        if found:
            lines += [f"### {title}", "", *(f"- {line.removeprefix(f'{verdict}: ')}" for line in found), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*SCRIPTS, "nothing"])
    parser.add_argument("--out", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    kept = Path("out/benchmarks")
    kept.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, (_, options) in SCRIPTS.items():
        if arguments.only is None or name in arguments.only:
            print(f"benchmarks/{name}.py", flush=True)
            done = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}", *options], stdout=subprocess.PIPE, text=True
            )
            if done.returncode:
                failed.append(f"benchmarks/{name}.py")
            else:
                (kept / f"{name}.md").write_text(done.stdout)
    printed = {name: (kept / f"{name}.md").read_text() for name in SCRIPTS if (kept / f"{name}.md").exists()}
    sections = []
    for name, text in printed.items():
        title, options = SCRIPTS[name]
        sections.append(section(title, " ".join(["python", f"benchmarks/{name}.py", *options]), text))
    missing = [f"`benchmarks/{name}.py`" for name in SCRIPTS if name not in printed]
    if missing:
        sections.append(f"Not run this time: {', '.join(missing)}.\n")
    head = f"""# Benchmarks

Written by `make bench` (`benchmarks/report.py`), in an environment of its own with the peers that
`benchmarks/requirements-peers.txt` pins. One thread; competitors take turns. Ratios and exponents mean more than
seconds, which are those of this machine: {machine()}

EP-AUC chooses gamma as on the [page that reproduces the paper](reproduction.md), by the expected AUC of a drawn score;
*gamma by the mean score* is what `pac.select_gamma` does.

## In short

{summary(printed.values())}"""
    (arguments.out / "benchmarks.md").write_text("\n".join([head, *sections]))
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
