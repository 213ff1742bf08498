"""Runs scripts/observe beside a gateway under load and sees that every query returns data: those of the
dashboard's panels and variables, and the left sides of the alerts' comparisons. See scripts/observe-test.
"""

import argparse
import http.client
import itertools
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "observe/dashboards/smg.json"
# What Grafana would fill in; the variables' own values come from Prometheus.
RATE_INTERVAL = "10s"
# For everything to start, and again for all queries to return data, which takes a quarter of it.
PATIENCE_SECS = 60
ENGINES = 3
CLIENTS = 12
GATEWAY_FLAGS = """
    --policy cache_aware --shards 2 --log-level error
    --max-concurrent-requests 8 --queue-size 2 --queue-timeout-secs 1
    --max-tree-size 20000 --eviction-interval 1 --balance-abs-threshold 1
    --engine-metrics --load-monitor-interval 1 --worker-startup-check-interval 1
    --health-check-interval-secs 1 --cb-failure-threshold 2 --cb-timeout-duration-secs 1
    --retry-max-retries 2 --retry-initial-backoff-ms 10
""".split()
# What the load is for: each of these has to come about, or the queries have not been tested.
HAPPENED = {
    "streams": "smg_router_ttft_seconds_count",
    "requests known and unknown": 'smg_cache_aware_decisions_total{branch="tree_match"}',
    "spills": 'smg_cache_aware_decisions_total{branch="spill"}',
    "full trees": "smg_cache_tree_chars > 15000",
    "errors of the gateway": 'smg_http_responses_total{error_code="json_parse_error"}',
    "errors of engines": 'smg_router_upstream_responses_total{status_code="500"}',
    "connections that are reset": 'smg_worker_errors_total{error_type="reset"}',
    "retries": "smg_worker_retries_total",
    "retries that are of no use": "smg_worker_retries_exhausted_total",
    "breakers that open": 'smg_worker_cb_transitions_total{to="open"}',
    "breakers that close": 'smg_worker_cb_transitions_total{to="closed"}',
    "requests refused": 'smg_admission_queue_rejected_total{reason="full"}',
    "requests that wait": "max_over_time(smg_admission_queue_depth[1m])",
    "load reports": "smg_engine_running_requests",
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--smg", required=True)
    arguments.add_argument("--loadtest", required=True)
    args = arguments.parse_args()
    # What is started from here takes Ctrl-C, even where a background job of a shell is told to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dashboard = json.loads(DASHBOARD.read_text())
    check_layout(dashboard["panels"])
    with Everything(args) as everything:
        prometheus = Prometheus(everything.prometheus_port)
        started = time.monotonic()
        queries = {f"happened: {what}": f"{metric} > 0" for what, metric in HAPPENED.items()}
        queries |= panel_queries(dashboard, variables_of(dashboard, prometheus))
        queries |= prometheus.alert_queries()
        pending = wait_for_data(prometheus, queries)
    for name, query in pending.items():
        print(f"FAIL no data in {PATIENCE_SECS} s: {name}: {query}")
    everything.check_that_nothing_is_left()
    if pending:
        sys.exit(f"observe-test: {len(pending)} of {len(queries)} queries return no data")
    print(f"observe-test: all {len(queries)} queries return data, after {time.monotonic() - started:.0f} s")


def check_layout(panels):
    """No two panels share an id or a place."""
    assert len({panel["id"] for panel in panels}) == len(panels), "two panels have one id"
    for one, other in itertools.combinations([panel["gridPos"] | {"of": panel["title"]} for panel in panels], 2):
        apart = (one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
                 or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"])
        assert apart, f"{one['of']} and {other['of']} overlap"


def variables_of(dashboard, prometheus):
    """Values of the dashboard's variables as Grafana writes them into a query that asks for all."""
    values = {"__rate_interval": RATE_INTERVAL}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
            # A variable may depend on those before it.
            found = until_true(lambda: prometheus.values(filled_in(metric, values), label), f"values of {query}")
            values[variable["name"]] = "|".join(found)
    return values


def panel_queries(dashboard, variables):
    """Every query of every panel, by a name to find it with."""
    queries = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            # The fallback would always return something.
            query = filled_in(target["expr"], variables).replace(" or vector(0)", "")
            queries[f"panel {panel['title']!r} {target['refId']}"] = query
    return queries


def filled_in(query, variables):
    for name, value in variables.items():
        query = query.replace(f"${name}", value)
    assert "$" not in query, f"an unknown variable: {query}"
    return query


def wait_for_data(prometheus, queries):
    """Asks until all have returned data once; the ones that have not when the time is over."""
    pending = queries
    for _ in ticks(PATIENCE_SECS):
        pending = {name: query for name, query in pending.items() if not prometheus.has_data(query)}
        if not pending:
            break
    return pending


class Prometheus:
    """Its HTTP API."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path, **parameters):
        try:
            with urllib.request.urlopen(f"{self.url}/{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"observe-test: Prometheus refuses {parameters}: {error.read().decode()}")

    def has_data(self, query):
        """Whether an instant query returns a number."""
        samples = self.get("query", query=query)["result"]
        return any(sample["value"][1] != "NaN" for sample in samples)

    def values(self, metric, label):
        samples = self.get("query", query=f"count by ({label}) ({metric})")["result"]
        return [sample["metric"][label] for sample in samples]

    def alert_queries(self):
        """What each alert compares with a number."""
        queries = {}
        for rule in itertools.chain(*(group["rules"] for group in self.get("rules")["groups"])):
            left, comparisons = re.subn(r" (==|!=|[<>]=?) [0-9.]+$", "", rule["query"])
            assert comparisons == 1, f"alert {rule['name']} does not end in a comparison with a number"
            queries[f"alert {rule['name']}"] = left
        return queries


class Everything:
    """Simulated engines, the gateway, scripts/observe, and clients that make things happen."""

    def __init__(self, args):
        self.args = args
        self.children = []
        self.over = threading.Event()
        self.port, self.metrics_port, self.prometheus_port = (free_port() for _ in range(3))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        engines = self.spawn(
            self.args.loadtest, "engines", "-n", str(ENGINES), "--profile", "demo", stdout=subprocess.PIPE, text=True)
        self.engines = [engines.stdout.readline().strip() for _ in range(ENGINES)]
        self.spawn(
            self.args.smg, "launch", "--host", "127.0.0.1", "--port", str(self.port), "--prometheus-host", "127.0.0.1",
            "--prometheus-port", str(self.metrics_port), *GATEWAY_FLAGS, "--worker-urls", *self.engines)
        self.spawn(
            ROOT / "scripts/observe", "--no-grafana", "--interval", "1", "--gateway", f"127.0.0.1:{self.metrics_port}",
            "--prometheus-port", str(self.prometheus_port))
        until_true(lambda: is_open(self.port) and is_open(self.prometheus_port), "the gateway and Prometheus", self.alive)
        clients = [(self.chat, number) for number in range(CLIENTS)] + [(self.make_mistakes,), (self.break_engines,)]
        for work, *arguments in clients:
            threading.Thread(target=work, args=arguments, daemon=True).start()

    def spawn(self, *command, **options):
        self.children.append(subprocess.Popen(command, **options))
        return self.children[-1]

    def alive(self):
        for child in self.children:
            assert child.poll() is None, f"{child.args[0]} has ended with {child.returncode}"

    def __exit__(self, *_):
        self.over.set()
        for child in reversed(self.children):
            child.send_signal(signal.SIGINT)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def check_that_nothing_is_left(self):
        assert not is_open(self.prometheus_port), "scripts/observe has left a Prometheus behind"

    def chat(self, number):
        """One client: chats over shared system prompts, streams and not, as fast as they are answered."""
        for turn in itertools.count():
            system = f"You are assistant {turn % 4}. " * 40
            self.ask("/v1/chat/completions", {
                "model": "sim-8b", "stream": turn % 3 != 0, "max_tokens": 16,
                "messages": [{"role": "system", "content": system}, {"role": "user", "content": f"{number} {turn} " * 20}],
            })
            if self.over.is_set():
                return

    def make_mistakes(self):
        """What clients get wrong, and requests that are rare."""
        while not self.over.wait(0.2):
            self.ask("/v1/chat/completions", "{")
            self.ask("/v1/no-such-thing", {})
            self.ask("/generate", {"input_ids": list(range(64)), "sampling_params": {"max_new_tokens": 2}})

    def break_engines(self):
        """All engines fail together for a moment, then one resets its connections; all are well in between."""
        while not self.over.wait(1):
            for engine in self.engines:
                self.fault(engine, "error", 0.7)
            self.over.wait(2)
            self.fault(self.engines[0], "reset", 0.7)
            self.over.wait(2)

    def fault(self, engine, kind, seconds):
        request = urllib.request.Request(f"{engine}/sim/fault?kind={kind}&seconds={seconds}", method="POST")
        with urllib.request.urlopen(request, timeout=10):
            pass

    def ask(self, path, body):
        """Sends a request and reads its answer, whatever it is."""
        body = body if isinstance(body, str) else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", path, body, {"content-type": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            self.over.wait(0.05)
        finally:
            connection.close()


def until_true(condition, what, check=lambda: None):
    """The first true value of a condition."""
    for _ in ticks(PATIENCE_SECS):
        check()
        if value := condition():
            return value
    sys.exit(f"observe-test: not there after {PATIENCE_SECS} s: {what}")


def ticks(seconds):
    """Twice a second for so long. A machine that stands still uses up little of it."""
    spent = 0
    while spent < seconds:
        before = time.monotonic()
        yield
        time.sleep(0.5)
        spent += min(time.monotonic() - before, 1)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_open(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
