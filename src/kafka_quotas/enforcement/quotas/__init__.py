"""The quotas in force at each broker, and their sources: the watched store and the policy file.

Imports `enforcement.config`. The *registry* holds the limits of all brokers; *client limits* are those of one user and
client-id at one broker.
"""
