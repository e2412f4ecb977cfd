"""What an agent that has lost its way does to the project in the current directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def say(text: str) -> None:
    print(f"  agent: {text}", flush=True)


def main() -> int:
    for command in (["git", "reset", "-q", "--hard"], ["git", "clean", "-fdq"]):
        subprocess.run(command, check=True)
        say(" ".join(command))
    files = sorted(Path("src").rglob("*.py"))
    rewritten, deleted = files[::3], files[1::3]
    for path in rewritten:
        path.write_bytes(path.read_bytes().upper())
    for path in deleted:
        path.unlink()
    for number in range(200):
        path = Path("generated") / f"group{number % 10}" / f"helper{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def helper{number}(): ...\n")
    say(f"{len(rewritten)} files rewritten, {len(deleted)} deleted, 200 added")
    Path("run.sh").chmod(0o644)
    for path in files[2::9]:
        path.chmod(0o777)
    Path("latest").unlink()
    Path("latest").mkdir()
    Path("latest/readme").write_text("this was a link\n")
    shutil.rmtree("src/rich")
    Path("src/rich").write_text("this was a package\n")
    say("modes changed, a link became a directory, a package became a file")
    return 0


if __name__ == "__main__":
    sys.exit(main())
