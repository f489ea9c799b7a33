"""Sphinx settings; ``make docs`` builds the pages into docs/_build/html."""

project = "forestmix"
author = "The forestmix developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "forestmix"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
# The guide links to files of the repository, which are not pages here.
suppress_warnings = ["myst.xref_missing"]
