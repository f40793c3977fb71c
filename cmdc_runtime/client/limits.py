"""Every bound of the client: how long it waits, how often it asks, how much it keeps.

Times are seconds. To change one, change it here: nothing else in the client holds a bare number.
"""

from typing import Final

# --- requests -------------------------------------------------------------------------------
COMMAND_TIMEOUT_S: Final = 30.0
"""How long a call waits for its answer unless it is about a cycle or a start."""
START_GRACE_S: Final = 120.0
"""What a start gets on top of its own timeout: the zygote may still be warming up."""
ABSENCE_S: Final = COMMAND_TIMEOUT_S
"""How long a request to a daemon waits for one while none is there, whatever else its time is: a
start for no longer than any other call. A look for one is taken every ``RESEND_S``."""
RESEND_S: Final = 2.0
"""An open request is sent again this often, under its own id; the daemon takes it once."""
READS_MAX: Final = 3
"""Times that an answer of several pages is asked for: its rest may go while it is read."""
TICK_S: Final = 0.02
"""Open requests are looked through at most this often."""
REQUESTS_OPEN_MAX: Final = 10_000
CONNECT_TIMEOUT_S: Final = 10.0
"""How long a daemon that holds its lock may take to answer for the first time."""
CONNECT_RETRY_S: Final = 0.2
"""From one look for the next daemon to another, where the first call waits for one."""
FACTS_S: Final = 2.0
"""How often a busy client asks whether it is still the same daemon that answers."""
STATUS_ANSWER_S: Final = 3.0
"""A session that gives no status for so long is called unresponsive."""
LIST_ANSWER_S: Final = 2.0
"""The same in a list, which it delays at most for so long."""
LIST_TURN_S: Final = 0.1
"""How long one that gives no answer keeps the next one of a list from being asked."""
LIST_PARALLEL_MAX: Final = 64
"""Sessions that are asked at a time, the silent ones apart."""
PROMPTS_REMEMBERED_MAX: Final = 10_000
"""Of so many sessions the client knows its own latest prompt."""
SESSIONS_HELD_MAX: Final = 10_000
"""Of so many sessions the client knows that they went with an embedded daemon."""
INTERRUPT_S: Final = 0.5
"""How often a thread that waits for an answer looks for a signal that has not woken it."""
REPLY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 5.0
UNOWNED_END_S: Final = 2 * STOP_TIMEOUT_S
"""How long a runner that is cancelled waits for the end of the session that it was starting."""

PARALLEL_MAX: Final = 1_000
"""Agents that one ``Parallel.map`` asks at a time."""
AGENTS_MAX: Final = 100_000
"""Agents of one ``Parallel.map``."""

# --- tools of this program ------------------------------------------------------------------
ANSWERS_KEPT_MAX: Final = 1_000
"""Answers to calls of one session that are kept for an agent which asks again after a crash."""
CALL_RETRY_S: Final = 1.0
"""Between two tries to reach a session whose daemon is not there."""
CALL_TRIES_MAX: Final = 100
"""An hour, as each waits for a daemon before it fails; a call has given up long before."""
RESULT_CHARS_MAX: Final = 1_000_000
"""Of a result; the session keeps less of it."""

# --- event streams --------------------------------------------------------------------------
STREAM_EVENTS_MAX: Final = 10_000
"""Events one stream keeps for a consumer that lags; what comes on top is replayed later."""
STREAM_REFILL_EVENTS: Final = STREAM_EVENTS_MAX // 2
"""A stream that lags asks for more when this many events or fewer are left in it."""
AHEAD_EVENTS_MAX: Final = 10_000
"""Live events kept behind a gap until a replay has filled it."""
WELCOME_S: Final = 5.0
"""How long to wait for the word that a subscription has arrived."""
WELCOME_ALL_S: Final = 1.0
REPLAY_RETRY_S: Final = 1.0
REPLAYS_PARALLEL_MAX: Final = 16
"""Of one stream: each asks for one session's events."""
QUESTIONS_PARALLEL_MAX: Final = 32
"""Of all streams of a client: replays and questions how far a session is; an answer has up to
4 MiB."""
HEAD_LOOK_S: Final = 0.5
"""Between two questions how far a session is that a new daemon has no connection to yet."""
SESSIONS_FOLLOWED_MAX: Final = 10_000
"""Sessions whose place a stream of all sessions remembers."""

# --- monitors -------------------------------------------------------------------------------
DOWNS_QUEUED_MAX: Final = 1_000
"""Notices one monitor keeps for a caller that does not fetch them; the oldest go first."""
EARLY_DOWNS_MAX: Final = 100
"""Notices of one monitor buffered because an earlier one is missing; recorded ones come again."""
DOWN_HOLD_S: Final = 3.0
"""How long a notice waits at most for the events before it: a lost last event is noticed within
1.5 s, and a replay that failed is asked for again after one."""
DOWNS_HELD_MAX: Final = 100
"""Notices of one monitor that wait for events; one more, and all of them are delivered."""
RENEWALS_PARALLEL_MAX: Final = 64
"""Monitors that are set again at a time, after a loss or by the next daemon."""
RENEW_RETRY_S: Final = 1.0
"""Before those are tried again that could not be set again."""
CALLBACKS_QUEUED_MAX: Final = 10_000
DEMONITOR_WAIT_S: Final = 5.0
"""How long ``demonitor`` waits for a callback of this monitor that is running."""

# --- ends -----------------------------------------------------------------------------------
READY_TIMEOUT_S: Final = 60.0
"""How long an embedded daemon may take until its sockets are bound."""
DAEMON_STOP_S: Final = 10.0
"""How long an embedded daemon may take to end; SIGKILL follows."""
DAEMON_KILL_S: Final = 5.0
LOG_LINES_SHOWN: Final = 20
LOG_BYTES_SHOWN: Final = 16 * 1024
THREAD_START_S: Final = 10.0
CLOSE_S: Final = DAEMON_STOP_S + DAEMON_KILL_S + 5.0
"""How long ``Client.close`` may take in all."""
CALLBACK_THREAD_STOP_S: Final = 2.0
WAIT_TURN_S: Final = 20.0
"""After which a wait for the end of a cycle is asked for anew: an agent waits no longer upon a
client that has given up in another way than by a time limit, or was killed."""
