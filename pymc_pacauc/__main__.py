"""``python -m pymc_pacauc``: versions and a self-check, for bug reports; ``--warm``: compile ahead, for images."""

import argparse
import sys

from pymc_pacauc.self_check import report, warm

parser = argparse.ArgumentParser(prog="python -m pymc_pacauc", description="Print versions and check the engines.")
parser.add_argument("--warm", action="store_true", help="compile what first calls compile, and keep it on disk")
if parser.parse_args().warm:
    print(warm())
    sys.exit()
text, passed = report()
print(text)
sys.exit(0 if passed else "\nThe engines do not agree with exact answers on this machine: please report the above.")
