"""Why a connection could not be made, in a few words."""


def network_reason(error: OSError) -> str:
    """The reason, in small letters: "connection refused", "no answer", "name or service not known"."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()
