"""A local HTTP server whose every answer takes 10 ms, for all sides alike. Prints its address, then serves."""

from __future__ import annotations

import asyncio
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(0.01)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until whoever asked for it is gone


if __name__ == "__main__":
    asyncio.run(main())
