"""What the measuring scripts have in common: programs, processes, limits. Needs Linux."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
GATEWAY_PORT, METRICS_PORT = 19200, 19201
READY_TIMEOUT_SECS = 30

# Where rustup puts cargo, which not every shell knows.
os.environ["PATH"] += os.pathsep + str(pathlib.Path.home() / ".cargo" / "bin")


def end(number, _):
    """A script that is told to end stops what it has started."""
    sys.exit(128 + number)


for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, end)


def programs():
    """Where `cargo build --release` puts programs."""
    try:
        found = subprocess.run(
            ["cargo", "metadata", "--no-deps", "--format-version", "1"],
            cwd=ROOT, check=True, capture_output=True,
        )
    except FileNotFoundError:
        sys.exit("cargo is missing: scripts/setup installs it")
    release = pathlib.Path(json.loads(found.stdout)["target_directory"]) / "release"
    for name in ("smg", "smg-loadtest"):
        if not (release / name).exists():
            sys.exit(f"{release / name} is missing: cargo build --release -p smg -p smg-loadtest")
    return release


def raise_open_file_limit():
    """For this process and those it starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def start_engines(count, base_port, *flags):
    """Mock engines that answer at once, on ports from `base_port` on."""
    return subprocess.Popen(
        [programs() / "smg-loadtest", "engines", "-n", str(count), "-b", str(base_port), "--instant", *flags],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )


def start_gateway(worker_urls, *flags, port=GATEWAY_PORT, metrics_port=METRICS_PORT):
    """The gateway with one shard."""
    return subprocess.Popen([
        programs() / "smg", "launch", "--host", "127.0.0.1", "--port", str(port),
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
        "--shards", "1", "--policy", "cache_aware", "--log-level", "error", *flags,
        "--worker-urls", *worker_urls,
    ])


def wait_until_ready(healthy, port=GATEWAY_PORT):
    """Until as many workers are healthy."""
    until = time.monotonic() + READY_TIMEOUT_SECS
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readiness", timeout=5) as answer:
                if json.load(answer).get("healthy_workers") == healthy:
                    return
        except (OSError, ValueError):
            pass
        time.sleep(0.1)
    sys.exit(f"the gateway on port {port} has not {healthy} healthy workers after {READY_TIMEOUT_SECS} s")


def cpu_seconds(pid):
    """CPU time of all threads, as the scheduler counts it."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def stop(process):
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
