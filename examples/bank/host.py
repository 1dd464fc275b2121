#!/usr/bin/env python3
"""A host of MCP servers that wants to pay 40 to ann, once, and tries again when it is not told that it did.

    host.py LEDGER -- SERVER ARGUMENT…

starts the server with BANK_LEDGER=LEDGER. At the end it says what is in the ledger: how often it paid.
"""

import json
import os
import subprocess
import sys

TRIES = 3
PAYMENT = {"to": "ann", "sum": 40}


class Gone(Exception):
    """The server ended and gave no answer."""


class Server:
    """A server that was started and greeted."""

    def __init__(self, command, ledger):
        self.asked = 0
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "BANK_LEDGER": ledger},
            text=True,
        )
        info = {"name": "hasty", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self.ask("initialize", hello)
        self.say({"method": "notifications/initialized"})

    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.asked += 1
        self.say({"id": self.asked, "method": method, "params": params})
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.asked:
                return message["result"]
        raise Gone

    def call(self, wanted, arguments):
        tools = self.ask("tools/list", {})["tools"]
        name = next(tool["name"] for tool in tools if tool["name"].endswith(wanted))
        return self.ask("tools/call", {"name": name, "arguments": arguments})["content"][0]["text"]

    def leave(self):
        self.process.stdin.close()
        self.process.wait()


def main(ledger, command):
    server = Server(command, ledger)
    for number in range(1, TRIES + 1):
        print(f"host: pay 40 to ann, try {number}", flush=True)
        try:
            said = server.call("pay", PAYMENT)
        except Gone:
            print("host: the server is gone, so I start it anew", flush=True)
            server.leave()
            server = Server(command, ledger)
            continue
        print(f"told: {said}", flush=True)
        if "paid 40 to ann" in said:
            break
    server.leave()
    with open(ledger, encoding="utf-8") as file:
        paid = file.read().splitlines()
    print(f"bank: {len(paid)} payment{'' if len(paid) == 1 else 's'}: {', '.join(paid)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3:])
