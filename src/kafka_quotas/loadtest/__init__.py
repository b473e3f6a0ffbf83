"""The load tester: a plan, clients of three libraries, a recorder, and judgements on a run.

`scenarios` has the shipped scenarios as files, in a folder for what their quotas limit. The packages form a line, each
importing the ones before: plan, record, clients and result, judge, run, scenario.
"""
