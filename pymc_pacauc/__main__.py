"""``python -m pymc_pacauc``: versions and a self-check, for bug reports."""

import sys

from pymc_pacauc.self_check import report

text, passed = report()
print(text)
sys.exit(0 if passed else "\nThe engines do not agree with exact answers on this machine: please report the above.")
