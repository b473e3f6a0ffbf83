"""The quotas and rules that a daemon is given, as they are put in force. May import the proxy and all below it."""
