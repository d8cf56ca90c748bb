"""Formulas without a network: a Sphinx extension that ships MathJax with the site."""

import shutil
from pathlib import Path

from jupyter_server_mathjax.app import STATIC_ASSETS_PATH


def bring(app):
    place = Path(app.outdir) / "_static" / "mathjax"
    if not place.exists():
        shutil.copytree(STATIC_ASSETS_PATH, place, ignore=shutil.ignore_patterns("localization"))


def configure(app, config):
    config.mathjax_path = "mathjax/MathJax.js?config=TeX-AMS-MML_HTMLorMML-full,Safe"
    config.mathjax2_config = {
        "tex2jax": {"inlineMath": [["\\(", "\\)"]], "displayMath": [["\\[", "\\]"]]},
        "HTML-CSS": {"availableFonts": [], "imageFont": None, "preferredFont": None, "webFont": "STIX-Web"},
    }
    config.myst_update_mathjax = False


def setup(app):
    app.setup_extension("sphinx.ext.mathjax")
    app.connect("config-inited", configure, priority=1)
    app.connect("builder-inited", bring)
    return {"parallel_read_safe": True}
