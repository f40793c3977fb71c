"""Bounds of the daemon, part by part, each with its unit in the name and its reason beside it.

A bound that concerns one module alone may stand there instead, written in the same way. One that a
person may choose is a field of ``config.DaemonConfig`` and has its default there. To add one here,
add a constant below the part that it belongs to, and a test that reaches it.
"""

from typing import Final

# Journal: callers -> writer thread -> file.
JOURNAL_QUEUED_MAX: Final = 10_000
"""Operations on their way; at 20 us each the last one waits for about 0.2 s."""
JOURNAL_QUEUED_BYTES_MAX: Final = 64 * 2**20
"""Bodies on their way; a part of a message has at most 16 MiB, so four of the largest fill it."""
JOURNAL_GROUP_MAX: Final = 256
"""Operations that share one transaction; beyond it the fixed cost of a commit is small."""
JOURNAL_LOCK_WAIT_S: Final = 1.0
"""For another process to let go of the file; the kernel does it at once for a dead one."""
JOURNAL_TABLE_WAIT_S: Final = 5.0
"""For somebody who works on a table of a journal on a server to let go of it. Beyond it what is
under way waits as for a server that is away."""
JOURNAL_STATEMENT_S: Final = 15.0
"""For one statement of a journal on a server; a long history takes it a second."""
JOURNAL_CONNECT_PAUSE_S: Final = 0.2
"""After a server could not be reached: whoever asks meanwhile is refused at once."""
JOURNAL_OUTCOME_S: Final = 3.0
"""For a server that went away in a commit to come back and say what became of it."""
JOURNAL_OUTCOME_PAUSE_S: Final = 0.05
"""Between two tries to connect for that."""
JOURNAL_CLOSE_S: Final = 10.0
"""For the writer to store what is queued; a full queue takes it less than 1 s."""
JOURNAL_WAL_BYTES_MAX: Final = 64 * 2**20
"""What SQLite leaves of its write-ahead log after a checkpoint; a burst may exceed it."""
JOURNAL_HELD_MAX: Final = 100_000
"""Operations that wait for room on a full disk: agents stop at their next tool or end of a cycle,
so each of the sessions has a few. Beyond it a session's process is ended, as with a full queue."""
JOURNAL_HELD_BYTES_MAX: Final = 256 * 2**20
"""Bodies that wait for room."""
JOURNAL_RESERVE_BYTES: Final = 8 * 2**20
"""Kept on the disk for when it is full: some thousand steps of what runs then."""
JOURNAL_LAST_BYTES: Final = 2**20
"""The part of it that is kept for ends; one takes about 20 kB in the write-ahead log."""
JOURNAL_ROOM_LOOK_S: Final = 1.0
"""Between two looks whether a full disk has room again."""
JOURNAL_WAL_PAGES: Final = 2_000
"""Pages in the write-ahead log, about, when they are copied to the file; it takes four syncs. After
a crash each of them takes a start of the daemon 0.1 ms to check."""
JOURNAL_WAL_KEPT_BYTES: Final = 16 * 2**20
"""What is left of the log after a checkpoint, on the disk and in memory: twice what there is of it
as a rule. What a burst has written beyond is given back."""
JOURNAL_PROGRESS_FIRST_S: Final = 1.0
"""Of a start's work on the journal; what is over by then is not worth a line in the log."""
JOURNAL_PROGRESS_S: Final = 5.0
"""Between two lines about it from then on; 1 GiB that is edited or damaged takes several."""
JOURNAL_COPIES_KEPT: Final = 3
"""Damaged files that are kept in quarantine, the newest; each is as large as the journal was."""
BACKUP_STEP_PAGES: Final = 64
"""Copied between two commits by a backup; they take about half a millisecond."""
REPLAY_BATCHES_MAX: Final = 1_000
"""Event batches in one answer of the journal: bounds the answer and the writer's pause."""
DOWNS_KEPT_MAX: Final = 1_000
"""Recorded ends of one session: by the default restart intensity those of half an hour of crashes
without a pause. Who was away for more of them hears of the newest."""
PRUNE_INTERVAL_S: Final = 3_600.0
"""Between two looks for ended sessions that are old enough to go."""
PRUNED_AT_ONCE: Final = 10
"""Sessions in one step of such a look: bounds what other writes wait for."""
SNAPSHOTS_KEPT: Final = 2
"""Of one session: the newest, and a way back if that one cannot be read."""
COMMANDS_KEPT: Final = 10_000
"""Answered commands of one live session, for callers that ask again; at 300 bytes each 3 MB."""
EVENTS_KEPT: Final = 50_000
"""Batches of durable events of one live session, for readers who were away; at 500 bytes 25 MB."""
PRUNED_MAX: Final = 100
"""Ended sessions deleted in one operation, however many are asked for."""
DOWNS_READ_MAX: Final = 100
"""Ends in one answer of the journal; one may hold a traceback."""

# Runtime directory.
LOCK_TRIES_MAX: Final = 20
"""A prober holds the lock for microseconds; only a daemon holds it through all tries."""
LOCK_RETRY_S: Final = 0.01
"""Between two tries."""

# Clients.
COMMANDS_PENDING_MAX: Final = 2_000
"""Commands of one session that wait for its answer; the next one is refused as Overloaded."""
EARLY_ANSWERS_MAX: Final = 64
"""Answers of one session that are remembered, to commands that the journal had no room for, and to
questions that are given to no other process."""
MONITORS_MAX: Final = 100_000
"""Monitors of all clients; one costs about 0.5 kB."""
MONITORS_SWEEP_MIN: Final = 1_000
"""Fewer monitors are not worth a search for those of clients that are gone."""
CLIENT_SILENT_S: Final = 120.0
"""A client with monitors asks for the facts every 2 s. Monitors of one that was silent for so long
may be forgotten; it notices when it asks again, and sets them anew."""
NOTICE_COUNTS_MAX: Final = 20_000
"""Clients whose Down notices are counted; one that is forgotten sets its monitors anew."""
REPLAY_BYTES_MAX: Final = 4 * 2**20
"""Of the batches in one answer of the journal, and in one answer to Replay, which end with the one
that fills it; the client asks again for the rest."""
REASONS_KEPT_MAX: Final = 1_000
"""Ended sessions whose last reason is answered from memory; older ones come from the journal."""
INACTIVE_LISTED_MAX: Final = 500
"""Sessions in one list of those that are parked or ended: the parked first, then the newest. Those
that ended under an earlier daemon come from the journal."""

# Workers.
HISTORY_BYTES_MAX: Final = 2**20
"""Of one History frame; a longer history takes several."""
HISTORY_ITEMS_MAX: Final = 5_000
"""Records and commands of one History frame."""
HOLES_MAX: Final = 16
"""Holes in the numbers of a session's rows that are sent one by one; each is recorded."""
SPARE_PAUSE_S: Final = 0.05
"""Between a spare's leaving and the fork of the next one: the new agent starts undisturbed."""
SPARE_ANSWER_S: Final = 0.5
"""For a spare to show that it lives, before it is handed out; one that does takes a millisecond."""
START_LOOK_S: Final = 0.5
"""Between two looks whether a process that becomes an agent was stopped by a signal; one that both
looks find so is replaced."""
REPLACED_MAX: Final = 3
"""Processes of one start that are replaced so; the next one is a failure of the start."""
SPARE_RETRY_S: Final = 1.0
"""Before spares are forked again after a fork failed."""
SWEEP_RETRY_S: Final = 1.0
"""Before orphans are looked for again, when there was no descriptor to look with."""
ACQUIRE_S_MAX: Final = 300.0
"""For a restarted session to get a process at all, while a new zygote gets warm: two tries."""
FORK_RETRY_S: Final = 0.05
"""Before a restarted session tries again to get a process; it doubles from there."""
FORK_RETRY_S_MAX: Final = 2.0
"""No such pause is longer."""
FULL_IDLE_S: Final = 20.0
"""Without a fork, until the zygote that has litellm is warmed, which takes a core for 2 s."""
IMPORTS_UNTIL_LEARNED: Final = 2
"""Of the SDK of MCP by agents, until the zygotes have it: forks wait 1 s for that, once."""
STARTS_WAITING_MAX: Final = 1_000
"""Sessions that are being started at a time, unless the configuration says otherwise."""
START_PLACE_S: Final = 5.0
"""For a process to become an agent, until the next one may begin to: one that takes longer waits
for something, and leaves the processors to others."""
START_STACK_S: Final = 0.5
"""For a process whose start takes too long to write its stacks, before it is killed for that."""
HANDSHAKE_S: Final = 10.0
"""For a forked worker to say that it is ready."""
HOST_END_S: Final = 5.0
"""For a killed tool host, and all that ran in it, to be gone before its agent is replaced."""
HEARTBEAT_SLOTS: Final = 100_256
"""Of the heartbeat table: as many sessions as can be configured, spares and the dying. A slot has
its memory when it is taken first, so all others cost nothing."""
SPARE_SILENT_S: Final = 30.0
"""Without a heartbeat, until a spare is killed: as long as an agent has by default."""
OOM_LOOK_S: Final = 1.0
"""Between two looks at the OOM kills of sessions with a memory limit: a tool that was killed before
the last look says nothing about the end of its agent."""
CGROUP_RETRY_S: Final = 1.0
"""Between two tries to remove cgroups that the kernel did not let go of."""
WATCH_RETRY_S: Final = 1.0
"""Before a watch over all workers that has failed goes on."""
LAST_OUTPUT_S: Final = 0.05
"""For what a dead worker has written to be read; something else may hold its output open."""
LAST_FRAMES_S: Final = 0.25
"""For what a dead worker had sent to be read, before its end is reported."""
LAST_FRAMES_LOOK_S: Final = 0.0005
"""Between two looks whether all of it was read."""
STOP_ALL_S: Final = 10.0
"""For all sessions to end when the daemon does."""
STOP_TIMEOUT_S_MAX: Final = 3_600.0
"""The longest grace that a caller of stop may ask for."""

# Sessions.
SESSIONS_DEEP_MAX: Final = 32
"""Sessions above one another: four times what ``max_depth`` allows. The tree is recursive."""
ADOPTED_AT_ONCE_MAX: Final = 256
"""Sessions of an earlier daemon that are decided on together: as many as share one commit."""
ADOPT_WAIT_S: Final = 5.0
"""For the agents of an earlier daemon to call, before the first client is heard all the same; they
call twice a second, one that is busy in somebody's code later."""
ADOPT_SILENT_S_MIN: Final = 15.0
"""One that has not called by then hangs, if its own ``unresponsive_after`` is not longer: hundreds
may call at once, on a machine that has few processors."""
ACK_EVENTS_S: Final = 0.1
"""From the publication of an event until it is asked whether its agent need still keep it. What has
no ack an agent would send again."""
FLUSH_PACE_S: Final = 0.02
"""Between two questions of the daemon to itself whether ZeroMQ has passed on what it was given."""
FLUSH_ROUND_S_MAX: Final = 15.0
"""For one of them; then it counts as answered, and is logged. While agents are adopted nobody is
heard at the control socket, this daemon neither."""

PIECES_OPEN_MAX: Final = 4
"""Checkpoints that come in pieces at a time: each is held in memory, with up to 64 MiB. As many
images and files do so, with up to 16 MiB each."""
PIECES_IDLE_S: Final = 60.0
"""Without a piece, until a checkpoint that was given up makes room for another."""
PAST_BYTES_MAX: Final = 16 * 2**20
"""Of the rows in one answer about a session's past, for each of which the journal reads all."""
STATUS_BYTES_MAX: Final = 64 * 1024
"""Of the status with which an agent hibernates: some hundred bytes, with approvals more."""
READERS_MAX: Final = 4
"""Processes that answer for hibernated sessions at a time; who asks others waits for one to end."""
READER_IDLE_S: Final = 2.0
"""Without a question, until such a process ends: a long answer is read page by page."""
READER_ANSWER_S: Final = 60.0
"""For one question to it, its start and the journal included; a long conversation takes seconds."""

# MCP servers that sessions share.
SERVERS_MAX: Final = 256
"""Of the daemon; each is a process of the server's own beside its host."""
SERVERS_OF_AGENT_MAX: Final = 64
"""That one process of a session has wanted: a session declares no more at a time."""
SERVER_LINGER_S: Final = 10.0
"""A host goes on without a session: those that come one after another share it, too."""
SERVER_SILENT_S: Final = 30.0
"""Without a heartbeat of a host; it only passes lines on."""
SERVER_START_S: Final = 20.0
"""For a host to listen; from a spare process it takes milliseconds."""
SERVER_RESTARTS_MAX: Final = 10
"""Within ``SERVER_WINDOW_S``. A session gives a server up after three; several of them that come
one after another may see more."""
SERVER_WINDOW_S: Final = 60.0
SERVER_REFUSED_S: Final = 60.0
"""A server that has ended more often than that is not started again before."""
SERVER_FAILURES_KEPT_MAX: Final = 1_000

# Hub.
RING_BYTES_MAX: Final = 8 * 2**20
"""Of one session's ring, however many events its options allow."""
WATERMARK_S: Final = 0.5
"""Between two watermarks of a session whose events still come."""
WATERMARKS_AFTER: Final = 3
"""Watermarks after a session's last event: enough for a lost tail to be noticed."""
WATERMARK_IDLE_S: Final = 10.0
"""Between two watermarks of a session without news that somebody listens to: a subscriber that was
stopped may have lost the last event and every word of it. Heard ones cost 5 us each."""
WATERMARKS_AT_ONCE_MAX: Final = 500
"""Watermarks in one turn of the loop: 5 ms, and far fewer than a subscriber's pipe holds."""
PUBLISH_WAIT_S: Final = 5.0
"""For taken events to be published, which wait for the journal's commit: as long as the journal has
to answer the self-check. Whoever waited has to do without them, or asks again."""
EVENTS_WAITING_BYTES_MAX: Final = 8 * 2**20
"""Of one session's events that wait for the journal. Beyond it the ephemeral ones behind a durable
one are let go and reported as lost; a process whose records can't be stored either is ended."""
INDEX_JUMP: Final = 1_000_000
"""Indexes skipped when a new daemon takes a session over: more than the ephemeral events that may
have been published after its last durable one."""
REPORTS_KEPT_MAX: Final = 1_000
"""Reports of the supervision tree that a late reader still gets."""
CHANNELS_ENDED_MAX: Final = 256
"""Ended sessions whose ring is still there for late readers."""
GROUPS_KNOWN_MAX: Final = 10_000
"""Groups whose newest number is remembered; a follower of a forgotten one looks through the list of
sessions once more than needed."""

# PartStates: whether the daemon itself still works.
SELF_CHECK_INTERVAL_S: Final = 5.0
"""Between two rounds of questions, and for the answers of one; a watchdog may want it shorter."""
SELF_CHECK_RETRY_S: Final = 0.05
"""Before a part that is too busy for a question is asked again."""
LOOP_LOOK_S: Final = 0.5
"""Between two looks at the loop, and two heartbeats of it; four wake-ups a second cost nothing."""
LOOP_STALL_S: Final = 2.0
"""Without a turn of the loop, until that is reported; its longest step should take 0.01 s."""
PAUSE_S: Final = 1.5
"""Between two looks that should be 0.5 s apart: then it was the process that did not run."""
STACK_LINES_MAX: Final = 40
"""Innermost calls of a stack in the log."""
STATUS_INTERVAL_S: Final = 1.0
"""Between two lines to the service manager; a person reads them."""
STATUS_CHARS_MAX: Final = 200
"""Of such a line; what ``systemctl status`` shows beyond it wraps."""
RELOAD_S: Final = 5.0
"""For the configuration to be read again; a file on a dead network share never comes."""
