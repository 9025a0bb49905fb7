"""Speed of the explorer's answers, and whether it keeps up: `python benchmarks/explorer_load.py [--seconds 30]`.

A language model of 200 units and 10,000 words, with its first weights, is asked for a text of 50 words: first by one
client, one request after the other, then by 16 clients that together send 50 requests a second, each by its own clock
whether or not the others wait. It prints the latencies as JSON and ends with 1 if there was an error, if the rate was
not kept, or if the median answer to one client took longer than 100 ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import socket
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

UNITS, WORDS, TOKENS = 200, 10_000, 50
CLIENTS, RATE = 16, 50.0
ALLOWED = 0.1
"""Seconds for the median answer to one client."""


@dataclass(frozen=True)
class Answer:
    """One request: when it should have been sent, and when its answer was there, in seconds."""

    due: float
    sent: float
    done: float
    status: int
    size: int


def serve(listening: socket.socket) -> None:
    """The server's process."""
    from mufuru.experiments.data.vocabulary import Vocabulary
    from mufuru.experiments.explorer import explored, server
    from mufuru.experiments.tasks.cells import CellConfig
    from mufuru.experiments.tasks.lm.config import LMConfig
    from mufuru.experiments.tasks.lm.model import LanguageModel
    from mufuru.experiments.tasks.lm.use import TextReader

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LMConfig(CellConfig(hidden_size=UNITS))
    words = tuple(f"w{number}" for number in range(WORDS - 2))
    model = LanguageModel(config, Vocabulary((*words, "<eos>", "<unk>")))
    server.serve([explored("load", "lm", TextReader(model, config))], listening, "127.0.0.1")


def ask(connection: http.client.HTTPConnection, chance: random.Random, due: float) -> Answer:
    """Send one request and read its answer; another text each time, so that nothing could be kept."""
    text = " ".join(f"w{chance.randrange(WORDS - 2)}" for _ in range(TOKENS - 1))
    body = json.dumps({"run": "load", "text": text, "unit": chance.randrange(UNITS)})
    sent = time.perf_counter()
    connection.request("POST", "/api/read", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    return Answer(due, sent, time.perf_counter(), response.status, len(content))


def one_client(port: int, requests: int) -> list[Answer]:
    """Requests one after the other."""
    connection, chance = http.client.HTTPConnection("127.0.0.1", port, timeout=30), random.Random(0)
    for _ in range(10):
        ask(connection, chance, time.perf_counter())
    return [ask(connection, chance, time.perf_counter()) for _ in range(requests)]


def paced_client(port: int, number: int, start: float, seconds: float) -> list[Answer]:
    """Requests by the clock: one that is late is sent at once, and its wait counts."""
    connection, chance = http.client.HTTPConnection("127.0.0.1", port, timeout=30), random.Random(1 + number)
    pause, found = CLIENTS / RATE, []
    due = start + pause * number / CLIENTS
    while due < start + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))
        found.append(ask(connection, chance, due))
        due += pause
    return found


def all_clients(port: int, seconds: float) -> list[Answer]:
    start = time.perf_counter() + 0.5
    with ThreadPoolExecutor(CLIENTS) as pool:
        waiting = [pool.submit(paced_client, port, number, start, seconds) for number in range(CLIENTS)]
        return [answer for one in waiting for answer in one.result()]


def summary(answers: list[Answer]) -> dict[str, Any]:
    """Latencies in milliseconds, from when a request was due."""
    latencies = sorted(1000 * (answer.done - answer.due) for answer in answers)
    lasted = max(answer.done for answer in answers) - min(answer.due for answer in answers)
    errors = [answer.status for answer in answers if answer.status != 200]
    return {
        "requests": len(answers),
        "errors": len(errors),
        "per second": round(len(answers) / lasted, 1),
        "median": round(statistics.median(latencies), 1),
        "p95": round(latencies[int(0.95 * len(latencies))], 1),
        "p99": round(latencies[int(0.99 * len(latencies))], 1),
        "largest": round(latencies[-1], 1),
        "kilobytes": round(statistics.mean(answer.size for answer in answers) / 1000, 1),
    }


def wait_for(port: int) -> None:
    """Until the model is loaded: the socket takes connections before that."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/api/runs")
    connection.getresponse().read()


def main() -> int:
    parser = argparse.ArgumentParser(description="Load the explorer as 16 clients would.")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the load lasts")
    parser.add_argument("--requests", type=int, default=200, help="requests of the single client")
    chosen = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(listening,), daemon=True)
        process.start()
    try:
        wait_for(port)
        alone = summary(one_client(port, chosen.requests))
        together = summary(all_clients(port, chosen.seconds))
    finally:
        process.kill()
        process.join()
    machine = {"cores": os.cpu_count(), "torch": torch.__version__, "load before": os.getloadavg()[0]}
    settings = {"units": UNITS, "words": WORDS, "tokens": TOKENS, "clients": CLIENTS, "rate": RATE}
    print(json.dumps({"machine": machine, "settings": settings, "alone": alone, "together": together}, indent=1))
    kept = together["per second"] >= 0.98 * RATE
    fast = alone["median"] <= 1000 * ALLOWED
    return 0 if kept and fast and not alone["errors"] + together["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
