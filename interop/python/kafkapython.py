"""Drives kafka-python for the matrix."""

import sys
import threading
import time

import kafka
from kafka import admin as ka
from kafka.errors import KafkaError

from base import Gap, headers_of, record, serve, to_bytes

bootstrap = {"bootstrap_servers": sys.argv[1].split(",")}
admin = None
member = None


def code(error):
    return getattr(error, "errno", -1) if isinstance(error, KafkaError) and isinstance(getattr(error, "errno", None), int) else -1


def adm():
    global admin
    admin = admin or kafka.KafkaAdminClient(**bootstrap)
    return admin


def hello(q):
    return {"client": "kafka-python " + kafka.__version__}


def create(q):
    adm().create_topics([ka.NewTopic(q["topic"], q["partitions"], -1, topic_configs=q.get("config") or {})])


def describe(q):
    t = adm().describe_topics([q["topic"]])[0]
    if t.get("error_code"):
        raise kafka.errors.for_code(t["error_code"])()
    return {"partitions": len(t["partitions"])}


def produce(q):
    p = kafka.KafkaProducer(**bootstrap, compression_type=None if q["codec"] == "none" else q["codec"], linger_ms=20,
                            enable_idempotence=bool(q.get("idempotent")), acks="all", max_request_size=4000000, max_block_ms=20000)
    try:
        sent = []
        for r in q["records"]:
            sent.append(p.send(q["topic"], partition=r["partition"], key=to_bytes(r["key"]), value=to_bytes(r["value"]),
                               headers=headers_of(r), timestamp_ms=r["timestamp"] or None))
            if q.get("pause"):
                sent[-1].get(40)
                time.sleep(q["pause"] / 1000)
        p.flush(30)
        return {"offsets": [f.get(30).offset for f in sent]}
    finally:
        p.close(5)


def consumer(**more):
    return kafka.KafkaConsumer(**bootstrap, enable_auto_commit=False, **more)


def read(q):
    c = consumer(auto_offset_reset="none")
    tp = kafka.TopicPartition(q["topic"], q["partition"])
    c.assign([tp])
    c.seek(tp, q["offset"])
    records, until = [], time.time() + 40
    try:
        while len(records) < q["count"] and time.time() < until:
            for m in c.poll(1000).get(tp, []):
                records.append(record(m.partition, m.offset, m.timestamp, m.key, m.value, m.headers))
    finally:
        c.close()
    return {"records": records}


def offset(q):
    tp = kafka.TopicPartition(q["topic"], q["partition"])
    c = consumer()
    try:
        if q["time"] == -1:
            return {"offset": c.end_offsets([tp])[tp]}
        if q["time"] == -2:
            return {"offset": c.beginning_offsets([tp])[tp]}
        found = c.offsets_for_times({tp: q["time"]})[tp]
        return {"offset": -1 if found is None else found.offset}
    finally:
        c.close()


def resource(q, values=None):
    return ka.ConfigResource(ka.ConfigResourceType.TOPIC, q["topic"], values)


def configs(q):
    found = adm().describe_configs([resource(q)], config_filter="all")
    while q["topic"] not in found:  # by kind of resource, then by name
        found = list(found.values())[0]
    return {"config": {k: v["value"] for k, v in found[q["topic"]].items()}}


def alter(q):
    adm().alter_configs([resource(q, q["config"])])


def grow(q):
    adm().create_partitions({q["topic"]: ka.NewPartitions(q["partitions"])})


def trim(q):
    tp = kafka.TopicPartition(q["topic"], q["partition"])
    return {"offset": adm().delete_records({tp: q["offset"]})[tp]["low_watermark"]}


def delete(q):
    adm().delete_topics([q["topic"]])


def commit(q):
    c = consumer(group_id=q["group"])
    try:
        tp = kafka.TopicPartition(q["topic"], q["partition"])
        c.assign([tp])
        c.commit({tp: kafka.structs.OffsetAndMetadata(q["offset"], q["metadata"], -1)})
    finally:
        c.close()


def committed(q):
    c = consumer(group_id=q["group"])
    try:
        found = c.committed(kafka.TopicPartition(q["topic"], q["partition"]), metadata=True)
        return {"offset": -1 if found is None else found.offset, "metadata": "" if found is None else found.metadata}
    finally:
        c.close()


def groups(q):
    d = adm().describe_groups([q["group"]])
    d = d[q["group"]] if isinstance(d, dict) else d[0]
    return {"state": d["group_state"], "members": len(d["members"])}


class Member(threading.Thread, kafka.ConsumerRebalanceListener):
    """A member of a group that reads, and commits every 200 ms, until it is told to leave."""

    def __init__(self, q):
        super().__init__(daemon=True)
        self.lock, self.leaving, self.assigned, self.consumed, self.failure = threading.Lock(), False, set(), {}, None
        self.c = kafka.KafkaConsumer(**bootstrap, group_id=q["group"], auto_offset_reset="earliest", auto_commit_interval_ms=200,
                                     session_timeout_ms=6000, heartbeat_interval_ms=500)
        self.topic = q["topic"]
        self.c.subscribe([self.topic], listener=self)

    def on_partitions_assigned(self, parts):
        with self.lock:
            self.assigned.update(p.partition for p in parts)

    def on_partitions_revoked(self, parts):
        with self.lock:
            self.assigned.difference_update(p.partition for p in parts)

    def run(self):
        try:
            # A leader that joins before it knows the topic joins again as soon as it does. When a poll's time is up inside that
            # second join, version 3.0.12 never looks at its answer: need_rejoin() is false once partitions are shared out, and
            # its heartbeats stay off until its session ends, with any broker. Knowing the topic first avoids the second join.
            self.c.partitions_for_topic(self.topic)
            while not self.leaving:
                for messages in self.c.poll(100).values():
                    with self.lock:
                        for m in messages:
                            self.consumed.setdefault(m.partition, []).append(m.offset)
            self.c.close()
        except Exception as error:
            self.failure = error
            raise


def join(q):
    global member
    if q["protocol"] == "consumer":
        raise Gap("it has the classic protocol only")
    member = Member(q)
    member.start()


def status(q):
    if member.failure:
        raise member.failure
    with member.lock:
        return {"assigned": sorted(member.assigned), "consumed": {str(p): o for p, o in member.consumed.items()}}


def leave(q):
    member.leaving = True
    member.join(30)


serve({f.__name__: f for f in (hello, create, describe, produce, read, offset, configs, alter, grow, trim, delete, commit,
                               committed, groups, join, status, leave)}, code)
