"""Sphinx builds the documentation from the Markdown pages beside this file: ``make docs``.

It needs no network: no inventories of other projects, no fonts, no scripts from elsewhere.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"

import django  # noqa: E402 (it reads the settings named above)

django.setup()

from anvil_django import __version__  # noqa: E402

project = "anvil_django"
author = "The anvil_django contributors"
project_copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nitpicky = True
default_role = "code"  # what stands in single backquotes in a docstring

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "fully-qualified"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
# Types are read where they stand in a signature; only those with an entry of their own are links.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!anvil_django\b).*"),
    (r"py:.*", r"anvil_django\.(models|states|tool_schema|tool_options|stores\.sweep|tools\.[PR]$).*"),
    (r"py:.*", r"anvil_django\.testing\.(http_server|killpoints)\..*"),
]

html_theme = "furo"
html_title = "anvil_django"
html_static_path = ["_static"]
html_css_files = ["anvil.css"]
html_copy_source = False
html_show_sphinx = False
