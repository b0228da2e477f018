"""A replica's place among a provider's child processes: its port and address stay, its process may be replaced."""

from __future__ import annotations

from openenv_trl.providers.base import Replica
from openenv_trl.providers.ports import PortReservation
from openenv_trl.providers.replica_process import ReplicaProcess


class Slot:
    """One replica's place: its port stays, its process may be replaced."""

    def __init__(self, name: str, reservation: PortReservation) -> None:
        self.reservation = reservation
        host = f"[{reservation.host}]" if ":" in reservation.host else reservation.host
        self.replica = Replica(f"http://{host}:{reservation.port}", name)
        self.process: ReplicaProcess | None = None
        self.ready = False
        self.restarts = 0


def end_slot(slot: Slot) -> None:
    """Ends the slot's process, blocking."""
    if slot.process is not None:
        slot.process.ask_to_stop()
        slot.process.wait_stopped()
    slot.reservation.close()
