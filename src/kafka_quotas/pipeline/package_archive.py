"""This package as an archive for executors, which need not have it installed."""

import zipfile
from pathlib import Path

import kafka_quotas


def write_package_archive(folder: Path) -> Path:
    """The path of a zip file in `folder` with every Python module of the package, importable as it is."""
    root = Path(kafka_quotas.__file__).parent
    archive = folder / "kafka_quotas.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for module in sorted(root.rglob("*.py")):
            file.write(module, module.relative_to(root.parent))
    return archive
