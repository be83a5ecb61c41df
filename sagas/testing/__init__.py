"""Help for tests of sagas: throw-away servers, process supervision and a TCP proxy that misbehaves.

Nothing in here is imported by the rest of the library.

- `sagas.testing.servers`: a real Postgres and a real Redis for as long as a `with` block lasts.
- `sagas.testing.processes`: child processes that cannot outlive the one that started them.
- `sagas.testing.proxy`: a TCP proxy that resets, swallows, cuts or delays on demand.
"""
