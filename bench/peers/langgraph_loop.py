"""The loop as a LangGraph graph with its SQLite saver: one node, and so one checkpoint, a step.

The results pile up in the state, as the messages of an agent do. `--record delta` keeps them in a `DeltaChannel` (beta)
instead of a list with a reducer. By default LangGraph writes a checkpoint while the next step runs
(`durability="async"`); `--sync full` waits for each (`durability="sync"`) and says `synchronous=FULL` to SQLite.
"""

import operator
import sqlite3
from typing import Annotated, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

import driver


def _joined(results, writes):
    return [*results, *(result for write in writes for result in write)]


class _Listed(TypedDict):
    step: int
    results: Annotated[list, operator.add]


class _Delta(TypedDict):
    step: int
    results: Annotated[list, DeltaChannel(_joined)]


def _graph(loop, saver):
    def act(state):
        return {"step": state["step"] + 1, "results": [loop.act(state["step"])]}

    def more(state):
        return "act" if state["step"] < loop.steps else END

    graph = StateGraph(_Delta if loop.delta else _Listed)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    graph.add_conditional_edges("act", more)
    return graph.compile(checkpointer=saver)


def main():
    loop = driver.read_options()
    connection = sqlite3.connect(loop.path("langgraph.db"), check_same_thread=False)
    if loop.full:
        connection.execute("PRAGMA synchronous=FULL")
    saver = SqliteSaver(connection)
    saver.setup()
    graph = _graph(loop, saver)
    config = {"configurable": {"thread_id": "bench"}, "recursion_limit": loop.steps + 10}
    more = {"durability": "sync"} if loop.full else {}
    # A thread with a checkpoint is resumed by invoking it with nothing; without one there is nothing to resume.
    known = loop.resuming and saver.get_tuple(config) is not None
    state = None if known else {"step": 0, "results": []}

    def run():
        final = graph.invoke(state, config, **more)
        assert final["step"] == loop.steps, final["step"]

    driver.measure(run)
    settings = driver.pragmas(lambda query: connection.execute(query).fetchone()[0])
    durability = more.get("durability", "async (its default)")
    driver.tell(f"{settings} durability={durability}", "langgraph", "langgraph-checkpoint-sqlite")
    connection.close()


if __name__ == "__main__":
    main()
