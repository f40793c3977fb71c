"""``shell``: one command of the session's sandbox, bounded in time and output.

What it leaves in the background ends with it. Its output is kept in a file if it is long; the model
gets its two ends.
"""

import re
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from cmdc_runtime.extensions.sandbox import ExecuteSettings, Execution, ShellKind
from cmdc_runtime.tools import SHELL_TIMEOUT_S
from workers.builtin.sandboxes.local import sandbox_of

TIMEOUT_MARGIN_S: Final = 10.0
"""The runner's own timeout comes after ours, which says more."""

_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_CALL_ID_CHARS_MAX: Final = 64


def create(
    timeout: float = SHELL_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    shell: ShellKind | None = None,
) -> Tool:
    """Return the tool; no command takes longer than ``timeout`` seconds."""
    longest_s, extra, kind = timeout, dict(env or {}), shell

    async def run(  # noqa: D417 - the context is not the model's
        command: Annotated[str, Meta(min_length=1)],
        timeout: Annotated[float, Meta(gt=0, le=longest_s)] = longest_s,  # noqa: ASYNC109
        *,
        context: Context,
    ) -> str:
        """Run a shell command in the working directory and return its output and errors.

        There is no terminal and no input. Long output is cut in the middle and kept in a file.

        Args:
            command: The command line, of at most 131,071 bytes; what is longer, such as the text of
                a file, is written with another tool first.
            timeout: Seconds after which the command is killed, if it is to be sooner than usual.
        """
        settings = ExecuteSettings(
            timeout_s=timeout,
            env={
                **extra,
                "CMDC_SESSION_ID": context.session_id,
                "CMDC_INCARNATION": str(context.incarnation),
            },
            output_file=_output_path(context),
            shell=kind or (context.config_facts or {}).get("shell"),
        )
        return _result(await sandbox_of(context).execute(command, settings), timeout)

    bound_s = longest_s + TIMEOUT_MARGIN_S
    return tool(name="shell", effects="write", meta=_meta, timeout=bound_s)(run)


def _meta(args: dict[str, Any]) -> str:
    return f"Run {args.get('command')}"


def _output_path(context: Context) -> str:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    call_id = _NOT_IN_FILE_NAMES.sub("_", context.call_id)[:_CALL_ID_CHARS_MAX]
    return f".cmdc/output/{now}-{call_id}.txt"


def _result(execution: Execution, timeout_s: float) -> str:
    output, status = execution.output.rstrip("\n"), execution.exit_status
    if status == 0:
        return output or "(no output)"
    if status is None:
        end = f"[killed: not done within {timeout_s:g} s]"
    elif status < 0:
        end = f"[killed by {signal.Signals(-status).name}]"
    else:
        end = f"[exit status {status}]"
    raise ToolError(f"{output}\n{end}" if output else end)
