"""Time series drawn as text, SVG or PNG, and reports as pages.

Imports `cli.output`. matplotlib is loaded by the first drawing only.
"""
