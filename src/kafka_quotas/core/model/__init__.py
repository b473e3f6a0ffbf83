"""The values that the whole product speaks of: entities, quota keys, filters, windows, units.

Imports nothing but `core.errors`. An *entity* is what a quota is set on (user, client-id, address, broker, topic, or a
default of one of them), a *quota key* is what is limited, a *filter* selects entities as DescribeClientQuotas does.
"""
