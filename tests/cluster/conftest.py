"""A cluster of two processes, once for all tests, and an end to waiting for it."""

import signal

import pytest
from distributed import Client, LocalCluster

from pymc_pacauc.cluster import shards

LONGEST = 300  # seconds


@pytest.fixture(scope="session")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def no_hang():
    """What waits for a cluster for ever fails."""

    def give_up(signum, frame):
        raise TimeoutError(f"a test of the cluster took more than {LONGEST} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def small_is_enough(monkeypatch):
    monkeypatch.setattr(shards, "LEAST_PAIRS", 1000)
