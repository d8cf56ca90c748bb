"""The note by itself: ``make note``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "Ranking posteriors in practice"
author = "The pymc_pacauc developers"
extensions = ["myst_parser", "offline_math"]
myst_enable_extensions = ["amsmath", "dollarmath"]
html_theme = "basic"
html_title = project
html_static_path = ["../_static"]
html_css_files = ["note.css"]
