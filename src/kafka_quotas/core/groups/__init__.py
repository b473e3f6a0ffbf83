"""Quotas of groups: which clients are in a group, what its members share, and what each of them is guaranteed."""
