"""Printed reports in notebooks: the same words, as a title, the rows of a table, and notes.

A report is what ``repr`` says of a result: a title, then indented lines, which are a label and a value with two spaces
or more between them, a note that starts with a dash, or a sentence.
"""

from __future__ import annotations

import re
from html import escape


def html_report(text: str) -> str:
    """A report in HTML.

    Examples
    --------
    >>> print(html_report("A fit\\n  log Z    -3.1\\n  - Assumes < 5 rows."))
    <p><strong>A fit</strong></p>
    <table class="dataframe"><tr><th>log Z</th><td style="text-align: left">-3.1</td></tr></table>
    <ul><li>Assumes &lt; 5 rows.</li></ul>
    """
    title, *lines = text.splitlines()
    rows, notes = [], []
    for line in lines:
        label, *value = re.split(r"\s{2,}", escape(line.strip()), maxsplit=1)
        if label.startswith("- "):
            notes.append(f"<li>{' '.join([label, *value]).removeprefix('- ')}</li>")
        elif value:
            rows.append(f'<tr><th>{label}</th><td style="text-align: left">{value[0]}</td></tr>')
        else:
            rows.append(f'<tr><td colspan="2" style="text-align: left">{label}</td></tr>')
    parts = [f"<p><strong>{escape(title)}</strong></p>"]
    parts += [f'<table class="dataframe">{"".join(rows)}</table>'] * bool(rows)  # the class: styled as frames are
    parts += [f"<ul>{''.join(notes)}</ul>"] * bool(notes)
    return "\n".join(parts)


class HTMLReport:
    """A result whose ``repr`` is a report, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        return html_report(repr(self))
