"""What a program made with the Python SDK asks of a server: it lists the tools,
runs code, meets a failure, hears of progress, cancels, and closes.

    python python.py auto|legacy COMMAND…   over stdio
    python python.py auto|legacy URL        over HTTP
"""

import json
import os
import sys

import anyio
from mcp import Client, StdioServerParameters


async def main(mode, command, *args):
    seen = {"progress": 0, "cancelled": False}
    server = command
    if not command.startswith("http:"):
        server = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        seen["tools"] = [t.name for t in (await client.list_tools()).tools]
        answer = await client.call_tool("execute_code", {"code": "print(6 * 7)"})
        seen["answer"] = answer.model_dump(mode="json", by_alias=True)
        failure = await client.call_tool("sandbox_list_artifacts", {"session_id": "nobody"})
        seen["failure"] = failure.model_dump(mode="json", by_alias=True)

        with anyio.CancelScope() as scope:

            async def progress(*_):
                seen["progress"] += 1
                scope.cancel()

            await client.call_tool(
                "execute_code", {"code": "import time\nwhile True: time.sleep(1)"}, progress_callback=progress
            )
        seen["cancelled"] = scope.cancelled_caught

        for _ in range(600):
            stats = await client.call_tool("sandbox_stats", {})
            seen["active"] = stats.structured_content["queue"]["active"]
            if seen["active"] == 0:
                break
            await anyio.sleep(0.05)
    print(json.dumps(seen))


anyio.run(main, *sys.argv[1:])
