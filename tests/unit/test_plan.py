"""The planner as a table: what the record says, what is there, what should be there, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from putback.ops import plan
from putback.ops.plan import Wanted
from putback.paths import RelPath, parse
from putback.records.change import Change, Kind, Node
from putback.records.plan import Action, Declined, Plan, Policy, Status

OLD = Node(Kind.FILE, 0o644, "aaaaaaaaaaaaaaaa" + "0" * 48)
NEW = Node(Kind.FILE, 0o644, "bbbbbbbbbbbbbbbb" + "0" * 48)
OTHER = Node(Kind.FILE, 0o644, "cccccccccccccccc" + "0" * 48)
RUNNABLE = Node(Kind.FILE, 0o755, OLD.digest)
LINK = Node(Kind.SYMLINK, 0o777, "dddddddddddddddd" + "0" * 48)
DIRECTORY = Node(Kind.DIRECTORY, 0o755)
CLOSED = Node(Kind.DIRECTORY, 0o500)
LATER = "created since and never captured; --exact removes it"

SPAN, SNAPSHOT, FORCED, MERGING = Policy.REFUSE, Policy.OVERWRITE, Policy.FORCE, Policy.MERGE


def change(path: str, before: Node | None, after: Node | None) -> Change:
    return Change(parse(path.encode()), before, after)


def make(
    *changes: Change,
    policy: Policy = Policy.OVERWRITE,
    now: Mapping[str, Node | None] | None = None,
    unheld: Mapping[str, str] | None = None,
    kept: Iterable[str] = (),
    hidden: Mapping[str, str] | None = None,
    inside: Mapping[str, list[str]] | None = None,
    merged: Mapping[str, Node | str] | None = None,
) -> Plan:
    def raw(path: str) -> RelPath:
        return parse(path.encode())

    return plan.make(
        Wanted(
            changes=changes,
            now={raw(path): node for path, node in (now or {}).items()},
            policy=policy,
            unheld={raw(path): reason for path, reason in (unheld or {}).items()},
            kept={raw(path): Declined.at(raw(path), reason=LATER, code="never_captured") for path in kept},
            hidden={raw(path): raw(first) for path, first in (hidden or {}).items()},
            inside={raw(path): [raw(each) for each in held] for path, held in (inside or {}).items()},
            merged={raw(path): found for path, found in (merged or {}).items()},
        )
    )


def brief(made: Plan) -> dict[str, str]:
    """Path to what becomes of it; one word each, so that a whole plan can be compared with a literal."""
    words = {step.path: str(step.action) for step in made.steps}
    words |= {item.path: f"refused {item.code}" for item in made.refused}
    words |= {item.path: f"left {item.code}" for item in made.left}
    words |= {item.path: f"settled {item.status}" for item in made.settled}
    return words


@dataclass(frozen=True)
class Row:
    """One path: `now` is what is there where it is not `before`."""

    name: str
    before: Node | None
    after: Node | None
    becomes: str
    policies: tuple[Policy, ...] = (SPAN, SNAPSHOT, FORCED)
    found: tuple[Node | None, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


ROWS = [
    # What each action is for.
    Row("content differs", NEW, OLD, "restore"),
    Row("only the mode differs", RUNNABLE, OLD, "restore"),
    Row("link instead of file", LINK, OLD, "restore"),
    Row("file instead of link", OLD, LINK, "restore"),
    Row("mode of a directory", CLOSED, DIRECTORY, "restore"),
    Row("file instead of directory", OLD, DIRECTORY, "restore"),
    Row("link instead of directory", LINK, DIRECTORY, "restore"),
    Row("empty directory instead of file", DIRECTORY, OLD, "restore"),
    Row("deleted file", None, OLD, "recreate"),
    Row("deleted link", None, LINK, "recreate"),
    Row("deleted directory", None, DIRECTORY, "recreate"),
    Row("created file", NEW, None, "remove"),
    Row("created link", LINK, None, "remove"),
    Row("created directory", DIRECTORY, None, "remove"),
    # What needs nothing, whatever the policy: an outcome, not a refusal.
    Row("somebody put it back", NEW, OLD, "settled skipped", found=(OLD,)),
    Row("somebody recreated it", None, OLD, "settled skipped", found=(OLD,)),
    Row("somebody removed it", NEW, None, "settled absent", found=(None,)),
    # Drift: refused in a span, overwritten and reported otherwise.
    Row("changed since", NEW, OLD, "refused drift", (SPAN,), (OTHER,)),
    Row("changed since", NEW, OLD, "restore", (SNAPSHOT, FORCED), (OTHER,)),
    Row("mode changed since", OLD, NEW, "refused drift", (SPAN,), (RUNNABLE,)),
    Row("mode changed since", OLD, NEW, "restore", (SNAPSHOT, FORCED), (RUNNABLE,)),
    Row("deleted since", NEW, OLD, "refused drift", (SPAN,), (None,)),
    Row("deleted since", NEW, OLD, "recreate", (SNAPSHOT, FORCED), (None,)),
    Row("came back different", None, OLD, "refused drift", (SPAN,), (OTHER,)),
    Row("came back different", None, OLD, "restore", (SNAPSHOT, FORCED), (OTHER,)),
    Row("created, then changed", NEW, None, "refused drift", (SPAN,), (OTHER,)),
    Row("created, then changed", NEW, None, "remove", (SNAPSHOT, FORCED), (OTHER,)),
    Row("became a link since", NEW, OLD, "refused drift", (SPAN,), (LINK,)),
    Row("became a directory since", NEW, OLD, "refused drift", (SPAN,), (DIRECTORY,)),
    Row("became an empty directory since", NEW, OLD, "restore", (SNAPSHOT, FORCED), (DIRECTORY,)),
    # Where merging is asked for, only what changed since is merged; the rest is as in any span.
    Row("not changed since", NEW, OLD, "restore", (MERGING,), options={"merged": {"p": OTHER}}),
    Row("put back by somebody", NEW, OLD, "settled skipped", (MERGING,), (OLD,), {"merged": {"p": OTHER}}),
    Row("not mergeable", NEW, OLD, "refused drift", (MERGING,), (OTHER,), {"merged": {"p": "why"}}),
    Row("nothing known of a merge", NEW, OLD, "refused drift", (MERGING,), (OTHER,)),
    Row("merged to what is there", NEW, OLD, "settled skipped", (MERGING,), (OTHER,), {"merged": {"p": OTHER}}),
    Row(
        "held by nobody",
        NEW,
        OLD,
        "refused not_covered",
        (MERGING,),
        (OTHER,),
        {"merged": {"p": RUNNABLE}, "unheld": {"p": "a pipe"}},
    ),
    # What cannot be held is not touched, whatever the policy and however it would have ended.
    Row("a pipe in its place", NEW, OLD, "refused not_covered", options={"unheld": {"p": "a pipe"}}),
    Row("a pipe to remove", NEW, None, "refused not_covered", found=(None,), options={"unheld": {"p": "a pipe"}}),
    Row("unreadable, recreate", None, OLD, "refused not_covered", options={"unheld": {"p": "no permission"}}),
    # What may not be removed is left, which is no failure.
    Row("never captured", NEW, None, "left never_captured", options={"kept": ["p"]}),
    Row("kept, drifted", NEW, None, "left never_captured", (SNAPSHOT, FORCED), (OTHER,), {"kept": ["p"]}),
    Row("kept says nothing about replacing", NEW, OLD, "restore", options={"kept": ["p"]}),
    Row("kept and gone", NEW, None, "settled absent", found=(None,), options={"kept": ["p"]}),
    # A directory that has to give way.
    Row("in it what no capture holds", DIRECTORY, OLD, "refused not_covered", options={"hidden": {"p": "p/x"}}),
    Row("the same for a link", DIRECTORY, LINK, "refused not_covered", options={"hidden": {"p": "p/x"}}),
    Row("in it what stays", DIRECTORY, OLD, "refused drift", options={"inside": {"p": ["p/x"]}}),
    Row("nothing in it", DIRECTORY, OLD, "restore", options={"inside": {"p": []}}),
    Row("hidden is no matter for a mode", CLOSED, DIRECTORY, "restore", options={"hidden": {"p": "p/x"}}),
    Row("hidden is no matter for a file", OTHER, OLD, "restore", options={"hidden": {"p": "p/x"}}),
]
CASES = [(row, policy) for row in ROWS for policy in row.policies]


@pytest.mark.parametrize(
    ("row", "policy"), CASES, ids=[f"{row.name}-{row.becomes}-{policy}" for row, policy in CASES]
)
def test_one_path(row: Row, policy: Policy) -> None:
    now = dict.fromkeys(["p"], row.found[0]) if row.found else {}
    made = make(change("p", row.before, row.after), policy=policy, now=now, **row.options)
    assert brief(made) == {"p": row.becomes}
    for step in made.steps:
        assert (step.now, step.goal) == (row.found[0] if row.found else row.before, row.after)


@pytest.mark.requirement("D13")
def test_drift_names_both_digests() -> None:
    (refused,) = make(change("p", NEW, OLD), policy=SPAN, now={"p": OTHER}).refused
    assert NEW.digest[:12] in refused.reason and OTHER.digest[:12] in refused.reason


def test_a_merge_goes_to_what_was_made_of_it_or_says_why_there_is_none() -> None:
    changes = [change("a", NEW, OLD), change("b", NEW, OLD)]
    made = make(*changes, policy=MERGING, now=dict.fromkeys("ab", OTHER), merged={"a": RUNNABLE, "b": "why"})
    (step,), (refused,) = made.steps, made.refused
    assert (step.path, step.action, step.now, step.goal) == ("a", Action.MERGE, OTHER, RUNNABLE)
    assert NEW.digest[:12] in refused.reason and OTHER.digest[:12] in refused.reason
    assert refused.path == "b" and refused.reason.endswith("; not merged: why")


@pytest.mark.parametrize(("before", "now"), [(None, OTHER), (NEW, None)])
def test_drift_says_what_is_absent(before: Node | None, now: Node | None) -> None:
    (refused,) = make(change("p", before, OLD), policy=SPAN, now={"p": now}).refused
    assert "absent" in refused.reason and str(before or now) in refused.reason


def test_refusals_name_the_path_inside() -> None:
    (hidden,) = make(change("d", DIRECTORY, OLD), hidden={"d": "d/deep/secret"}).refused
    (stays,) = make(change("d", DIRECTORY, OLD), inside={"d": ["d/deep/kept"]}).refused
    assert "d/deep/secret" in hidden.reason and "d/deep/kept" in stays.reason


def test_no_changes_no_plan() -> None:
    assert make() == Plan()


def test_a_directory_gives_way_when_all_that_is_in_it_goes() -> None:
    changes = [change("d", DIRECTORY, OLD), change("d/a", NEW, None), change("d/b", LINK, None)]
    assert brief(make(*changes, inside={"d": ["d/a", "d/b"]})) == {
        "d": "restore",
        "d/a": "remove",
        "d/b": "remove",
    }


def test_a_directory_stays_when_one_path_in_it_stays() -> None:
    changes = [change("d", DIRECTORY, OLD), change("d/a", NEW, None)]
    assert brief(make(*changes, inside={"d": ["d/a", "d/b"]})) == {"d": "refused drift", "d/a": "remove"}


def test_a_directory_stays_when_removing_from_it_is_refused() -> None:
    changes = [change("d", DIRECTORY, OLD), change("d/a", NEW, None)]
    made = make(*changes, policy=SPAN, now={"d/a": OTHER}, inside={"d": ["d/a"]})
    assert brief(made) == {"d": "refused drift", "d/a": "refused drift"}


def test_never_captured_files_go_with_the_directory_that_gives_way() -> None:
    """The safety capture holds them by now, and the file that has to be there could not be put back else."""
    changes = [change("d", DIRECTORY, OLD), change("d/sub", DIRECTORY, None), change("d/sub/new", NEW, None)]
    made = make(*changes, kept=["d/sub/new"], inside={"d": ["d/sub", "d/sub/new"]})
    assert brief(made) == {"d": "restore", "d/sub": "remove", "d/sub/new": "remove"}


def test_never_captured_files_stay_when_their_directory_does() -> None:
    changes = [change("d", DIRECTORY, OLD), change("d/new", NEW, None), change("e/new", NEW, None)]
    made = make(*changes, kept=["d/new", "e/new"], hidden={"d": "d/secret"}, inside={"d": ["d/new"]})
    assert brief(made) == {
        "d": "refused not_covered",
        "d/new": "left never_captured",
        "e/new": "left never_captured",
    }


PARENTS = [
    ("pipe", {"unheld": {"d": "a pipe"}}),
    ("drift", {"policy": SPAN, "now": {"d": OTHER}}),
]


@pytest.mark.parametrize("options", [row[1] for row in PARENTS], ids=[row[0] for row in PARENTS])
def test_nothing_is_put_below_a_refused_parent(options: dict) -> None:
    changes = [change("d", None, DIRECTORY), change("d/e", None, DIRECTORY), change("d/e/f", None, OLD)]
    made = make(*changes, **options)
    assert [item.path for item in made.refused] == ["d", "d/e", "d/e/f"] and not made.steps
    assert made.refused[2].reason == "its directory cannot be made" and made.refused[2].code == "not_covered"


def test_what_is_removed_does_not_mind_a_refused_parent() -> None:
    changes = [change("d", CLOSED, DIRECTORY), change("d/f", NEW, None)]
    assert brief(make(*changes, policy=SPAN, now={"d": Node(Kind.DIRECTORY, 0o700)})) == {
        "d": "refused drift",
        "d/f": "remove",
    }


def test_a_directory_that_stands_already_needs_no_making() -> None:
    """Its mode has drifted and is left; the file in it is just what the record says, and goes back."""
    changes = [change("d", CLOSED, DIRECTORY), change("d/f", NEW, OLD), change("d/g", None, OLD)]
    made = make(*changes, policy=SPAN, now={"d": Node(Kind.DIRECTORY, 0o700)})
    assert brief(made) == {"d": "refused drift", "d/f": "restore", "d/g": "recreate"}


def test_a_name_that_only_begins_like_a_refused_parent_is_no_child() -> None:
    changes = [change("d", None, DIRECTORY), change("d.txt", None, OLD), change("dd/f", None, OLD)]
    made = make(*changes, unheld={"d": "a pipe"})
    assert brief(made) == {"d": "refused not_covered", "d.txt": "recreate", "dd/f": "recreate"}


def test_every_path_is_in_one_place_once() -> None:
    changes = [
        change("a", NEW, OLD),
        change("b", NEW, None),
        change("c", None, DIRECTORY),
        change("c/x", None, OLD),
        change("d", DIRECTORY, OLD),
        change("d/x", NEW, None),
        change("e", NEW, OLD),
        change("f", NEW, None),
    ]
    made = make(
        *changes,
        policy=SPAN,
        now={"e": OLD, "f": OTHER},
        unheld={"c": "a pipe"},
        kept=["b"],
        inside={"d": ["d/x", "d/y"]},
    )
    named = [item.path for part in (made.steps, made.refused, made.left, made.settled) for item in part]
    assert sorted(named) == [each.path.decode() for each in changes]
    assert [item.path for item in made.refused] == sorted(item.path for item in made.refused)
    assert [step.path for step in made.steps] == sorted(step.path for step in made.steps)


def test_steps_carry_what_the_applier_needs() -> None:
    made = make(change("a", NEW, OLD), change("b", None, OLD), change("c", NEW, None))
    assert [(step.action, step.now, step.goal) for step in made.steps] == [
        (Action.RESTORE, NEW, OLD),
        (Action.RECREATE, None, OLD),
        (Action.REMOVE, NEW, None),
    ]


def test_settled_says_so() -> None:
    (outcome,) = make(change("a", NEW, OLD), now={"a": OLD}).settled
    assert outcome.status is Status.SKIPPED and outcome.reason == "already as it should be"


def test_the_digest_is_of_the_plan_and_of_nothing_else() -> None:
    one, again = (make(change("a", NEW, OLD)) for _ in range(2))
    assert one.digest == again.digest and len(one.digest) == 64
    assert one.digest != make(change("a", NEW, OTHER)).digest
    assert one.digest != make(change("a", NEW, OLD), unheld={"a": "a pipe"}).digest


def test_names_that_are_not_text_go_through() -> None:
    path = parse(b"caf\xe9")
    made = plan.make(Wanted([Change(path, NEW, OLD)], {}, SNAPSHOT, {}, {}, {}, {}))
    assert made.steps[0].raw == path and made.steps[0].path_b64


def test_a_large_plan_is_made_in_time_linear_in_its_size() -> None:
    """Ten thousand paths below a hundred directories that must give way."""
    changes = [change(f"d{number:02d}", DIRECTORY, OLD) for number in range(100)]
    inside = {f"d{number:02d}": [f"d{number:02d}/{each:02d}" for each in range(100)] for number in range(100)}
    changes += [change(path, NEW, None) for held in inside.values() for path in held]
    made = make(*changes, inside=inside)
    assert len(made.steps) == 10_100 and not made.refused
