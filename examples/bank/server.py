#!/usr/bin/env python3
"""A bank as an MCP server, over standard input and output, without dependencies. No real bank is like this, one hopes.

BANK_LEDGER names the file of its payments, one a line. Its first payment of all ends badly: the money leaves, and the
bank crashes before it says so.
"""

import json
import os
import sys

LEDGER = os.environ.get("BANK_LEDGER", "")

TOOLS = [
    {
        "name": "payments",
        "description": "Lists the payments made so far.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "pay",
        "description": "Pays a sum to somebody.",
        "inputSchema": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "sum": {"type": "integer", "minimum": 1}},
            "required": ["to", "sum"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False},
    },
]


def payments():
    try:
        with open(LEDGER, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def pay(to, amount):
    first = not payments()
    with open(LEDGER, "a", encoding="utf-8") as file:
        file.write(f"{amount} to {to}\n")
    if first:
        os._exit(1)  # The money is gone, and nobody is told.
    return f"paid {amount} to {to}"


def call(tool, arguments):
    if tool == "pay":
        return pay(arguments["to"], arguments["sum"])
    return "\n".join(payments()) or "none"


def result(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bank", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": call(params["name"], params["arguments"])}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    found = result(message["method"], message.get("params"))
    if found is None:
        answer["error"] = {"code": -32601, "message": "no such method"}
    else:
        answer["result"] = found
    print(json.dumps(answer), flush=True)
