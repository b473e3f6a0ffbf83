"""The calculator's verbs: rate, request, mutation, compare, simulate.

Imports `core` alone.
"""
