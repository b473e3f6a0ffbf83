"""Quotas in force at each broker, and where they come from: the store that is watched, the policy file.

Imports `enforcement.config`. The *registry* holds the limits of all brokers, *client limits* are those of one user and
client-id at one broker.
"""
