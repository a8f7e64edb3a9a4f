"""Stand-ins for the packages of serving engines, so that the adapters are tested where an engine is not installed.

Each has the names and fields that an adapter uses, and no behaviour. The tests of the engines (tools/check --engines) compare them
with the installed packages.
"""
