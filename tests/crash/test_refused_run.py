"""The system refuses a write of a run's evidence, or somebody wants to stop: an error that says what to do, a
command that was never started or a run that can be closed, and the tree as the command left it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.killing import World, fsck, in_child, representative, scratch_files, staged_files, undecided
from crash.test_kill_run import BROKEN, Kind, folders, ready
from putback import seams
from putback.errors import Cancelled, NotExecutable, PutbackError, StorageError, UnknownStateError
from putback.ops.recover import Choice
from putback.runs.evidence import Evidence, receipt_digest
from putback.runs.run import UNCLOSED
from support.faults import Faults
from support.hermetic import unmoved
from support.trees import same

pytestmark = pytest.mark.slow

# Who writes evidence, and through what.
WRITERS = ("run.py", "close.py", "folder.py", "evidence.py", "ledger.py", "sight.py", "history.py")
MEANS = ("durable.py", "journal.py")


def is_evidence(call: str) -> bool:
    """Whether a call, as `Faults` names it, writes the evidence of a run or its entry of the history."""
    lines = [line.partition(":")[0] for line in call.split(" from ")[1].split(" ")]
    return next((line for line in lines if line not in MEANS), "") in WRITERS


def captures_of(world: World) -> Iterator[Path]:
    return (path for path in world.store.glob("objects.git/refs/putback/*/*") if path.is_file())


def faulty(action: Callable[[], object], number: int = -1) -> tuple[list[str], str, str]:
    """Run `action` with one call failing: the calls that were made, and the error's message and hint."""
    faults = Faults(number)
    told = ["", ""]

    def run() -> None:
        faults.install()
        try:
            action()
        except PutbackError as error:
            told[:] = [error.message, error.hint or ""]

    status, said = in_child(run, lambda: json.dumps([faults.seen, *told]))
    assert status == 0, said
    seen, message, hint = json.loads(said)
    return seen, message, hint


def test_each_refused_write_of_evidence(tmp_path: Path) -> None:
    world = ready(tmp_path / "world")
    before = world.tree
    world.save("saved")
    Kind(contents=True).run(world)
    after = world.tree
    kind = Kind(contents=True, rollback=True, limits=BROKEN)
    world.load("saved")
    names, message, _ = faulty(lambda: kind.run(world))
    assert not message
    chosen = [number for number in representative(names) if is_evidence(names[number])]
    assert len(chosen) > 30
    wrong: list[str] = []
    for number in chosen:
        world.load("saved")
        try:
            with unmoved(world.root):
                _, message, hint = faulty(lambda: kind.run(world), number)
                started = bool(folders(world))
                if not started:
                    assert message and "putback recover" not in hint
                    same(world.tree, before)
                    assert world.workspace.runs.unfinished() == [] and not scratch_files(world.store)
                    assert len(list(captures_of(world))) == 1, "a capture is left"
                elif message:
                    check_closable(world, hint)
                else:
                    [folder] = folders(world)
                    receipt = Evidence(folder).load().receipt
                    assert receipt is not None and receipt.ops.rollback is not None
                    same(world.tree, before if receipt.ops.rollback.applied else after)
                    assert world.workspace.runs.unfinished() == []
                assert world.tree in (before, after)
                world.workspace.run(("true",), snapshot=True)
        except Exception as error:
            wrong.append(f"call {number} os.{names[number]}: {type(error).__name__}: {error}; said {message!r}")
    fsck(world.store)
    assert not wrong, f"{len(wrong)} of {len(chosen)} went wrong\n" + "\n\n".join(wrong)


def check_closable(world: World, hint: str) -> None:
    assert "putback recover" in hint
    [found] = world.workspace.runs.killed()
    if undecided(world) is not None:
        world.workspace.recover(Choice.FORWARD)
    left = world.tree
    receipt = world.workspace.runs.close(found).receipt
    same(world.tree, left)
    assert not staged_files(world.root)
    documents = Evidence(found.evidence.folder).load()
    assert documents.ledger is not None and documents.ledger.ended is not None and not documents.faults
    assert documents.receipt == receipt and documents.ledger.ended.receipt == receipt_digest(receipt)


def at_seam(name: str, error: BaseException) -> Callable[[str], None]:
    def observer(reached: str) -> None:
        if reached == name:
            seams.observe(None)
            raise error

    return observer


@pytest.mark.parametrize("seam", ["run.ended", "run.captured", "run.told", "run.recorded", "run.sealing"])
def test_ctrl_c_after_the_command_leaves_a_run_to_close(seam: str, tmp_path: Path) -> None:
    world = ready(tmp_path / "world")
    before = world.tree
    seams.observe(at_seam(seam, KeyboardInterrupt()))
    try:
        with pytest.raises(Cancelled) as stopped:
            Kind(contents=True).run(world)
    finally:
        seams.observe(None)
    assert stopped.value.hint is not None and stopped.value.hint.startswith(UNCLOSED)
    assert stopped.value.exit_code == 130
    left = world.tree
    [found] = world.workspace.runs.killed()
    world.workspace.runs.close(found)
    same(world.tree, left)
    world.workspace.restore(found.id)
    same(world.tree, before)


@pytest.mark.parametrize("seam", ["run.prepared", "run.started"])
def test_ctrl_c_before_the_command_leaves_nothing(seam: str, tmp_path: Path) -> None:
    world = ready(tmp_path / "world")
    before = world.tree
    seams.observe(at_seam(seam, KeyboardInterrupt()))
    try:
        with pytest.raises(KeyboardInterrupt):
            Kind(contents=True).run(world)
    finally:
        seams.observe(None)
    same(world.tree, before)
    assert folders(world) == [] and not scratch_files(world.store)


def test_a_rollback_that_fails_when_paths_have_gone_back_is_an_unknown_state(tmp_path: Path) -> None:
    """To call it refused, with nothing put back, would be a lie."""
    world = ready(tmp_path / "world")
    before = world.tree
    published = False

    def observer(name: str) -> None:
        nonlocal published
        published |= name == "restore.published"
        if published and name == "capture.before_ref":
            seams.observe(None)
            raise StorageError("the disk is full")

    seams.observe(observer)
    try:
        with pytest.raises(UnknownStateError, match="the disk is full") as cut_short:
            Kind(contents=True, rollback=True, limits=BROKEN).run(world)
    finally:
        seams.observe(None)
    assert "putback recover" in (cut_short.value.hint or "")
    [found] = world.workspace.runs.killed()
    ledger = found.evidence.load().ledger
    assert ledger is not None and ledger.breaches and ledger.rollback is None
    world.workspace.recover(Choice.KEEP)
    receipt = world.workspace.runs.close(found).receipt
    same(world.tree, before)
    entry = world.workspace.list()[0]
    assert any(entry.short_id in said for said in receipt.limits_disclosure if "rollback was interrupted" in said)


def test_a_program_that_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    """It is found, and is executable; only the kernel knows that its interpreter does not exist."""
    world = ready(tmp_path / "world")
    program = world.base / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    with pytest.raises(NotExecutable):
        world.workspace.run((str(program),), snapshot=True)
    assert folders(world) == [] and len(list(captures_of(world))) == 1
    assert len(world.workspace.list()) == 1 and not scratch_files(world.store)
