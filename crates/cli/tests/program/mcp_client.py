"""The client of the official library: reads calls as JSON lines, makes them of the program in its arguments, and prints the answers."""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters


async def main(mode, program, arguments, folder, store):
    server = StdioServerParameters(
        command=program, args=arguments, cwd=folder, env={"OSTLER_STORE": store, "TZ": "UTC"}
    )
    async with Client(server, mode=mode) as client:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            call = json.loads(line)
            try:
                if call["call"] == "list":
                    listed = await client.list_tools()
                    answer = [tool.model_dump(by_alias=True, exclude_none=True) for tool in listed.tools]
                elif call["call"] == "about":
                    info = client.server_info
                    answer = [client.protocol_version, info.name, info.version, client.instructions]
                else:
                    done = await client.call_tool(call["call"], call["arguments"])
                    answer = {"error": bool(done.is_error), "text": "".join(block.text for block in done.content)}
            except MCPError as error:
                answer = {"refused": str(error)}
            print(json.dumps(answer), flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], sys.argv[5]))
