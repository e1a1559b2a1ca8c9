"""What the agents in Python share: the lines of agent/agent.go, over standard input and output.

Handlers take a request (a dict) and return a dict; they raise Gap for what their client cannot do.
"""

import base64
import faulthandler
import json
import logging
import os
import signal
import sys

faulthandler.register(signal.SIGUSR1)  # says where a client hangs
if os.environ.get("LOCKSTEP_INTEROP_DEBUG"):  # to the log that interop/run --keep names
    logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(process)d %(name)s %(message)s")


class Gap(Exception):
    """The client cannot do this; the text says why."""


class Failed(Exception):
    """The client reported an error of which it shows the code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def to_bytes(text):
    return None if text is None else base64.b64decode(text)


def to_text(data):
    return None if data is None else base64.b64encode(data).decode()


def record(partition, offset, timestamp, key, value, headers):
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": to_text(key),
        "value": to_text(value),
        "headers": [{"key": k, "value": to_text(v)} for k, v in headers or []],
    }


def headers_of(rec):
    return [(h["key"], to_bytes(h["value"])) for h in rec.get("headers") or []]


def serve(handlers, code):
    """Answers requests until standard input ends; code finds Kafka's error code in an exception."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            handler = handlers.get(request["op"])
            if handler is None:
                raise Gap("its library has no call for this")
            answer = handler(request) or {}
        except Gap as gap:
            answer = {"gap": str(gap)}
        except Exception as error:  # every error goes to the matrix, which judges it
            answer = {"error": {"code": getattr(error, "code", None) if isinstance(error, Failed) else code(error),
                                "text": "%s: %s" % (type(error).__name__, error)}}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
