"""A verification from its beginning to its end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store.connection import ENGINE_ERRORS
from rookhold_store.moments import Held
from rookhold_store.source import Source
from rookhold_store.verify import integrity, ledger, objects, walk

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from rookhold_store.binding import BindingCheck
    from rookhold_store.moments import View
    from rookhold_store.verify.finding import Finding
    from rookhold_store.verify.kept import Kept

# SQLite checks the whole file at one moment. It is given up where that would let the log grow by
# more than this, because a log cannot be emptied beyond a moment that somebody looks at.
LOG_GROWTH_MAX: Final = 64 * 1024 * 1024
_ATTEMPTS: Final = 3


class Progress(Struct, frozen=True):
    """How far it is: so many of about so many done."""

    done: int
    total: int
    doing: str = "checking"


class Verification:
    """One pass over a file that may be written to meanwhile.

    It takes no lock and changes nothing. `unchecked` holds, after the end, sentences about what
    could not be looked at, none of which is a finding.
    """

    def __init__(
        self,
        source: Source,
        *,
        binding: BindingCheck | None = None,
        job_ids: Sequence[str] | None = None,
        kept: Sequence[Kept] = (),
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        self._source = source
        self._binding = binding
        self._job_ids = job_ids
        self._kept = kept
        self._progress = progress
        self.jobs = 0
        self.unchecked: list[str] = []

    def findings(self) -> Iterator[Finding]:
        """Yield what does not hold, in the order in which it is found.

        Raises OpenRefusedError for a file that is none of this store's, or of an older version.
        """
        self._source.require_current()
        look = self._source.at_a_moment
        try:
            yield from look(lambda view: list(objects.findings(view.db)))
            if not look(lambda view: objects.tables_stand(view.db)):
                yield from look(lambda view: list(integrity.complete(view.db)))
                return
            yield from look(lambda view: list(objects.facts(view.db)))
            migrated = look(lambda view: objects.migrated(view.db))
            if self._job_ids is None:
                yield from self._pages(migrated)
            yield from self._named(migrated)
        except ENGINE_ERRORS as exc:
            yield walk.unreadable(exc)
        if self._job_ids is None:
            yield from self._whole_file()

    def _pages(self, migrated: bool) -> Iterator[Finding]:
        look = self._source.at_a_moment
        total = look(lambda view: int(view.db.execute("SELECT count(*) FROM jobs").get))
        yield from look(lambda view: walk.not_texts(view.db))
        last: bytes | None = None
        while True:
            page = look(self._page_after(last, migrated))
            yield from page.findings
            self.jobs += page.jobs
            if self._progress is not None:
                self._progress(Progress(self.jobs, max(total, self.jobs)))
            last = page.last
            if last is None:
                break
        yield from look(lambda view: list(ledger.sums(view.db)))

    def _page_after(self, last: bytes | None, migrated: bool) -> Callable[[View], walk.Page]:
        return lambda view: walk.page(view, last, binding=self._binding, migrated=migrated)

    def _named(self, migrated: bool) -> Iterator[Finding]:
        """Check the jobs that were asked for by name, and those of which something was kept."""
        by_job: dict[str, list[Kept]] = {job_id: [] for job_id in self._job_ids or ()}
        for item in self._kept:
            by_job.setdefault(item.job_id, []).append(item)
        for job_id, kept in by_job.items():
            yield from self._source.at_a_moment(self._one(job_id, kept, migrated))
            self.jobs += self._job_ids is not None
            if self._progress is not None and self._job_ids is not None:
                self._progress(Progress(self.jobs, len(by_job)))

    def _one(
        self, job_id: str, kept: list[Kept], migrated: bool
    ) -> Callable[[View], list[Finding]]:
        def look(view: View) -> list[Finding]:
            found = walk.named(view, job_id, binding=self._binding, migrated=migrated, kept=kept)
            if self._job_ids is None:  # the walk has told of the rest
                return [item for item in found if item.kept]
            return found

        return look

    def _whole_file(self) -> Iterator[Finding]:
        """Have SQLite check all of it, unless that keeps too long a log from being emptied."""
        source = self._source
        for _ in range(_ATTEMPTS):
            most = source.log_bytes + LOG_GROWTH_MAX
            try:
                found = source.at_a_moment(
                    lambda view: list(
                        integrity.findings(view.db, lambda: source.log_bytes > most)  # noqa: B023
                    )
                )
            except apsw.InterruptError:
                continue
            except ENGINE_ERRORS as exc:
                yield walk.unreadable(exc)
                return
            yield from found
            return
        self.unchecked.append(
            "SQLite's own check of pages and indexes was given up, because too much was written"
            " meanwhile; verify a backup, or with the server stopped."
        )


def verify(
    target: str | os.PathLike[str] | apsw.Connection,
    *,
    binding: BindingCheck | None = None,
    job_ids: Sequence[str] | None = None,
    receipts: Sequence[Kept] = (),
    progress: Callable[[Progress], object] | None = None,
) -> Iterator[Finding]:
    """Yield what does not hold in a file, or in a database that the caller has in a transaction.

    `receipts` is evidence that was kept elsewhere. `job_ids` restricts all of it to these jobs.
    """
    if isinstance(target, apsw.Connection):
        yield from _everything(Held(target), binding)
        return
    with closing(Source(target)) as source:
        yield from Verification(
            source, binding=binding, job_ids=job_ids, kept=receipts, progress=progress
        ).findings()


def check_all(db: apsw.Connection, *, binding: BindingCheck | None) -> Finding | None:
    """Return the first finding in a database that the caller has in a transaction, or None."""
    return next(_everything(Held(db), binding), None)


def _everything(view: View, binding: BindingCheck | None) -> Iterator[Finding]:
    db = view.db
    try:
        yield from objects.findings(db)
        if objects.tables_stand(db):
            yield from objects.facts(db)
            yield from walk.not_texts(db)
            yield from walk.pages(view, binding=binding, migrated=objects.migrated(db))
            yield from ledger.sums(db)
    except ENGINE_ERRORS as exc:
        yield walk.unreadable(exc)
    yield from integrity.complete(db)
