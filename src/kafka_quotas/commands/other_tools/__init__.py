"""Quota files of other tools, read into our declarations and written from stored quotas.

`formats` lists the tools and recognises their files; each other module is about the files of one tool or two. They may
use `kafka_configs`, `stores` and `core`.
"""
