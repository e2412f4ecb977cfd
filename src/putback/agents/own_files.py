"""Files that are wholly ours among an agent's hooks: the scripts of Cline and the plugin of opencode.

Each says in its head who wrote it and the digest of the rest, so that one which somebody has changed is told
from one that any version of putback wrote. What is not as we wrote it is neither replaced nor removed. Nothing
is written here.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence

from putback.agents.draft import EXECUTABLE, PLAIN, Edit
from putback.agents.places import Form
from putback.agents.settings_files import SettingsFile
from putback.errors import RefusedError

_MARK = "Written by putback; `putback agent uninstall {agent}` removes it. Digest of the rest: "
_SHEBANG = "#!/bin/sh\n"
_DIGITS = 16

_PLUGIN = """
import { spawn } from "node:child_process"

const COMMAND = @COMMAND@
const TIMEOUT_MS = 120000

// One event is one process, and the agent waits for it; whatever goes wrong with it, the agent goes on.
function tell(event) {
  return new Promise((resolve) => {
    try {
      const [program, ...rest] = COMMAND
      const child = spawn(program, rest, {
        cwd: event.directory,
        stdio: ["pipe", "ignore", "ignore"],
      })
      const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS)
      const done = () => {
        clearTimeout(timer)
        resolve()
      }
      child.on("error", done)
      child.on("close", done)
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(event))
    } catch {
      resolve()
    }
  })
}

export const Putback = async ({ client, directory, worktree }) => {
  const parents = new Map()
  const messages = new Map()
  const pending = new Set()

  // The session that the user works in, above the one given; the given one itself where nobody knows.
  async function above(id) {
    let top = id
    for (let steps = 0; steps < 10; steps += 1) {
      if (!parents.has(top)) {
        try {
          const found = await client.session.get({ path: { id: top } })
          parents.set(top, found?.data?.parentID ?? null)
        } catch {
          parents.set(top, null)
        }
      }
      const parent = parents.get(top)
      if (!parent) break
      top = parent
    }
    return top
  }

  async function report(name, id, more = {}) {
    if (!id) return
    const session = await above(id)
    const actor = session === id ? {} : { actor: id }
    const message = messages.get(session)
    await tell({ event: name, session, message, directory, worktree, ...actor, ...more })
  }

  async function ended(name, id, more = {}) {
    const inner = id && (await above(id)) !== id
    await report(inner ? "subagent.stop" : name, id, more)
  }

  async function heard(event) {
    const given = event?.properties ?? {}
    if (event?.type === "session.created" && given.info?.id) {
      parents.set(given.info.id, given.info.parentID ?? null)
    } else if (event?.type === "session.idle") {
      await ended("session.idle", given.sessionID)
    } else if (event?.type === "session.error") {
      await ended("session.error", given.sessionID, { error: given.error?.name })
    } else if (event?.type === "session.deleted") {
      await ended("session.deleted", given.info?.id)
    }
  }

  return {
    "chat.message": async (input, output) => {
      const id = input?.sessionID
      if (!id) return
      if ((await above(id)) !== id) return report("subagent.start", id)
      messages.set(id, output?.message?.id ?? input.messageID)
      const texts = (output?.parts ?? []).filter((part) => part?.type === "text" && !part.synthetic)
      await report("chat.message", id, { prompt: texts.map((part) => part.text).join("\\n") })
    },
    "tool.execute.before": async (input, output) => {
      await report("tool.execute.before", input?.sessionID, {
        tool: input?.tool,
        call: input?.callID,
        args: output?.args,
      })
    },
    // Nobody waits for an event; at the agent's own end somebody has to.
    dispose: async () => {
      await Promise.allSettled([...pending])
    },
    event: async ({ event }) => {
      const told = heard(event)
      pending.add(told)
      await told.finally(() => pending.delete(told))
    },
  }
}
"""


def content(agent: str, form: Form, command: Sequence[str]) -> str:
    """The text of a file that gives an event to our hook."""
    if form is Form.PLUGIN:
        rest = _PLUGIN.replace("@COMMAND@", json.dumps(list(command)))
        return f"// {_head(agent, rest)}\n{rest}"
    # What the agent reads must be JSON, also where putback is not there any more.
    there = f"[ -x {shlex.quote(command[0])} ]" if "/" in command[0] else f"command -v {command[0]} > /dev/null"
    gone = f"{there} || {{ echo '{{\"cancel\": false}}'; exit 0; }}"
    rest = f"{gone}\nexec {shlex.join(command)}\n"
    return f"{_SHEBANG}# {_head(agent, rest)}\n{rest}"


def put_in(agent: str, form: Form, file: SettingsFile, text: str) -> Edit:
    """The edit that makes the file ours. Raises RefusedError where it is somebody else's."""
    found = _text(file)
    if file.data is not None and not is_unchanged(agent, found):
        changed = _MARK.format(agent=agent) in found
        what = "has been changed since putback wrote it" if changed else "is there already, and is not putback's"
        last = text.strip().rpartition("\n")[2].removeprefix("exec ")
        instead = f", or have it run `{last}` with its own input" if form is Form.SCRIPTS else ""
        raise RefusedError(f"{str(file.path)!r} {what}; nothing was written", hint=f"move it away{instead}")
    return Edit(file, text.encode("utf-8", "surrogateescape"), EXECUTABLE if form is Form.SCRIPTS else PLAIN)


def take_out(agent: str, file: SettingsFile) -> Edit:
    """The edit that removes the file if it is ours. Raises RefusedError where what we wrote has been changed."""
    found = _text(file)
    if is_unchanged(agent, found):
        return Edit(file, None)
    if _MARK.format(agent=agent) in found:
        what = "has been changed since putback wrote it"
        raise RefusedError(f"{str(file.path)!r} {what}; nothing was removed", hint="remove it yourself")
    return Edit(file, file.data)


def is_unchanged(agent: str, text: str) -> bool:
    """Whether putback, of whatever version, wrote the text as it is."""
    head, _, rest = text.removeprefix(_SHEBANG).partition("\n")
    return head in (f"# {_head(agent, rest)}", f"// {_head(agent, rest)}")


def _text(file: SettingsFile) -> str:
    return (file.data or b"").decode("utf-8", "surrogateescape")


def _head(agent: str, rest: str) -> str:
    digest = hashlib.sha256(rest.encode("utf-8", "surrogateescape")).hexdigest()
    return _MARK.format(agent=agent) + digest[:_DIGITS]
