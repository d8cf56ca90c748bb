"""Mutants: small faults put into the source one at a time; how many of them a test notices.

    python -m benchmarks.mutation --watch lines.json [pytest ...]     once: which tests run which lines (Python 3.12)
    python -m benchmarks.mutation lines.json [--each 20] [--seed 24]  sample mutants, and run the tests of their lines

A mutant is one of: a comparison changed (< to <=, == to !=), an operator changed (+ to -, * to /, and to or), a number
changed (0 to 1, others doubled), also as a default, a condition negated, a keyword argument left out, a statement left
out (a call, a raise, an update, an assignment to an attribute or an item). Not mutated: numbers at the level of a
module, which are choices that change accuracy and time by degrees, texts, annotations, decorators, assertions
(``strict=`` of zip is one) and arguments that no result depends on (``stacklevel=``, ``n_jobs=``, ``check_finite=``).

From each folder ``--each`` mutants are drawn, from ``ep`` twice as many. A mutant is killed if a test that runs its
line fails, quickest first and all files with such a test at last, within ``--budget`` seconds of their usual time; or
if they take much longer. Tests of the lines that call a kernel are those of the kernel. All is done in a copy.
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("certify", "estimator", "ep", "tune")
COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is not": "is", "is": "is not"}
COMPARE |= {"not in": "in", "in": "not in"}
OPERATE = {"+": "-", "-": "+", "*": "/", "/": "*", "**": "*", "//": "/", "%": "//", "&": "|", "|": "&", "@": "+"}
# Arguments that change no result: where a warning points to, an assertion of zip, threads, checks left out.
UNSEEN = ("stacklevel", "strict", "n_jobs", "check_finite")
SLOWER, STARTS = 6.0, 60.0  # times as long as usual, and CPU seconds more, after which a mutant hangs
WAITS = 5.0  # so many times as long by the clock: processes that wait for each other use no CPU
DOCUMENTED = "tests/test_docstrings.py"  # compares defaults with what is said of them
QUICK = 25  # tests of the line, before whole files
ALREADY = ("pymc", "sklearn", "matplotlib", "scipy.stats")  # imported once: ten seconds a mutant


# -- which tests run which lines: a plugin of pytest -----------------------------------------------------------------


def cpu_seconds():
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Watch:
    """Notes the lines of ``FOLDERS`` that each test runs, and how long it takes."""

    def __init__(self, path):
        self.path, self.found, self.seconds, self.now = path, {}, {}, set()
        self.prefixes = tuple(str(ROOT / "pymc_pacauc" / folder) for folder in FOLDERS)
        monitor = sys.monitoring
        monitor.use_tool_id(monitor.COVERAGE_ID, "mutation")
        monitor.register_callback(monitor.COVERAGE_ID, monitor.events.LINE, self.line)
        monitor.set_events(monitor.COVERAGE_ID, monitor.events.LINE)

    def line(self, code, number):
        if code.co_filename.startswith(self.prefixes):
            self.now.add((code.co_filename, number))
        return sys.monitoring.DISABLE

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self.now = set()
        sys.monitoring.restart_events()
        began = cpu_seconds()
        yield
        self.seconds[item.nodeid] = cpu_seconds() - began
        for file, number in self.now:
            place = f"{Path(file).relative_to(ROOT)}:{number}"
            self.found.setdefault(place, []).append(item.nodeid)

    def pytest_sessionfinish(self):
        Path(self.path).write_text(json.dumps({"lines": self.found, "seconds": self.seconds}))


# -- mutants ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """Bytes ``start`` to ``end`` of a file, to be replaced by ``new``."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    new: bytes
    kernel: str  # in which it is, if any

    def shown(self, source):
        old = " ".join(source[self.start : self.end].decode().split())
        return f"{self.path}:{self.line} {self.kind}: {old[:70]!r} -> {self.new.decode().strip()[:70]!r}"


class Mutants(ast.NodeVisitor):
    """All mutants of a file."""

    def __init__(self, path):
        self.path, self.source = path, (ROOT / path).read_bytes()
        self.starts = [0, *(found.end() for found in re.finditer(rb"\n", self.source))]
        self.found, self.inside, self.kernel, self.of_default = [], 0, "", 0
        self.visit(ast.parse(self.source))

    def place(self, node):
        """Where a node begins and ends, in bytes."""
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def add(self, kind, line, start, end, new):
        kind, line = ("default", self.of_default) if self.of_default else (kind, line)
        self.found.append(Mutant(self.path, line, kind, start, end, new.encode(), self.kernel))

    def between(self, left, right, names, kind):
        """Another operator between two nodes; brackets and comments may be there too."""
        start, end = self.place(left)[1], self.place(right)[0]
        words = sorted(names, key=len, reverse=True)
        found = re.search("|".join(map(re.escape, words)), self.source[start:end].decode())
        if found:
            at = start + found.start()
            self.add(kind, left.end_lineno, at, at + len(found[0]), names[found[0]])

    def without(self, node, kind):
        start, end = self.place(node)
        self.add(kind, node.lineno, start, end, "pass" + "\n" * (node.end_lineno - node.lineno))

    def visit_FunctionDef(self, node):
        kernels = [each for each in node.decorator_list if "kernel" in ast.unparse(each)]
        before, self.kernel = self.kernel, node.name if kernels else self.kernel
        self.inside += 1
        self.of_default = node.body[-1].lineno  # whose tests are those of the function: it is evaluated before them
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self.of_default = 0
        for each in node.body:
            self.visit(each)
        self.inside -= 1
        self.kernel = before

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node):
        pass

    def visit_JoinedStr(self, node):
        pass

    def visit_Constant(self, node):
        if self.inside and isinstance(node.value, bool | int | float):
            if isinstance(node.value, bool):
                new = not node.value
            else:
                new = {0: 1, 1: 0}.get(node.value, 2 * node.value)
            self.add("number", node.lineno, *self.place(node), repr(type(node.value)(new)))

    def visit_Compare(self, node):
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            self.between(left, right, COMPARE, "comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if self.inside:
            self.between(node.left, node.right, OPERATE, "operator")
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, {"and": "or", "or": "and"}, "operator")
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        start = self.place(node.operand)[0]
        if isinstance(node.op, ast.Not | ast.USub) and self.inside and not isinstance(node.operand, ast.Constant):
            self.add("sign", node.lineno, self.place(node)[0], start, "")
        self.generic_visit(node)

    def condition(self, node):
        start, end = self.place(node.test)
        old = self.source[start:end].decode()
        self.add("condition", node.test.lineno, start, end, f"(not ({old}))")
        self.generic_visit(node)

    visit_If = visit_IfExp = condition

    def visit_Call(self, node):
        given = sorted([*node.args, *node.keywords], key=lambda each: self.place(each))
        for k, each in enumerate(given):
            if isinstance(each, ast.keyword) and each.arg not in (None, *UNSEEN) and self.inside:
                start, end = self.place(each)
                start = self.place(given[k - 1])[1] if k else start
                end = end if k or len(given) == 1 else self.place(given[1])[0]
                self.add("argument", each.lineno, start, end, "")
        self.generic_visit(node)

    def visit_keyword(self, node):
        if node.arg not in UNSEEN:
            self.generic_visit(node)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call):
            self.without(node, "statement")
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Raise(self, node):
        self.without(node, "statement")

    def visit_AugAssign(self, node):
        self.without(node, "statement")
        self.between(node.target, node.value, {f"{a}=": f"{b}=" for a, b in OPERATE.items()}, "operator")
        self.generic_visit(node)

    def visit_Assign(self, node):
        if self.inside and all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
            self.without(node, "statement")
        self.generic_visit(node)


def sampled(each, seed):
    """So many mutants of each folder, that compile, in random order."""
    chosen = []
    for folder in FOLDERS:
        files = sorted((ROOT / "pymc_pacauc" / folder).glob("*.py"))
        mutants = [mutant for file in files for mutant in Mutants(str(file.relative_to(ROOT))).found]
        random.Random(f"{seed} {folder}").shuffle(mutants)
        number = 2 * each if folder == "ep" else each
        chosen += [mutant for mutant in mutants[: 2 * number] if compiles(mutant)][:number]
        print(f"{folder}: {number} of {len(mutants)} mutants")
    return chosen


def mutated(mutant, source):
    return source[: mutant.start] + mutant.new + source[mutant.end :]


def compiles(mutant):
    try:
        compile(mutated(mutant, (ROOT / mutant.path).read_bytes()), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def lines_that_call(kernel):
    """Lines of Python that name a kernel, or one that calls it."""
    names, lines, done = {kernel}, set(), set()
    while names - done:
        name = min(names - done)
        done.add(name)
        for file in (ROOT / "pymc_pacauc").glob("*/*.py"):
            source = file.read_text()
            for function in ast.walk(ast.parse(source)):
                if not isinstance(function, ast.FunctionDef) or function.name == name:
                    continue
                uses = {each.lineno for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name}
                if uses and any("kernel" in ast.unparse(each) for each in function.decorator_list):
                    names.add(function.name)
                else:
                    lines |= {f"{file.relative_to(ROOT)}:{number}" for number in uses}
    return lines


# -- killing them ----------------------------------------------------------------------------------------------------


def _test(folder, arguments, output, seconds):
    """Run the tests of a copy in this process, for at most so many CPU seconds, and end it."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (round(seconds), round(seconds) + 10))
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    os.chdir(folder)
    sys.path[:] = [str(folder), *(each for each in sys.path if Path(each).resolve() != ROOT)]
    os.environ["PYTHONPATH"] = str(folder)
    for name in [each for each in sys.modules if each.split(".")[0] == "benchmarks"]:
        del sys.modules[name]
    code = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(code)


def run(folder, tests, seconds):
    """What the first test that fails says, "time" if they do not end, and "" else; and how long that took.

    In a child of this process, which has imported ``ALREADY``, and the package not.
    """
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
    began, before = time.perf_counter(), cpu_seconds()
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            try:
                _test(folder, [*options, *tests], output, SLOWER * seconds + STARTS)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(2)
        done, status = 0, 0
        while not done and time.perf_counter() - began < WAITS * (SLOWER * seconds + STARTS):
            time.sleep(0.1)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.killpg(child, 9)
            _, status = os.waitpid(child, 0)
        if not done or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
            return "time", cpu_seconds() - before
        output.seek(0)
        said = output.read()
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR", "E "))]
    return (failed[-1] if failed else said[-200:] or "?") if status else "", cpu_seconds() - before


def tests_for(mutant, watched, budget):
    """Tests of the line, quickest first, and files with such tests, each list within the budget."""
    lines = lines_that_call(mutant.kernel) if mutant.kernel else {f"{mutant.path}:{mutant.line}"}
    seconds = watched["seconds"]
    tests = sorted({test for line in lines for test in watched["lines"].get(line, ())}, key=seconds.get)
    files = Counter(test.split("::")[0] for test in tests)
    near = [test for test in tests if seconds[test] < budget / 4][:QUICK] or tests[:1]
    total = defaultdict(float)
    for test, taken in seconds.items():
        total[test.split("::")[0]] += taken
    chosen, used = [], 0.0
    for file, _ in files.most_common():
        if used + total[file] <= budget:
            chosen.append(file)
            used += total[file]
    documented = [([DOCUMENTED], STARTS)] if mutant.kind == "default" else []
    return documented + [
        (part, sum(seconds[each] for each in part) if part is near else used) for part in (near, chosen) if part
    ]


def study(mutant, copy, fresh, watched, budget):
    target = copy / mutant.path
    shutil.rmtree(copy / "pymc_pacauc")
    shutil.copytree(fresh, copy / "pymc_pacauc")  # with its times, by which compiled kernels are known
    target.write_bytes(mutated(mutant, target.read_bytes()))
    if mutant.kernel:
        for index in (copy / "pymc_pacauc").glob("*/__pycache__/*.nbi"):
            index.unlink()
    taken = 0.0
    parts = tests_for(mutant, watched, budget)
    for tests, seconds in parts:
        why, spent = run(copy, tests, seconds + STARTS * bool(mutant.kernel))
        taken += spent
        if why:
            return "killed", why, taken
    return ("survived" if parts else "no test"), f"{sum(len(part) for part, _ in parts)} tests or files", taken


def main():
    if sys.argv[1:2] == ["--watch"]:
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[3:]], plugins=[Watch(sys.argv[2])]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines")
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    chosen = list(enumerate(sampled(arguments.each, arguments.seed)))
    chosen = [each for each in chosen if arguments.only is None or each[0] in arguments.only]
    if arguments.list:
        for k, mutant in chosen:
            print(k, mutant.shown((ROOT / mutant.path).read_bytes()))
        return
    for name in ALREADY:
        import_module(name)
    watched, verdicts = json.loads(Path(arguments.lines).read_text()), defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        copy, fresh = Path(folder) / "copy", Path(folder) / "fresh"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".*_cache", "build", "figures"))
        names = sorted(watched["seconds"], key=watched["seconds"].get)
        if why := run(copy, [*names[: 2 * QUICK], "tests/ep/test_gaussian.py"], 10 * STARTS)[0]:
            sys.exit(f"Tests fail without any mutant: {why}")
        shutil.copytree(copy / "pymc_pacauc", fresh)
        for k, mutant in chosen:
            verdict, why, seconds = study(mutant, copy, fresh, watched, arguments.budget)
            verdicts[mutant.path.split("/")[1]].append(verdict)
            print(
                f"{k} {verdict} {seconds:.0f} s {mutant.shown((ROOT / mutant.path).read_bytes())} | {why}", flush=True
            )
    print("\n| folder | mutants | killed |\n|---|---:|---:|")
    for name, some in [*verdicts.items(), ("all", [each for found in verdicts.values() for each in found])]:
        print(f"| {name} | {len(some)} | {some.count('killed') / len(some):.0%} |")


if __name__ == "__main__":
    main()
