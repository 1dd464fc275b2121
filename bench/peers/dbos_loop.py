"""The loop as a DBOS workflow on SQLite: one durable step a step.

By default DBOS leaves the database in SQLite's rollback journal, with SQLite's own `synchronous`. `--sync full` puts it
into WAL before DBOS opens it, and says `synchronous=FULL` on each of its connections. `resume` starts DBOS again, which
takes up what was pending by itself, and waits for the workflow.
"""

import sqlite3

from dbos import DBOS, SetWorkflowID
from sqlalchemy import Engine, event

import driver

_NAME = "bench"


def _loop(loop):
    @DBOS.step()
    def act(step):
        return loop.act(step)

    @DBOS.workflow()
    def workflow():
        for step in range(loop.steps):
            act(step)
        return loop.steps

    return workflow


def main():
    loop = driver.read_options()
    path = loop.path("dbos.db")
    found = {}

    @event.listens_for(Engine, "connect")
    def _on_connect(connection, _record):
        if loop.full:
            connection.execute("PRAGMA synchronous=FULL")
        found["set"] = driver.pragmas(lambda query: connection.execute(query).fetchone()[0])

    if loop.full:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
    config = {"name": _NAME, "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"}
    DBOS(config=config)
    workflow = _loop(loop)
    DBOS.launch()

    def run():
        # The workflow may have ended before the kill, or never have been recorded.
        if loop.resuming and DBOS.get_workflow_status(_NAME) is not None:
            final = DBOS.retrieve_workflow(_NAME).get_result()
        else:
            with SetWorkflowID(_NAME):
                final = workflow()
        assert final == loop.steps, final

    driver.measure(run)
    driver.tell(found["set"], "dbos")
    DBOS.destroy()


if __name__ == "__main__":
    main()
