"""Where the servers of the tests write their logs."""

from pathlib import Path


def log_options(work: Path) -> list[str]:
    """The options that send the log of either generation of log4j to standard output, and so to the log file."""
    old, new = work / "log4j.properties", work / "log4j2.properties"
    old.write_text(
        "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    )
    new.write_text(
        "rootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\nappender.out.type=Console\nappender.out.name=out\n"
        "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=[%d] %p %m (%c)%n\n"
    )
    return [f"-Dlog4j.configuration=file:{old}", f"-Dlog4j2.configurationFile=file:{new}"]
