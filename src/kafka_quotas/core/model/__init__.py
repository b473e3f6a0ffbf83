"""The values that the whole product uses: entities, quota keys, filters, windows, units.

Imports nothing but `core.errors`. An *entity* is the subject of a quota (user, client-id, address, broker, topic, or a
default of one of them), a *quota key* names what is limited, a *filter* selects entities as DescribeClientQuotas does.
"""
