"""What the measuring scripts have in common: programs, processes, limits. Needs Linux."""

import json
import pathlib
import resource
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
GATEWAY_PORT, METRICS_PORT = 19200, 19201


def programs():
    """Where `cargo build --release` puts programs."""
    found = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT, check=True, capture_output=True,
    )
    return pathlib.Path(json.loads(found.stdout)["target_directory"]) / "release"


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
