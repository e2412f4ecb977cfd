"""The provider `exclusive-checkout`: a work tree that is there already, and from now on its owner's alone."""

from __future__ import annotations

from putback.errors import UsageError
from putback.git.command import Git
from putback.records.turn import Binding
from putback.turns.providers import Allocation, Removal, Removed, Request, check_suitable, checkout


class ExclusiveCheckout:
    """Allocates nothing and removes nothing: the claim is all there is to it."""

    id = "exclusive-checkout"
    version = 1

    def place(self, request: Request) -> bytes:
        """The named work tree itself. Raises UnsuitableRoot where it is none, or plainly no project."""
        for name, value in (("place", request.place), ("branch", request.branch), ("start", request.start)):
            if value:
                raise UsageError(f"{self.id} makes no work tree: there is no {name} to choose")
        check_suitable(request)
        return checkout(request.git, request.root).root

    def allocate(self, request: Request) -> Allocation:
        return Allocation(request.root)

    def attest(self, git: Git, binding: Binding) -> None:
        """Path and identities are all there is, and the caller has compared them."""

    def release(self, binding: Binding, removal: Removal) -> Removed:
        """Nothing was made, so nothing goes away."""
        with removal.locks():
            removal.record()
        return Removed()
