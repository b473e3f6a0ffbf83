"""The load tester: a schedule, clients, a recorder and a verdict."""
