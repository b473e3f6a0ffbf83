"""Files at URLs by the file systems of a Spark session: the schemes, credentials and mounts that Hadoop knows there.

The session's driver, which is in this process's Java, lists files and reads their beginnings. A Connect server's driver
is elsewhere and lends none.
"""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from kafka_quotas.pipeline.formats.lines import RemoteFile, RemoteFiles
from kafka_quotas.pipeline.formats.task import SNIFFED_BYTES
from kafka_quotas.pipeline.tables.lake import hadoop_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyspark.sql import SparkSession

_MISSING: Final = "java.io.FileNotFoundException"


class HadoopFiles(RemoteFiles):
    """The way of a Spark session to files at URLs."""

    def __init__(self, session: "SparkSession") -> None:
        self._java: Any = session.sparkContext._jvm  # noqa: SLF001 - has no other door
        java_session: Any = session._jsparkSession  # noqa: SLF001 - as above
        self._settings = java_session.sessionState().newHadoopConf()

    def listed(self, folder: str) -> Iterator[RemoteFile]:
        """Yield the files below a folder, in no order, none where there is no folder."""
        place = self._place(f"{folder}/")
        top = f"{place.toUri().getPath().rstrip('/')}/"  # a server may name itself otherwise than the URL does
        try:
            found = place.getFileSystem(self._settings).listFiles(place, True)  # noqa: FBT003 - Hadoop's own signature
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == _MISSING:
                return
            raise
        while found.hasNext():
            file = found.next()
            name = file.getPath().toUri().getPath().removeprefix(top)
            yield RemoteFile(url=f"{folder}/{name}", size=file.getLen(), modified_ms=file.getModificationTime())

    def opened(self, file: RemoteFile) -> io.BufferedReader:
        """Open a file for reading."""
        return io.BufferedReader(_HadoopFile(self._stream(file), file.size), buffer_size=SNIFFED_BYTES)

    def digest(self, file: RemoteFile) -> str:
        """Return the SHA-256 digest of a file, which Java computes: its bytes take long to come here."""
        stream = self._stream(file)
        try:
            return str(self._java.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def _stream(self, file: RemoteFile) -> Any:
        place = self._place(file.url)
        return place.getFileSystem(self._settings).open(place)

    def _place(self, url: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(hadoop_url(url))


class _HadoopFile(io.RawIOBase):
    """Java's stream of a file as Python has files."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream = stream
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        content: bytes = self._stream.readNBytes(len(view))
        view[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._stream.seek(place)
        return place

    def tell(self) -> int:
        return int(self._stream.getPos())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
