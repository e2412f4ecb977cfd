"""Guards that no test can miss, and why: another one stands behind each."""

_WHOLE = "a document without its last byte is none, so that decoding refuses it, too"
_STILL = "`check_still` looks at every path again once all have been read"

SPARE: dict[str, str] = {
    "binding.check_root: stat.S_ISLNK(found.st_mode)": "the real path of a link is another one",
    "binding.load: not data.endswith(b'\\n')": _WHOLE,
    "claims.Claims._read: not data.endswith(b'\\n')": _WHOLE,
    "claims.Claims._read: not is_id(claim.binding.id)": "the decoder takes no such id",
    "claims._content: not stat.S_ISREG(os.fstat(descriptor).st_mode)": "what is no file is never a whole claim",
    "selection._read: differ(seen, os.fstat(file.fileno()))": _STILL,
    "selection._read: len(data) != seen.st_size": _STILL,
    "turn.seal: evidence.begun is None": "a turn without its beginning is unknown",
    "turn.sealed_of: sealed is None": "the states in which it is called have a sealed capture",
    "worktree.GitWorktree.attest: not pointer": "an empty pointer leads to no work tree",
}
