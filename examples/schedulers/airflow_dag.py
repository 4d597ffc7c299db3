"""An Airflow DAG: tables every five minutes, then incidents, reports and a copy.

Copy this file to Airflow's folder of DAGs. It needs only Airflow itself: each task is a command of
the environment in GROUPKEEPER_BIN.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pendulum
from airflow import DAG

try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:  # Airflow 2
    from airflow.operators.bash import BashOperator

BIN = os.environ.get("GROUPKEEPER_BIN", "/opt/groupkeeper/bin")
LOG = os.environ.get("GROUPKEEPER_LOG", "/var/lib/groupkeeper/groupkeeper-log")
TABLES = os.environ.get("GROUPKEEPER_TABLES", "/var/lib/groupkeeper/tables")
LAKE = os.environ.get("GROUPKEEPER_LAKE", "/var/lib/groupkeeper/lake")

with DAG(
    "groupkeeper",
    schedule=timedelta(minutes=5),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,  # a run reads every segment since the last one, however long ago that was
    max_active_runs=1,  # one writer of the tables, also where they have no lock
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
):
    run = BashOperator(
        task_id="run",
        bash_command=f"{BIN}/groupkeeper pipeline run --log-dir {LOG} --out {TABLES}",
        skip_on_exit_code=5,  # another job is at work
    )
    incidents = BashOperator(
        task_id="incidents",
        bash_command=f"{BIN}/groupkeeper pipeline incidents --tables {TABLES} --fail-on critical",
        retries=0,  # an open incident stays open for a retry
    )
    report = BashOperator(
        task_id="report",
        bash_command=f"{BIN}/groupkeeper pipeline report --tables {TABLES}",
        skip_on_exit_code=4,  # there is nothing to report
    )
    export = BashOperator(
        task_id="export",
        bash_command=(
            f"{BIN}/groupkeeper pipeline export --tables {TABLES} --to {LAKE} --format delta"
        ),
    )
    run >> [incidents, report, export]
