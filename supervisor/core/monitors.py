"""Who wants to know when a session's process ends: one Down for each monitor, exactly once."""

from dataclasses import dataclass, field

from cmdc_runtime.ids import Incarnation, MonitorRef, SessionId
from cmdc_runtime.reasons import AnyReason, Down


@dataclass(frozen=True, slots=True)
class Monitor:
    """One client's wish; ``client`` is the identity of its connection."""

    ref: MonitorRef
    session_id: SessionId
    client: bytes
    persistent: bool


@dataclass(slots=True)
class Monitors:
    """All monitors of the daemon."""

    _by_ref: dict[MonitorRef, Monitor] = field(default_factory=dict)
    _by_session: dict[SessionId, dict[MonitorRef, Monitor]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._by_ref)

    def __contains__(self, ref: MonitorRef) -> bool:
        """Say whether ``ref`` is set."""
        return ref in self._by_ref

    def add(self, monitor: Monitor) -> None:
        """Set a monitor; the same ref again takes the place of the one before."""
        self.remove(monitor.ref)
        self._by_ref[monitor.ref] = monitor
        self._by_session.setdefault(monitor.session_id, {})[monitor.ref] = monitor

    def remove(self, ref: MonitorRef) -> None:
        """Forget a monitor; an unknown ref is forgotten already."""
        monitor = self._by_ref.pop(ref, None)
        if monitor is None:
            return
        others = self._by_session[monitor.session_id]
        del others[ref]
        if not others:
            del self._by_session[monitor.session_id]

    def fire(
        self,
        session_id: SessionId,
        reason: AnyReason,
        incarnation: Incarnation,
        *,
        restarting: bool,
    ) -> list[tuple[bytes, Down]]:
        """Return the notices to send; a monitor that has had its last one is gone."""
        notices = []
        for monitor in list(self._by_session.get(session_id, {}).values()):
            notices.append(
                (monitor.client, down(monitor, reason, incarnation, restarting=restarting))
            )
            if not (monitor.persistent and restarting):
                self.remove(monitor.ref)
        return notices


def down(
    monitor: Monitor, reason: AnyReason, incarnation: Incarnation, *, restarting: bool
) -> Down:
    """Return the notice for one monitor."""
    return Down(
        ref=monitor.ref,
        session_id=monitor.session_id,
        reason=reason,
        incarnation=incarnation,
        restarting=restarting,
    )
