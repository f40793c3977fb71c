"""A Unix socket before the real one of a PostgreSQL server, which loses what a test asks it to."""

import contextlib
import selectors
import socket
import threading

SOCKET = ".s.PGSQL.5432"
PATIENCE_S = 10.0


class Proxy:
    """Hands bytes on in both directions, one thread for each connection.

    ``lose_answer`` lets the next message with these bytes through, and ends the connection before
    its answer; ``lose_message`` ends it before the message is through. ``is_closed`` refuses new
    connections meanwhile. ``lost`` is set when it has happened.
    """

    def __init__(self, folder, target):
        self.url_host = folder
        self.lose_answer = self.lose_message = None
        self.is_closed = False
        self.closes_after = False
        self.lost = threading.Event()
        self._target = f"{target}/{SOCKET}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/{SOCKET}")
        self._listener.listen()
        self._ended = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self):
        """End all connections and threads."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()

    def _accept(self):
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_closed or self._ended:
                client.close()
                continue
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client):
        server = socket.socket(socket.AF_UNIX)
        with client, server, selectors.DefaultSelector() as selector:
            server.connect(self._target)
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while not self._ended:
                for key, _ in selector.select(0.05):
                    if not self._hand_on(key.fileobj, client, server):
                        return

    def _hand_on(self, source, client, server):
        try:
            heard = source.recv(65_536)
        except OSError:
            return False
        if not heard:
            return False
        if source is client and self._is_in(self.lose_message, heard):
            return self._lose()
        if source is client and self._is_in(self.lose_answer, heard):
            server.sendall(heard)
            server.recv(65_536)  # the answer: it is done
            return self._lose()
        (server if source is client else client).sendall(heard)
        return True

    def _is_in(self, wanted, heard):
        return wanted is not None and wanted in heard

    def _lose(self):
        self.lose_answer = self.lose_message = None
        self.is_closed = self.is_closed or self.closes_after
        self.lost.set()
        return False
