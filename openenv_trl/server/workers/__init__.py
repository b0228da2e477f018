"""Several worker processes behind one port: one limit on sessions, and each request in the worker that has its session.

A small parent (`parent`) starts the workers, which accept from one listening socket. They count their sessions in
memory that they share (`ledger`). A session's id tells its worker (`affinity`); a WebSocket that names a session is
passed to that worker as a file descriptor (`handover`), an HTTP request is forwarded to it (`forwarding`).
"""
