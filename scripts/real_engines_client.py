#!/usr/bin/env python3
"""Drives a gateway in front of real engines with the official OpenAI client and checks what comes back.

scripts/real-engines starts everything and calls this; it can also be run alone against a gateway
that already runs. Needs the package `openai`. Prints one line per check, exits 1 if one failed.
"""

import argparse
import concurrent.futures
import json
import random
import sys
import time
import urllib.request

import openai

REQUEST_TIMEOUT_SECS = 180
WORKER_HEADER = "x-smg-routed-worker-id"
# Engines reuse whole KV blocks, and the tokens that open the answer are not part of the next
# prompt's prefix in every template: this much of the previous prompt may be computed again.
CACHE_SLACK_TOKENS = 64
# Long enough that the first turns of all conversations overlap, so that in-flight counts differ.
FIRST_REPLY_TOKENS = 64
REPLY_TOKENS = 24
# Longer than the 5 s after which llama.cpp and uvicorn close idle connections.
IDLE_SECS = 6

WORDS = """amber basin cedar delta ember fjord grove haven inlet jetty kelp lagoon meadow north
ochre pier quarry ridge slate tundra umber valley willow yarrow zephyr anchor beacon canal dune
estuary ferry glacier harbor island juniper knoll ledge marsh nectar orchard prairie quartz river
summit thicket upland vista wharf""".split()


class Checks:
    """Counts and prints what held and what did not."""

    def __init__(self):
        self.failed = 0

    def check(self, holds, what, detail=""):
        self.failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'} {what}{': ' + str(detail) if detail else ''}", flush=True)
        return holds


class Answer:
    """One chat answer: its text, who gave it, and the tokens the engine counted."""

    def __init__(self, worker, text, finish_reason, usage, timings):
        self.worker = worker
        self.text = text
        self.finish_reason = finish_reason
        self.prompt_tokens = usage.prompt_tokens
        self.completion_tokens = usage.completion_tokens
        self.total_tokens = usage.total_tokens
        self.cached_tokens = cached_tokens(usage, timings)

    def content(self):
        """What must be equal whoever relayed it."""
        return (self.text, self.finish_reason, self.prompt_tokens, self.completion_tokens)


def cached_tokens(usage, timings):
    """Prompt tokens the engine took from its cache; 0 when it does not say."""
    details = usage.prompt_tokens_details
    if details is not None and details.cached_tokens is not None:
        return details.cached_tokens
    return (timings or {}).get("cache_n", 0)


class Chat:
    """Chat requests with greedy decoding through one base URL (the gateway, or an engine itself)."""

    def __init__(self, base_url, model, api_key, max_retries):
        self.model = model
        self.client = openai.OpenAI(
            base_url=base_url.rstrip("/") + "/v1",
            api_key=api_key,
            max_retries=max_retries,
            timeout=REQUEST_TIMEOUT_SECS,
        )

    def request(self, messages, max_tokens):
        # Random weights may say "end" at once; the three engines know `ignore_eos`.
        return dict(
            model=self.model,
            messages=messages,
            max_tokens=max_tokens,
            temperature=0,
            extra_body={"ignore_eos": True},
        )

    def plain(self, messages, max_tokens=REPLY_TOKENS):
        """(answer, body bytes)"""
        raw = self.client.chat.completions.with_raw_response.create(**self.request(messages, max_tokens))
        completion = raw.parse()
        choice = completion.choices[0]
        answer = Answer(
            raw.headers.get(WORKER_HEADER),
            choice.message.content or "",
            choice.finish_reason,
            completion.usage,
            (completion.model_extra or {}).get("timings"),
        )
        return answer, raw.content

    def stream(self, messages, max_tokens=REPLY_TOKENS):
        """The answer as the client library puts it together from its chunks."""
        raw = self.client.chat.completions.with_raw_response.create(
            **self.request(messages, max_tokens), stream=True, stream_options={"include_usage": True}
        )
        return from_chunks(raw.headers.get(WORKER_HEADER), raw.parse())

    def stream_bytes(self, messages, max_tokens=REPLY_TOKENS):
        """(worker, content type, body bytes) of a stream, unparsed"""
        with self.client.chat.completions.with_streaming_response.create(
            **self.request(messages, max_tokens), stream=True, stream_options={"include_usage": True}
        ) as raw:
            body = b"".join(raw.iter_bytes())
            return raw.headers.get(WORKER_HEADER), raw.headers.get("content-type", ""), body

    def refused(self, body):
        """(status, body bytes) of a request that must fail"""
        try:
            self.client.post("/chat/completions", body=body, cast_to=object)
        except openai.APIStatusError as error:
            return error.status_code, error.response.content
        return 200, b""


def from_chunks(worker, chunks):
    text, finish_reason, usage, timings = "", None, None, None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish_reason = choice.finish_reason or finish_reason
        usage = chunk.usage or usage
        timings = (chunk.model_extra or {}).get("timings") or timings
    if usage is None:
        raise ValueError("a stream ended without its usage chunk")
    return Answer(worker, text, finish_reason, usage, timings)


def from_events(worker, body):
    """The answer in a raw event stream; raises ValueError if the stream is malformed."""
    events = body.decode().split("\n\n")
    if events[-2:] != ["data: [DONE]", ""]:
        raise ValueError(f"ends with {body[-60:]!r} instead of data: [DONE]")
    payloads = []
    for event in events[:-2]:
        if not event.startswith("data: "):
            raise ValueError(f"not a data event: {event!r}")
        payloads.append(json.loads(event.removeprefix("data: ")))
    chunk_type = openai.types.chat.ChatCompletionChunk
    return from_chunks(worker, [chunk_type.model_validate(payload) for payload in payloads])


def prose(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


class Conversation:
    """A chat that grows: every turn sends all earlier turns again."""

    def __init__(self, number, nonce):
        self.number = number
        self.rng = random.Random(f"{nonce}-{number}")
        # The nonce comes first, so that no two conversations, nor two runs, share a prefix.
        self.messages = [{"role": "system", "content": f"{self.rng.getrandbits(64):x} {prose(self.rng, 120)}"}]
        self.answers = []

    def next_turn(self, chat):
        self.messages.append({"role": "user", "content": prose(self.rng, 60)})
        turn = len(self.answers)
        max_tokens = REPLY_TOKENS if turn else FIRST_REPLY_TOKENS
        # Streams and plain answers take turns.
        answer = chat.plain(self.messages, max_tokens)[0] if turn % 2 else chat.stream(self.messages, max_tokens)
        self.messages.append({"role": "assistant", "content": answer.text})
        self.answers.append(answer)

    def workers(self):
        return {answer.worker for answer in self.answers}


def check_plain(checks, gateway, engines, nonce):
    messages = [{"role": "user", "content": f"{nonce} plain {prose(random.Random(nonce), 40)}"}]
    first, _ = gateway.plain(messages)
    again, body = gateway.plain(messages)
    checks.check(again.worker in engines, "plain chat: the answer names its worker", again.worker)
    checks.check(again.worker == first.worker, "plain chat: the same prompt goes to the same worker")
    checks.check(
        again.cached_tokens > first.cached_tokens,
        "plain chat: the engine takes the repeated prompt from its cache",
        f"{first.cached_tokens} then {again.cached_tokens} of {again.prompt_tokens} tokens",
    )
    fields = json.loads(body)
    checks.check(
        fields["object"] == "chat.completion"
        and again.completion_tokens == REPLY_TOKENS
        and again.total_tokens == again.prompt_tokens + again.completion_tokens
        and again.finish_reason == "length",
        "plain chat: the body is a whole chat.completion",
        f"{len(body)} bytes, {again.completion_tokens} tokens, finish_reason {again.finish_reason}",
    )
    if again.worker in engines:
        ask_direct = engines[again.worker]
        same_as_engine(checks, "plain chat", again, lambda: ask_direct.plain(messages)[0])


def check_stream(checks, gateway, engines, nonce):
    messages = [{"role": "user", "content": f"{nonce} stream {prose(random.Random(nonce), 40)}"}]
    gateway.stream(messages)
    parsed = gateway.stream(messages)
    worker, content_type, body = gateway.stream_bytes(messages)
    checks.check(worker == parsed.worker and worker in engines, "stream: the answer names its worker", worker)
    checks.check(content_type.startswith("text/event-stream"), "stream: is an event stream", content_type)
    try:
        relayed = from_events(worker, body)
    except ValueError as error:
        checks.check(False, "stream: every event is valid and the last is [DONE]", error)
        return
    checks.check(True, "stream: every event is valid and the last is [DONE]", f"{body.count(b'data: ')} events")
    checks.check(relayed.content() == parsed.content(), "stream: the client library reads what the bytes say")
    checks.check(relayed.completion_tokens == REPLY_TOKENS, "stream: no token is missing", relayed.completion_tokens)
    if worker in engines:
        ask_direct = engines[worker]
        same_as_engine(checks, "stream", relayed, lambda: from_events(worker, ask_direct.stream_bytes(messages)[2]))


def same_as_engine(checks, name, relayed, ask_direct):
    """Greedy decoding from the same cache state repeats itself: ask the engine without the gateway."""
    direct = ask_direct()
    if relayed.content() != direct.content() and ask_direct().content() != direct.content():
        print(f"note {name}: this engine answers the same request differently each time; text not compared")
        return
    checks.check(
        relayed.content() == direct.content(),
        f"{name}: text and token counts equal what the engine itself answers",
        repr(relayed.text[:40]) if relayed.content() == direct.content() else f"{relayed.content()} != {direct.content()}",
    )


def check_refusal(checks, gateway, engines):
    body = {"model": gateway.model}
    through = gateway.refused(body)
    direct = {engine.refused(body) for engine in engines.values()}
    checks.check(through in direct and through[0] >= 400, "refusal: the engine's error arrives as it is", through)


def check_conversations(checks, gateway, engines, nonce, conversations, turns):
    chats = [Conversation(number, nonce) for number in range(conversations)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=conversations) as pool:
        for turn in range(turns):
            if turn and turn == turns - 1:
                time.sleep(IDLE_SECS)
            # One round: the conversations' turns run side by side. list() passes errors on.
            list(pool.map(lambda chat: chat.next_turn(gateway), chats))

    print("\nconversation  worker                     cached/prompt tokens, turn by turn")
    for chat in chats:
        counts = "  ".join(f"{a.cached_tokens}/{a.prompt_tokens}" for a in chat.answers)
        print(f"{chat.number:>12}  {', '.join(map(str, chat.workers())):<25}  {counts}")
    print()

    checks.check(
        all(len(chat.workers()) == 1 for chat in chats),
        f"conversations: all {turns} turns of each land on one worker",
        "" if all(len(chat.workers()) == 1 for chat in chats) else [[a.worker for a in c.answers] for c in chats],
    )
    shares = {url: sum(chat.workers() == {url} for chat in chats) for url in engines}
    if conversations >= len(engines):
        checks.check(all(shares.values()), "conversations: every worker has some", shares)
    check_cache_growth(checks, chats)


def check_cache_growth(checks, chats):
    pairs = [(before, after) for chat in chats for before, after in zip(chat.answers, chat.answers[1:])]
    grown = [after.cached_tokens > before.cached_tokens for before, after in pairs]
    hint = ""
    if not any(after.cached_tokens for _, after in pairs):
        hint = "no cached tokens reported: vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report"
    checks.check(
        all(grown), "conversations: the reported cached tokens grow with every turn", hint or f"{sum(grown)} of {len(grown)}"
    )
    covered = [after.cached_tokens + CACHE_SLACK_TOKENS >= before.prompt_tokens for before, after in pairs]
    checks.check(
        all(covered),
        "conversations: each turn finds the whole previous prompt in the cache",
        f"{sum(covered)} of {len(covered)}, up to {CACHE_SLACK_TOKENS} tokens short",
    )


def check_metrics(checks, url, matches_at_least):
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    values = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name] = float(value)
    active = {name: value for name, value in values.items() if name.startswith("smg_worker_requests_active{")}
    checks.check(bool(active) and not any(active.values()), "metrics: nothing is left in flight", list(active.values()))
    alone = values.get("smg_owner_overloaded_total")
    if alone is not None:
        advice = "a shard got no CPU for 250 ms or more: try again when the machine is less busy"
        checks.check(
            not alone,
            "metrics: no decision was made without the model's owner",
            f"{int(alone)} were; {advice}" if alone else "",
        )
    prefix = "smg_cache_aware_policy_branch_total{branch="
    branches = {n.removeprefix(prefix).strip('"}'): int(v) for n, v in values.items() if n.startswith(prefix)}
    checks.check(
        branches.get("tree_match", 0) >= matches_at_least,
        "metrics: every later turn was routed by its prefix",
        branches,
    )


def wait_until_ready(checks, gateway_url, workers, timeout_secs):
    """The gateway lists every worker as healthy."""
    deadline = time.monotonic() + timeout_secs
    seen = "no answer"
    while time.monotonic() < deadline:
        try:
            listing = json.load(urllib.request.urlopen(gateway_url + "/workers", timeout=5))
            seen = {worker["url"]: worker["is_healthy"] for worker in listing["workers"]}
            if all(seen.get(url) for url in workers):
                return checks.check(True, "gateway: both workers are registered and healthy", list(seen))
        except (OSError, ValueError, KeyError) as error:
            seen = error
        time.sleep(0.2)
    return checks.check(False, f"gateway: workers not ready within {timeout_secs} s", seen)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", required=True, metavar="URL", help="base URL of the gateway")
    parser.add_argument("--workers", required=True, nargs="+", metavar="URL", help="the engines' URLs, as the gateway knows them")
    parser.add_argument("--metrics", metavar="URL", help="the gateway's /metrics; without it they are not checked")
    parser.add_argument("--model", help="model to ask for [default: the first the gateway lists]")
    parser.add_argument("--api-key", default="none", help="key to send [default: none]")
    parser.add_argument("--conversations", type=int, default=4, metavar="N", help="[default: 4]")
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="turns of each conversation [default: 4]")
    parser.add_argument("--ready-timeout-secs", type=float, default=60, metavar="SECS", help="[default: 60]")
    args = parser.parse_args()
    if args.conversations < 1 or args.turns < 2:
        parser.error("needs at least one conversation of two turns")
    return args


def main():
    args = arguments()
    checks = Checks()
    workers = [url.rstrip("/") for url in args.workers]
    if not wait_until_ready(checks, args.gateway.rstrip("/"), workers, args.ready_timeout_secs):
        return 1
    # No silent second attempts at the gateway: a failure is a finding. An engine asked directly may
    # close an idle connection just as it is used again.
    gateway = Chat(args.gateway, args.model, args.api_key, max_retries=0)
    models = [model.id for model in gateway.client.models.list()]
    gateway.model = args.model or models[0]
    checks.check(gateway.model in models, "models: the gateway lists the engines' model", models)
    engines = {url: Chat(url, gateway.model, args.api_key, max_retries=2) for url in workers}
    nonce = f"{random.SystemRandom().getrandbits(64):x}"

    # First, while the workers' loads are even: new conversations then spread evenly.
    check_conversations(checks, gateway, engines, nonce, args.conversations, args.turns)
    check_plain(checks, gateway, engines, nonce)
    check_stream(checks, gateway, engines, nonce)
    check_refusal(checks, gateway, engines)
    if args.metrics:
        check_metrics(checks, args.metrics, args.conversations * (args.turns - 1))
    print(f"\n{checks.failed} failed" if checks.failed else "\nall checks passed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (openai.OpenAIError, OSError, ValueError) as error:
        request = getattr(error, "request", None)
        print(f"FAIL {type(error).__name__}: {error} {request.url if request else ''}")
        sys.exit(1)
