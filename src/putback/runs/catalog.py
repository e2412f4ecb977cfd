"""The runs of one workspace: where their evidence lies, whether it holds, and which of them have no end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from putback.errors import PutbackError, UnknownId
from putback.runs import RECEIPT
from putback.store.layout import WorkspacePaths

# Most workspaces have no run that anything must be done about, and hardly a command is about runs.
if TYPE_CHECKING:
    from putback.ops.session import Session
    from putback.runs.close import RunResult
    from putback.runs.unfinished import Unfinished
    from putback.runs.verify import Check

    # Opens a session under the workspace's lock, for captures with contents or of digests alone.
    Opener = Callable[[bool], AbstractContextManager[Session]]


class Runs(msgspec.Struct, frozen=True):
    """The runs of the workspace at `where`."""

    where: WorkspacePaths
    open_session: Opener

    def folder(self, asked: str) -> Path:
        """Where the documents of a run are. Raises MalformedId, UnknownId and AmbiguousId."""
        from putback.store.history import History

        full = History(self.where.history).resolve(asked, [run.id for run in self.unfinished()])
        folder = self.where.runs / full
        if not folder.is_dir():
            gone = f"{full[:12]} is no run, or its documents are gone"
            raise UnknownId(gone, hint="`putback list` shows the runs")
        return folder

    def verify(self, asked: str) -> list[Check]:
        """Check the evidence of a run against itself and against the store."""
        from putback.runs import verify
        from putback.runs.evidence import Evidence
        from putback.runs.witness import StoreWitness

        folder = self.folder(asked)
        documents = Evidence(folder).load()
        with self.open_session(True) as session:
            return verify.verify(documents, StoreWitness(session, folder.name))

    @contextmanager
    def telling_how_to_close(self, *, contents: bool) -> Iterator[None]:
        """An error within the block says what to do about a run whose account it has kept from being closed."""
        earlier = {run.id for run in self.unfinished()}
        try:
            yield
        except PutbackError as error:
            for run in self.killed():
                if run.id not in earlier:
                    close = f"`putback restore {run.id[:12]}` takes the run back"
                    then = close if contents else "`putback recover` tells what it did"
                    error.hint = f"{error.hint}; then {then}" if error.hint else then
            raise

    def unfinished(self) -> list[Unfinished]:
        """The runs that are under way or whose supervisor was killed, oldest first."""
        if not self.where.exists() or not self._any_without_receipt():
            return []
        from putback.runs import unfinished

        return unfinished.unfinished(self.where)

    def _any_without_receipt(self) -> bool:
        """Whether there is anything that could be an unfinished run."""
        try:
            return not all((path / RECEIPT).exists() for path in self.where.runs.iterdir())
        except FileNotFoundError:
            return False

    def killed(self) -> list[Unfinished]:
        """The runs whose supervisor was killed or came to no end, oldest first."""
        return [run for run in self.unfinished() if not run.alive]

    def find(self, asked: str) -> Unfinished | None:
        """The unfinished run that `asked` means; None where it means something else, or nothing."""
        runs = {run.id: run for run in self.unfinished()}
        if not runs:
            return None
        from putback.store.history import History

        try:
            return runs.get(History(self.where.history).resolve(asked, runs))
        except PutbackError:
            return None

    def close(self, run: Unfinished) -> RunResult:
        """Close the account of a run whose supervisor was killed. Writes evidence, never the workspace.

        Raises LockedError where it, or its command, is still at work; UnknownStateError where a restore was cut
        short, which is to be resolved first; IntegrityError where the evidence is damaged; FailedError where the
        run is closed already.
        """
        from putback.records.run import Discipline
        from putback.runs import resume, unfinished

        contents = run.started is not None and run.started.discipline is Discipline.CONTENTS
        with self.open_session(contents) as session:
            result = resume.finish(session, run)
            for folder in unfinished.folders(self.where):
                folder.tidy()
            return result

    def set_aside(self, run: Unfinished) -> Path:
        """Give up a run whose evidence is damaged, and keep the evidence; returns where it is then."""
        from putback.runs import resume

        with self.open_session(True) as session:
            return resume.set_aside(session, run)
