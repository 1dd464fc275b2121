#!/usr/bin/env python3
"""The smallest agent: looks at a folder, says what it saw, and is done.

A template for your own. Needs nothing but Python 3.8. The protocol: docs/agent-protocol.md.

    portcullis run --agent exec:"python3 examples/agents/echo.py" --files DIR "look around"
"""

import json
import sys


def hear():
    """The next message from the gate, or None at the end."""
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None


def say(message):
    """One message to the gate: one line. Nothing else may go to standard output."""
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def decide(view):
    """The next proposal. Replace this."""
    if not view["history"]:
        return {"kind": "tool_call", "tool": "files.list", "reason": "to see what is there"}
    last = view["history"][-1]
    if last["outcome"] != "tool_result":
        return {"kind": "fail", "message": "I could not look: " + last["outcome"]}
    return {"kind": "complete", "result": {"seen": len(last["content"]["entries"])}}


def main():
    hello = hear()
    if hello is None or 1 not in hello["versions"]:
        sys.exit("this agent speaks version 1 of the agent protocol")
    say({"type": "hello", "version": 1})
    while True:
        message = hear()
        if message is None or message["type"] == "end":
            return
        proposal = decide(message)
        proposal["request"] = message["request"]
        say(proposal)


if __name__ == "__main__":
    main()
