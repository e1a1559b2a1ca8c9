"""Drives aiokafka for the matrix."""

import asyncio
import sys
import threading

import aiokafka
from aiokafka import admin as aka
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from base import Failed, Gap, headers_of, record, serve, to_bytes

bootstrap = {"bootstrap_servers": sys.argv[1]}
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
member = None


def code(error):
    errno = getattr(error, "errno", -1)
    return errno if isinstance(error, KafkaError) and isinstance(errno, int) else -1


def wait(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)


def raise_code(number, text=""):
    if number:
        raise Failed(number, text or aiokafka.errors.for_code(number).__name__)


async def with_admin(do):
    a = aka.AIOKafkaAdminClient(**bootstrap)
    await a.start()
    try:
        return await do(a)
    finally:
        await a.close()


async def with_consumer(do, **more):
    c = aiokafka.AIOKafkaConsumer(**bootstrap, enable_auto_commit=False, **more)
    await c.start()
    try:
        return await do(c)
    finally:
        await c.stop()


def hello(q):
    return {"client": "aiokafka " + aiokafka.__version__}


def create(q):
    async def do(a):
        # Replication factor -1 cannot be asked for: the library counts it as a list of replicas.
        r = await a.create_topics([aka.NewTopic(q["topic"], q["partitions"], 1, topic_configs=q.get("config") or {})])
        raise_code(r.topic_errors[0][1])
    wait(with_admin(do))


def describe(q):
    async def do(a):
        t = (await a.describe_topics([q["topic"]]))[0]
        raise_code(t["error_code"])
        return {"partitions": len(t["partitions"])}
    return wait(with_admin(do))


async def do_produce(q):
    p = aiokafka.AIOKafkaProducer(**bootstrap, compression_type=None if q["codec"] == "none" else q["codec"], linger_ms=20,
                                  enable_idempotence=bool(q.get("idempotent")), acks="all", max_request_size=4000000)
    await p.start()
    try:
        sent = []
        for r in q["records"]:
            sent.append(await p.send(q["topic"], partition=r["partition"], key=to_bytes(r["key"]), value=to_bytes(r["value"]),
                                     headers=headers_of(r), timestamp_ms=r["timestamp"] or None))
            if q.get("pause"):
                await sent[-1]
                await asyncio.sleep(q["pause"] / 1000)
        return {"offsets": [(await f).offset for f in sent]}
    finally:
        await p.stop()


def produce(q):
    return wait(do_produce(q))


def read(q):
    async def do(c):
        tp = TopicPartition(q["topic"], q["partition"])
        c.assign([tp])
        c.seek(tp, q["offset"])
        records = []
        for _ in range(40):
            if len(records) >= q["count"]:
                break
            for m in (await c.getmany(tp, timeout_ms=1000)).get(tp, []):
                records.append(record(m.partition, m.offset, m.timestamp, m.key, m.value, m.headers))
        return {"records": records}
    return wait(with_consumer(do, auto_offset_reset="none"))


def offset(q):
    async def do(c):
        tp = TopicPartition(q["topic"], q["partition"])
        if q["time"] == -1:
            return {"offset": (await c.end_offsets([tp]))[tp]}
        if q["time"] == -2:
            return {"offset": (await c.beginning_offsets([tp]))[tp]}
        found = (await c.offsets_for_times({tp: q["time"]}))[tp]
        return {"offset": -1 if found is None else found.offset}
    return wait(with_consumer(do))


def resource(q, values=None):
    return aka.config_resource.ConfigResource(aka.config_resource.ConfigResourceType.TOPIC, q["topic"], values)


def configs(q):
    async def do(a):
        r = (await a.describe_configs([resource(q)]))[0].resources[0]
        raise_code(r[0], r[1])
        return {"config": {entry[0]: entry[1] for entry in r[4]}}
    return wait(with_admin(do))


def alter(q):
    async def do(a):
        r = (await a.alter_configs([resource(q, q["config"])]))[0].resources[0]
        raise_code(r[0], r[1])
    wait(with_admin(do))


def grow(q):
    async def do(a):
        r = await a.create_partitions({q["topic"]: aka.NewPartitions(q["partitions"])})
        raise_code(r.topic_errors[0][1])
    wait(with_admin(do))


def trim(q):
    async def do(a):
        tp = TopicPartition(q["topic"], q["partition"])
        return {"offset": (await a.delete_records({tp: aka.RecordsToDelete(before_offset=q["offset"])}))[tp]}
    return wait(with_admin(do))


def delete(q):
    async def do(a):
        raise_code((await a.delete_topics([q["topic"]])).topic_error_codes[0][1])
    wait(with_admin(do))


def commit(q):
    async def do(c):
        tp = TopicPartition(q["topic"], q["partition"])
        c.assign([tp])
        await c.commit({tp: OffsetAndMetadata(q["offset"], q["metadata"])})
    wait(with_consumer(do, group_id=q["group"]))


def committed(q):
    async def do(a):
        found = (await a.list_consumer_group_offsets(q["group"])).get(TopicPartition(q["topic"], q["partition"]))
        return {"offset": -1 if found is None else found.offset, "metadata": "" if found is None else found.metadata}
    return wait(with_admin(do))


def groups(q):
    async def do(a):
        g = (await a.describe_consumer_groups([q["group"]]))[0].groups[0]
        raise_code(g[0])
        return {"state": g[2], "members": len(g[5])}
    return wait(with_admin(do))


class Member(aiokafka.ConsumerRebalanceListener):
    """A member of a group that reads, and commits every 200 ms, until it is told to leave."""

    async def start(self, q):
        self.assigned, self.consumed = set(), {}
        self.c = aiokafka.AIOKafkaConsumer(**bootstrap, group_id=q["group"], auto_offset_reset="earliest",
                                           auto_commit_interval_ms=200, session_timeout_ms=6000, heartbeat_interval_ms=500)
        self.c.subscribe([q["topic"]], listener=self)
        self.task = asyncio.create_task(self.run())

    async def on_partitions_assigned(self, parts):
        self.assigned.update(p.partition for p in parts)

    async def on_partitions_revoked(self, parts):
        self.assigned.difference_update(p.partition for p in parts)

    async def run(self):
        await self.c.start()
        while True:
            for messages in (await self.c.getmany(timeout_ms=100)).values():
                for m in messages:
                    self.consumed.setdefault(str(m.partition), []).append(m.offset)

    async def status(self):
        if self.task.done():
            self.task.result()
        return {"assigned": sorted(self.assigned), "consumed": {p: list(o) for p, o in self.consumed.items()}}

    async def leave(self):
        self.task.cancel()
        await self.c.stop()


def join(q):
    global member
    if q["protocol"] == "consumer":
        raise Gap("it has the classic protocol only")
    member = Member()
    wait(member.start(q))


def status(q):
    return wait(member.status())


def leave(q):
    wait(member.leave())


serve({f.__name__: f for f in (hello, create, describe, produce, read, offset, configs, alter, grow, trim, delete, commit,
                               committed, groups, join, status, leave)}, code)
