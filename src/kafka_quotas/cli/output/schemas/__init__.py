"""What commands print for machines: a JSON schema for each kind of document, from which CSV takes its columns.

`catalogue` finds a schema by its noun, and a module for each room declares them in the words of `forms`. Nothing here
prints.
"""
