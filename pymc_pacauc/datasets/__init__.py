"""The paper's six data sets, small and real.

Five are shipped with the package (``DATA.md`` beside this file says where each comes from); the sixth, colon, is read
from a file of yours or fetched from OpenML. In all of them ``y`` is 1 for the minority class.

>>> from pymc_pacauc import datasets
>>> datasets.load_pima()
Dataset('pima', n=532, d=7, positive=177 (33.3%), train=200)
"""

from pymc_pacauc.datasets.loaders import Dataset, load_colon, load_credit, load_dna, load_glass, load_pima, load_spect

__all__ = ["Dataset", "load_colon", "load_credit", "load_dna", "load_glass", "load_pima", "load_spect"]
