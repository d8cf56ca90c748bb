"""The site: ``make docs``. Pages of `start/`, `guides/` and `concepts/` that are notebooks in markdown are run."""

import os
import sys
import tomllib
from functools import cached_property
from inspect import isclass, signature
from pathlib import Path

import requests

import pymc_pacauc

sys.path.insert(0, str(Path(__file__).parent))
sys.modules["pymc_pacauc.plots"] = pymc_pacauc.plots  # the name that people use for pymc_pacauc.analysis.plots

REPOSITORY = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

project = "pymc_pacauc"
author = "The pymc_pacauc developers"
release = pymc_pacauc.__version__
copyright = author  # noqa: A001 (Sphinx's name)

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "offline_math",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build", "jupyter_execute", "gallery/*.ipynb", "gallery/*.py"]
nitpicky = False

# Markdown, and notebooks in it: a page that does not run is an error, as is a warning.
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 600  # seconds for a cell, of a machine with much other work
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
os.environ.setdefault(
    "PYTHONWARNINGS", "ignore:PyTensor could not link to a BLAS"
)  # PyMC 5's, said once a page otherwise

# The reference, from docstrings.
autosummary_generate = True
templates_path = ["_templates"]


def own_members(cls: type) -> list[str]:
    """Attributes of a class and methods that people call, also those of base classes in this package.

    Methods that PyMC calls have no example.
    """
    owners = [each for each in cls.__mro__ if each.__module__.startswith("pymc_pacauc")]
    found = {key: value for each in reversed(owners) for key, value in vars(each).items() if key[0] != "_"}
    return [
        key
        for key, value in found.items()
        if (value.__doc__ and isinstance(value, property | cached_property))
        or (not isclass(value) and "Examples\n" in (getattr(value, "__doc__", None) or ""))
    ]


def public_classes():
    """Name and object of every class in the reference."""
    for name in pymc_pacauc.__all__:
        value = getattr(pymc_pacauc, name)
        inside = [(f"{name}.{each}", getattr(value, each)) for each in getattr(value, "__all__", ())]
        yield from ((f"pymc_pacauc.{key}", each) for key, each in [(name, value), *inside] if isclass(each))


autosummary_context = {"own_members": {name: own_members(cls) for name, cls in public_classes()}}
autodoc_typehints = "none"  # numpydoc's tables of parameters have them
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_use_plots = True  # examples that import Matplotlib show their figure
plot_include_source = True
plot_html_show_formats = plot_html_show_source_link = False
plot_formats = [("png", 110)]
add_module_names = False

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "scipy": ("https://docs.scipy.org/doc/scipy/", None),
    "xarray": ("https://docs.xarray.dev/en/stable/", None),
    "pymc": ("https://www.pymc.io/projects/docs/en/stable/", None),
    "pytensor": ("https://pytensor.readthedocs.io/en/latest/", None),
    "arviz": ("https://python.arviz.org/en/stable/", None),
    "sklearn": ("https://scikit-learn.org/stable/", None),
}


def answers(address: str) -> bool:
    try:
        requests.get(f"{address}objects.inv", timeout=5).raise_for_status()  # as Sphinx does
    except OSError as error:
        print(f"No links to {address}: {error}")  # a page that cannot be reached is no reason not to build this one
        return False
    return True


intersphinx_mapping = {name: place for name, place in intersphinx_mapping.items() if answers(place[0])}

# The gallery: scripts that are run, and that must end in a figure.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__|bart_scores|reproduce_paper",  # the gallery is what tests/test_examples.py runs
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "doc_module": ("pymc_pacauc",),
    "backreferences_dir": "gallery/backreferences",
    "first_notebook_cell": "# Outside a clone: %pip install 'pymc-pacauc[plots,sklearn,survival]'\n%matplotlib inline",
}


def link_notebook(app, name, source):
    """A page of the gallery ends in a link to its notebook, which the workflow of the site puts on a branch."""
    folder, _, page = name.rpartition("/")
    if folder == "gallery" and page != "index":
        at = f"{REPOSITORY.removeprefix('https://')}/blob/notebooks/{page}.ipynb".replace(".com", "", 1)
        source[0] += f"\n\n`Open in Colab <https://colab.research.google.com/{at}>`__\n"


def true_signature(app, what, name, value, options, given, returned):
    """Show the options of a class whose ``__new__``, by PyMC, takes anything."""
    if what == "class" and given == "(*args, **kwargs)":
        plain = [each.replace(annotation=each.empty) for each in signature(value).parameters.values()]
        return str(signature(value).replace(parameters=plain)), returned
    return None


def setup(app):
    app.connect("source-read", link_notebook)
    app.connect("autodoc-process-signature", true_signature)


html_theme = "pydata_sphinx_theme"
html_title = "pymc_pacauc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_nav_level": 2,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {"index": []}
