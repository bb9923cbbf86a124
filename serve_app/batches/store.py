"""State of files and batches: SQLite in a folder, file contents in fsspec's storage.

Answers are written in groups, one transaction each, and a line counts as done once its group is
written. So after any end of the process a batch continues with the requests without an answer;
a request whose answer was not written yet is sent again.
"""

import contextlib
import fcntl
import io
import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

import fsspec

from serve_app.batches.lines import LineError

ACTIVE = ("validating", "in_progress", "finalizing", "cancelling")
UNFINISHED = f"status in ({', '.join('?' * len(ACTIVE))})"
LONGEST_LINE = 16 << 20  # bytes
READ = 1 << 20
ROWS = 64  # of answers, read or written at once
Row = tuple[str, int, bool, Mapping[str, Any]]
"""The answer to a line: batch, number of the line, whether it is a good one, the answer's line."""
TABLES = """
create table if not exists files (
    id text primary key, created integer not null, told text not null);
create table if not exists batches (
    id text primary key, created integer not null, status text not null, told text not null);
create table if not exists answers (
    batch text not null, number integer not null, good integer not null, line text not null,
    primary key (batch, number)) without rowid;
"""


class Store:
    """Files and batches as OpenAI's API has them: dicts with its keys.

    Args:
        folder: of the database, and of contents if ``storage`` is None.
        storage: an address of fsspec.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path, storage: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Threads share the connection: SQLite serialises them.
        path = folder / "batches.sqlite"
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # Answers have their own connection, so other queries are in none of their transactions.
        self._answers_db = sqlite3.connect(path, check_same_thread=False)
        self._adding = threading.Lock()
        self._lock = (folder / "lock").open("wb")
        self._db.execute("pragma journal_mode=wal")
        self._db.executescript(TABLES)
        # Left by a batch that ended just before its process did.
        self._db.execute(
            f"delete from answers where batch not in (select id from batches where {UNFINISHED})",
            ACTIVE,
        )
        self._fs, self._root = fsspec.core.url_to_fs(storage or str(folder / "files"))
        self._fs.makedirs(self._root, exist_ok=True)

    def close(self) -> None:
        """The store is not used after this."""
        self._lock.close()
        self._answers_db.close()
        self._db.close()

    def lock(self) -> bool:
        """Whether this store, of all on this folder, is the one that may process batches."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    # Files

    def add_file(self, name: str, purpose: str, contents: IO[bytes]) -> dict[str, Any]:
        """Keep what is read from ``contents``; returns the file object."""
        told = self._new_file(name, purpose, token_hex(12))
        try:
            with self._fs.open(self._path(told["id"]), "wb") as out:
                shutil.copyfileobj(contents, out, READ)
            return self._keep_file(told)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.rm_file(self._path(told["id"]))
            raise

    def file(self, file_id: str) -> dict[str, Any] | None:
        """The file object."""
        return self._told("files", file_id)

    def files(
        self,
        after: str | None,
        limit: int,
        purpose: str | None = None,
        *,
        newest_first: bool = True,
    ) -> list[dict[str, Any]]:
        """Files of a purpose (None: all), one more than ``limit`` if there are more."""
        return self._listed("files", after, limit, purpose, newest_first=newest_first)

    def open_file(self, file_id: str) -> IO[bytes]:
        """The contents of a file."""
        # Files in buckets can only read lines without a limit on the length.
        return io.BufferedReader(self._fs.open(self._path(file_id), "rb"), READ)

    def delete_file(self, file_id: str) -> None:
        """Delete a file; it may be gone already."""
        self._db.execute("delete from files where id = ?", (file_id,))
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(file_id))

    def reads(self, file_id: str) -> bool:
        """Whether a batch that has not ended reads this file."""
        return any(batch["input_file_id"] == file_id for batch in self.unfinished())

    # Batches

    def add_batch(
        self, endpoint: str, input_file_id: str, window: str, window_s: float, metadata: Any
    ) -> dict[str, Any]:
        """Add a batch that has not begun."""
        now = int(time.time())
        told = {
            "id": f"batch_{token_hex(12)}",
            "object": "batch",
            "endpoint": endpoint,
            "errors": None,
            "input_file_id": input_file_id,
            "completion_window": window,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "in_progress_at": None,
            "expires_at": now + int(window_s),
            "finalizing_at": None,
            "completed_at": None,
            "failed_at": None,
            "expired_at": None,
            "cancelling_at": None,
            "cancelled_at": None,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": metadata,
        }
        row = (told["id"], time.time_ns(), "validating", json.dumps(told))
        self._db.execute("insert into batches values (?, ?, ?, ?)", row)
        return told

    def batch(self, batch_id: str) -> dict[str, Any] | None:
        """The batch object, with its counts as they are now."""
        told = self._told("batches", batch_id)
        return told and self._counted(told)

    def batches(self, after: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest first, one more than ``limit`` if there are more."""
        return [self._counted(one) for one in self._listed("batches", after, limit)]

    def unfinished(self) -> list[dict[str, Any]]:
        """Batches that have not ended, the oldest first."""
        found = self._db.execute(
            f"select told from batches where {UNFINISHED} order by created", ACTIVE
        )
        return [json.loads(told) for (told,) in found]

    def move(
        self, batch_id: str, status: str, *, only_from: Sequence[str] = ACTIVE, **changes: Any
    ) -> dict[str, Any] | None:
        """Set a batch's status and the time of the change; returns the batch object.

        Args:
            only_from: the statuses that it may have now.

        Returns:
            None: it has another status.
        """
        marks = ", ".join("?" * len(only_from))
        with self._db:
            self._db.execute("begin immediate")  # another process may move it as well
            row = self._db.execute(
                f"select told from batches where id = ? and status in ({marks})",
                (batch_id, *only_from),
            ).fetchone()
            if row is None:
                return None
            now = int(time.time())
            told: dict[str, Any] = json.loads(row[0])
            told = {**told, "status": status, f"{status}_at": now, **changes}
            self._db.execute(
                "update batches set status = ?, told = ? where id = ?",
                (status, json.dumps(told), batch_id),
            )
        return told

    # Answers

    def add_answers(self, rows: Iterable[Row]) -> None:
        """Keep all of these answers or none; the first answer to a line stays."""
        told = [(batch, number, good, json.dumps(line)) for batch, number, good, line in rows]
        with self._adding, self._answers_db as db:
            db.executemany("insert or ignore into answers values (?, ?, ?, ?)", told)

    def answered(self, batch_id: str) -> set[int]:
        """The numbers of the lines that have an answer."""
        found = self._db.execute("select number from answers where batch = ?", (batch_id,))
        return {number for (number,) in found}

    def write_answers(self, batch_id: str, *, good: bool) -> str | None:
        """Make a file of a batch's answers in the order of its lines; returns its id, None: none.

        A second try, if the process ended or the disk was full, writes the same file.
        """
        lines = self._answers(batch_id, good=good)
        first = next(lines, None)
        if first is None:
            return None
        kind = "output" if good else "error"
        name = f"{batch_id}_{kind}.jsonl"
        told = self._new_file(name, "batch_output", sha256(name.encode()).hexdigest()[:24])
        with self._fs.open(self._path(told["id"]), "wb") as out:
            out.write(first)
            for line in lines:
                out.write(line)
        return str(self._keep_file(told)["id"])

    def drop_answers(self, batch_id: str) -> None:
        """Delete a batch's answers, which are in files now."""
        self._db.execute("delete from answers where batch = ?", (batch_id,))

    def _answers(self, batch_id: str, *, good: bool) -> Iterator[bytes]:
        # A few at a time: while a reader is open, a write fails after another process has written.
        number = 0
        while found := self._db.execute(
            "select number, line from answers where batch = ? and good = ? and number > ?"
            " order by number limit ?",
            (batch_id, good, number, ROWS),
        ).fetchall():
            for _, line in found:
                yield line.encode() + b"\n"
            number = found[-1][0]

    def _counted(self, told: dict[str, Any]) -> dict[str, Any]:
        if told["status"] not in ACTIVE:
            return told
        found = self._db.execute(
            "select good, count(*) from answers where batch = ? group by good", (told["id"],)
        )
        counts = dict(found.fetchall())
        done = {"completed": counts.get(1, 0), "failed": counts.get(0, 0)}
        return {**told, "request_counts": {**told["request_counts"], **done}}

    def _new_file(self, name: str, purpose: str, token: str) -> dict[str, Any]:
        return {
            "id": f"file-{token}",
            "object": "file",
            "bytes": 0,
            "created_at": int(time.time()),
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }

    def _keep_file(self, told: dict[str, Any]) -> dict[str, Any]:
        told = {**told, "bytes": int(self._fs.size(self._path(told["id"])))}
        row = (told["id"], time.time_ns(), json.dumps(told))
        self._db.execute("insert or replace into files values (?, ?, ?)", row)
        return told

    def _path(self, file_id: str) -> str:
        return f"{self._root}/{file_id}"

    def _told(self, table: str, row_id: str) -> dict[str, Any] | None:
        row = self._db.execute(f"select told from {table} where id = ?", (row_id,)).fetchone()
        return json.loads(row[0]) if row else None

    def _listed(
        self,
        table: str,
        after: str | None,
        limit: int,
        purpose: str | None = None,
        *,
        newest_first: bool = True,
    ) -> list[dict[str, Any]]:
        behind, order = ("<", "desc") if newest_first else (">", "asc")
        wheres: list[str] = []
        values: list[Any] = []
        if after is not None:
            wheres.append(f"created {behind} (select created from {table} where id = ?)")
            values.append(after)
        if purpose is not None:
            wheres.append("json_extract(told, '$.purpose') = ?")
            values.append(purpose)
        where = f"where {' and '.join(wheres)}" if wheres else ""
        found = self._db.execute(
            f"select told from {table} {where} order by created {order} limit ?",
            (*values, limit + 1),
        )
        return [json.loads(told) for (told,) in found]


def numbered_lines(opened: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, by their number from 1.

    Raises:
        LineError: one is longer than ``LONGEST_LINE``.
    """
    number = 0
    while line := opened.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise LineError(f"line {number} is longer than {LONGEST_LINE >> 20} MiB")
        if line.strip():
            yield number, line
