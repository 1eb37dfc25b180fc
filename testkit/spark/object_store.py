"""An object store that speaks S3: moto's server in a process of its own, on loopback, in memory.

Not ours, so that what we take S3 for is not what we test with. It answers conditional writes as S3 does
(If-None-Match: of eight writers at once one succeeds, the others get 412; `testkit.spark.one_at_a_time`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyarrow import fs

from testkit.processes.guarded_process import GuardedProcess
from testkit.processes.ports import LOOPBACK, free_port
from testkit.processes.process import wait_for_port

BUCKET: Final = "night"
_START_S: Final = 60.0
_KEY: Final = "loopback"
"""moto looks at nobody's key"""


class ObjectStore:
    """Serves one empty bucket in the `with` block."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for the server's log."""
        self._log = folder / "object-store.log"
        self._port = free_port()
        self.uri = f"s3://{BUCKET}"
        self.environ = {
            "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{self._port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        """what clients need to find it and to sign"""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "testkit.spark.one_at_a_time", LOOPBACK, str(self._port)]
        self._server = GuardedProcess(command, output=self._log)
        try:
            wait_for_port(self._port, self._server, "moto's server", _START_S)
            self._files = fs.S3FileSystem(
                access_key=_KEY,
                secret_key=_KEY,
                region="us-east-1",
                endpoint_override=f"{LOOPBACK}:{self._port}",
                scheme="http",
                allow_bucket_creation=True,
            )
            self._files.create_dir(BUCKET)
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def upload(self, source: Path, name: str) -> str:
        """A file or a folder → its URI."""
        fs.copy_files(str(source), f"{BUCKET}/{name}", fs.LocalFileSystem(), self._files)
        return f"{self.uri}/{name}"

    def read(self, name: str) -> bytes:
        """One object. Raises FileNotFoundError."""
        with self._files.open_input_stream(f"{BUCKET}/{name}") as stream:
            return bytes(stream.read())

    def names(self, folder: str) -> list[str]:
        """The objects below a folder, relative to it."""
        found = self._files.get_file_info(fs.FileSelector(f"{BUCKET}/{folder}", recursive=True))
        files = (info.path for info in found if info.type is fs.FileType.File)
        return sorted(path.removeprefix(f"{BUCKET}/{folder}/") for path in files)

    def requests(self) -> list[str]:
        """What was asked, in order, as the server logs it."""
        return [line for line in self._log.read_text(encoding="utf-8").splitlines() if "HTTP/1.1" in line]
