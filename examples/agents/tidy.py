#!/usr/bin/env python3
"""Tidies a folder: each file goes into a subfolder for its kind, and none is ever overwritten.

It can do nothing by itself: it asks the gate, one action at a time, and lives with the answer. What the
gate or a person refused is left where it is and named at the end. It keeps no notes: when it is started
again in the middle of a run, it lists the folder again and goes on with what is not yet in its place.

Needs nothing but Python 3.8. The protocol: docs/agent-protocol.md.

    portcullis run --agent exec:"python3 examples/agents/tidy.py" --files DIR "tidy this folder"
"""

import json
import os.path
import sys

FOLDERS = {
    "archives": "7z bz2 gz rar tar tgz xz zip",
    "code": "c css go html java js json py rb rs sh toml ts xml yaml yml",
    "documents": "doc docx epub odp odt pdf ppt pptx rtf",
    "images": "bmp gif heic jpeg jpg png svg tif tiff webp",
    "notes": "adoc log md org rst tex txt",
    "sounds": "flac m4a mp3 ogg opus wav",
    "tables": "csv ods tsv xls xlsx",
    "videos": "avi mkv mov mp4 webm",
}
FOLDER_OF = {ending: folder for folder, endings in FOLDERS.items() for ending in endings.split()}
OTHER = "other"

# A file without a known ending is looked into when it is not larger than this, in bytes.
SMALL = 64 * 1024

# After so many denials in a row it stops asking.
MAX_DENIALS = 5

# How many names are tried beside the files that are already in a folder.
MAX_NAMES = 100


# --- the protocol ---------------------------------------------------------------------------------


def hear():
    """The next message from the gate, or None at the end. A line ends at a line feed and nowhere else."""
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None


def say(message):
    """One message to the gate: one line. Nothing else may go to standard output."""
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def main():
    hello = hear()
    if hello is None or hello.get("type") != "hello" or 1 not in hello.get("versions", []):
        sys.exit("this agent speaks version 1 of the agent protocol")
    say({"type": "hello", "version": 1})
    agent = None
    while True:
        view = hear()
        if view is None or view["type"] == "end":
            return
        if agent is None:
            agent = tidy(view)
            proposal = next(agent)
        else:
            proposal = agent.send(view)
        say(dict(proposal, request=view["request"]))


# --- the work -------------------------------------------------------------------------------------


class GiveUp(Exception):
    """The rest of the work cannot be done."""


def tidy(view):
    """A generator: yields proposals, is sent the next view for each, and never ends."""
    work = Work(view)
    try:
        yield from work.put_all_away()
        yield {"kind": "complete", "result": work.result(), "reason": work.summary()}
        problem = "there is nothing left to do"
    except GiveUp as reason:
        problem = str(reason)
    while True:
        yield {"kind": "fail", "message": problem + "; " + work.summary()}


class Work:
    """What this process knows of the run."""

    def __init__(self, view):
        self.steps_left = view["steps_left"]
        self.denials = 0  # in a row
        self.moved = []  # where files are now, by what the gate told of this run
        self.left = {}  # file -> why it stays where it is
        self.folders = set()  # those that are there
        self.others = set()  # names beside the folders
        self.taken = {}  # folder -> names in it, once it was looked into
        self.refused_folders = set()
        self.look_again = False
        self.forgotten = view["omitted"]  # earlier steps that the gate did not repeat
        for step in view["history"]:
            self.learn_refusal(step)
            self.learn_move(step)

    def learn_move(self, step):
        """What was moved is told by the gate: also what happened before this process was started."""
        arguments = step.get("arguments") or {}
        if step.get("tool") == "files.move" and step["outcome"] == "tool_result":
            if isinstance(arguments.get("to"), str):
                self.moved.append(arguments["to"])

    def learn_refusal(self, step):
        """After a restart: what was refused before stays refused."""
        arguments = step.get("arguments") or {}
        if step["outcome"] != "denied":
            return
        if step.get("tool") == "files.move" and isinstance(arguments.get("from"), str):
            self.left[arguments["from"]] = "refused before"
        if step.get("tool") == "files.make_folder" and isinstance(arguments.get("path"), str):
            self.refused_folders.add(arguments["path"])

    def put_all_away(self):
        """Everything that is not in its place, until nothing is left that could be moved."""
        while True:
            self.look_again = False
            entries, cut, problem = yield from self.list(".")
            if problem is not None:
                raise GiveUp("I cannot list the folder: " + problem)
            self.folders.update(entry["name"] for entry in entries if entry["kind"] == "directory")
            self.others = {entry["name"] for entry in entries} - self.folders
            todo = [entry for entry in entries if self.is_ours(entry)]
            for entry in todo:
                yield from self.put_away(entry)
            if cut and not todo:
                raise GiveUp("the folder has more entries than can be listed")
            if not cut and not self.look_again:
                return

    def call(self, tool, arguments, reason):
        """Proposes a call; gives the outcome and the content that came of it."""
        if self.steps_left <= 1:
            # The last step is for saying how it went.
            raise GiveUp("the steps of this run do not suffice")
        if self.denials >= MAX_DENIALS:
            raise GiveUp("what I ask for is refused again and again")
        view = yield {"kind": "tool_call", "tool": tool, "arguments": arguments, "reason": reason}
        self.steps_left = view["steps_left"]
        last = view["history"][-1]
        self.learn_move(last)
        self.denials = self.denials + 1 if last["outcome"] == "denied" else 0
        return last["outcome"], last["content"]

    def list(self, path):
        """Entries of a folder, whether there are more, and what went wrong."""
        arguments = {"path": path}
        outcome, content = yield from self.call("files.list", arguments, "to see what is there")
        if outcome != "tool_result":
            return [], False, why(outcome, content)
        return content["entries"], content["cut"], None

    def is_ours(self, entry):
        """Files in plain sight that can be moved and were not given up on. The rest stays as it is."""
        name = entry["name"]
        if entry["kind"] != "file" or name.startswith(".") or name in self.left:
            return False
        if entry.get("unreadable_name") or entry.get("hard_linked"):
            self.left[name] = "it cannot be addressed safely"
            return False
        return True

    def put_away(self, entry):
        """One file into its folder. A file that cannot be is remembered in `left`."""
        name = entry["name"]
        kind, reason = yield from self.kind_of(entry)
        folder = free_name(kind, self.others) or kind
        problem = yield from self.ensure(folder)
        if problem is None:
            problem = yield from self.move(name, folder, reason)
        if problem is not None:
            self.left[name] = problem

    def kind_of(self, entry):
        """The folder that a file belongs in, and why: by its ending, else by what is in it."""
        ending = os.path.splitext(entry["name"])[1][1:].lower()
        if ending in FOLDER_OF:
            return FOLDER_OF[ending], "by its ending it belongs to the " + FOLDER_OF[ending]
        if entry["size"] > SMALL:
            return OTHER, "its ending is unknown and it is too large to look into"
        reason = "its ending does not say what it is"
        arguments = {"path": entry["name"], "limit": SMALL}
        outcome, content = yield from self.call("files.read", arguments, reason)
        if outcome == "tool_result" and content["encoding"] == "utf8":
            # Whatever the text says: it is looked at and never obeyed.
            return ("tables", "it holds a table") if is_table(content["content"]) else ("notes", "it holds text")
        if outcome == "tool_result":
            return OTHER, "it holds no text"
        return OTHER, "its ending is unknown and it could not be looked into"

    def ensure(self, folder):
        """Makes a folder unless it is there; says what went wrong."""
        if folder in self.folders:
            return None
        if folder in self.refused_folders:
            return "the folder `%s` was refused" % folder
        outcome, content = yield from self.call(
            "files.make_folder", {"path": folder}, "files of this kind need a place"
        )
        if outcome == "tool_result":
            self.taken[folder] = set()
        elif outcome == "denied":
            self.refused_folders.add(folder)
            return "the folder `%s` was refused: %s" % (folder, why(outcome, content))
        else:
            # Perhaps it is there by now. Looking into it will tell.
            entries, _, problem = yield from self.list(folder)
            if problem is not None:
                return why(outcome, content)
            self.taken[folder] = {entry["name"] for entry in entries}
        self.folders.add(folder)
        return None

    def move(self, name, folder, reason):
        """Moves a file under a name that is free; says what went wrong."""
        if folder not in self.taken:
            entries, _, problem = yield from self.list(folder)
            if problem is not None:
                return problem
            self.taken[folder] = {entry["name"] for entry in entries}
        free = free_name(name, self.taken[folder])
        if free is None:
            return "too many files of this name are there"
        target = folder + "/" + free
        outcome, content = yield from self.call("files.move", {"from": name, "to": target}, reason)
        if outcome == "tool_result":
            self.taken[folder].add(free)
            return None
        if outcome in ("tool_error", "interrupted"):
            # The folder is not as it was thought to be. It is looked at again, this file is not tried again.
            self.taken.pop(folder, None)
            self.look_again = True
        return why(outcome, content)

    def summary(self):
        return "files moved: %d, left where they were: %d" % (len(self.moved), len(self.left))

    def result(self):
        result = {"moved": self.moved, "left": self.left}
        if self.forgotten:
            result["moved_before"] = "see the record: %d earlier steps were not repeated" % self.forgotten
        return result


def why(outcome, content):
    """What came back, in a few words."""
    if isinstance(content, dict):
        for key in ("note", "message", "refusal", "failure"):
            if isinstance(content.get(key), str):
                return "%s (%s)" % (outcome, content[key][:200])
    return outcome


def is_table(text):
    """Whether each of the first lines has the same number of separators, and at least one."""
    lines = [line for line in text.split("\n")[:20] if line.strip()]
    for separator in (",", ";", "\t"):
        counts = {line.count(separator) for line in lines}
        if len(lines) > 1 and len(counts) == 1 and counts != {0}:
            return True
    return False


def free_name(name, taken):
    """The name, or the name with a number, that is not taken; without control characters, which new names may not have."""
    name = "".join("_" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in name)
    stem, ending = os.path.splitext(name)
    for number in range(1, MAX_NAMES):
        candidate = name if number == 1 else "%s-%d%s" % (stem, number, ending)
        if candidate not in taken:
            return candidate
    return None


if __name__ == "__main__":
    main()
