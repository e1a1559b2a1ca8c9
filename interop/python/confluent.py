"""Drives confluent-kafka, which is librdkafka, for the matrix."""

import sys
import threading
import time

import confluent_kafka as ck
from confluent_kafka import admin as cka

from base import Failed, headers_of, record, serve, to_bytes

bootstrap = {"bootstrap.servers": sys.argv[1], "log_level": 0}
admin = cka.AdminClient(bootstrap)
member = None


def code(error):
    err = error.args[0] if error.args and isinstance(error.args[0], ck.KafkaError) else None
    if err is None:
        return -1
    # Codes below zero are librdkafka's own; some of them stand for one of Kafka's.
    local = {ck.KafkaError._UNKNOWN_TOPIC: 3, ck.KafkaError._UNKNOWN_PARTITION: 3}
    if err.code() == ck.KafkaError._AUTO_OFFSET_RESET and "out of range" in str(err):
        return 1
    return local.get(err.code(), err.code() if err.code() > 0 else -1)


def hello(q):
    return {"client": "confluent-kafka %s (librdkafka %s)" % (ck.version()[0] if isinstance(ck.version(), tuple) else ck.version(),
                                                            ck.libversion()[0])}


def one(futures):
    return list(futures.values())[0].result(40)


def create(q):
    one(admin.create_topics([cka.NewTopic(q["topic"], q["partitions"], -1, config=q.get("config") or {})]))


def describe(q):
    t = admin.list_topics(q["topic"], 20).topics[q["topic"]]
    if t.error:
        raise ck.KafkaException(t.error)
    return {"partitions": len(t.partitions)}


def produce(q):
    offsets = [None] * len(q["records"])
    failed = []
    p = ck.Producer(dict(bootstrap, **{
        "compression.type": q["codec"], "enable.idempotence": bool(q.get("idempotent")), "linger.ms": 20,
        "message.max.bytes": 4000000, "message.timeout.ms": 30000, "acks": "all"}))
    for i, r in enumerate(q["records"]):
        def done(err, msg, i=i):
            failed.append(err) if err else offsets.__setitem__(i, msg.offset())
        p.produce(q["topic"], partition=r["partition"], key=to_bytes(r["key"]), value=to_bytes(r["value"]),
                  headers=headers_of(r), timestamp=r["timestamp"], on_delivery=done)
        if q.get("pause"):
            p.flush(40)
            time.sleep(q["pause"] / 1000)
    p.flush(40)
    if failed:
        raise ck.KafkaException(failed[0])
    return {"offsets": offsets}


def read(q):
    c = ck.Consumer(dict(bootstrap, **{"group.id": "unused", "auto.offset.reset": "error", "enable.auto.commit": False,
                                       "check.crcs": True}))
    c.assign([ck.TopicPartition(q["topic"], q["partition"], q["offset"])])
    records, until = [], time.time() + 40
    try:
        while len(records) < q["count"] and time.time() < until:
            m = c.poll(1)
            if m is None:
                continue
            if m.error():
                raise ck.KafkaException(m.error())
            records.append(record(m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers()))
    finally:
        c.close()
    return {"records": records}


def offset(q):
    tp = ck.TopicPartition(q["topic"], q["partition"])
    spec = {-1: cka.OffsetSpec.latest, -2: cka.OffsetSpec.earliest}.get(q["time"])
    spec = spec() if spec else cka.OffsetSpec.for_timestamp(q["time"])
    return {"offset": one(admin.list_offsets({tp: spec})).offset}


def resource(q, **kw):
    return cka.ConfigResource(cka.ConfigResource.Type.TOPIC, q["topic"], **kw)


def configs(q):
    return {"config": {k: v.value for k, v in one(admin.describe_configs([resource(q)])).items()}}


def alter(q):
    entries = [cka.ConfigEntry(k, v, incremental_operation=cka.AlterConfigOpType.SET) for k, v in q["config"].items()]
    one(admin.incremental_alter_configs([resource(q, incremental_configs=entries)]))


def grow(q):
    one(admin.create_partitions([cka.NewPartitions(q["topic"], q["partitions"])]))


def trim(q):
    return {"offset": one(admin.delete_records([ck.TopicPartition(q["topic"], q["partition"], q["offset"])])).low_watermark}


def delete(q):
    one(admin.delete_topics([q["topic"]]))


def commit(q):
    tp = ck.TopicPartition(q["topic"], q["partition"], q["offset"], metadata=q["metadata"])
    c = ck.Consumer(dict(bootstrap, **{"group.id": q["group"], "enable.auto.commit": False}))
    try:
        for p in c.commit(offsets=[tp], asynchronous=False):
            if p.error:
                raise ck.KafkaException(p.error)
    finally:
        c.close()


def committed(q):
    c = ck.Consumer(dict(bootstrap, **{"group.id": q["group"], "enable.auto.commit": False}))
    try:
        tp = c.committed([ck.TopicPartition(q["topic"], q["partition"])], 20)[0]
        if tp.error:
            raise ck.KafkaException(tp.error)
        return {"offset": tp.offset if tp.offset >= 0 else -1, "metadata": tp.metadata or ""}
    finally:
        c.close()


def groups(q):
    d = one(admin.describe_consumer_groups([q["group"]]))
    return {"state": d.state.name, "members": len(d.members)}


class Member(threading.Thread):
    """A member of a group that reads, and commits every 200 ms, until it is told to leave."""

    def __init__(self, q):
        super().__init__(daemon=True)
        self.lock, self.leaving, self.assigned, self.consumed = threading.Lock(), False, set(), {}
        conf = {"group.id": q["group"], "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
        if q["protocol"] == "consumer":
            conf["group.protocol"] = "consumer"
        else:
            conf.update({"session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
        self.c = ck.Consumer(dict(bootstrap, **conf))
        self.c.subscribe([q["topic"]], on_assign=self.change(set.update), on_revoke=self.change(set.difference_update),
                         on_lost=self.change(set.difference_update))

    def change(self, how):
        def called(_, parts):
            with self.lock:
                how(self.assigned, [p.partition for p in parts])
        return called

    def run(self):
        while not self.leaving:
            m = self.c.poll(0.1)
            if m is not None and not m.error():
                with self.lock:
                    self.consumed.setdefault(m.partition(), []).append(m.offset())
        self.c.close()


def join(q):
    global member
    member = Member(q)
    member.start()


def status(q):
    with member.lock:
        return {"assigned": sorted(member.assigned), "consumed": {str(p): o for p, o in member.consumed.items()}}


def leave(q):
    member.leaving = True
    member.join(30)


serve({f.__name__: f for f in (hello, create, describe, produce, read, offset, configs, alter, grow, trim, delete, commit,
                               committed, groups, join, status, leave)}, code)
