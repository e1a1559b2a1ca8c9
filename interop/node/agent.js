'use strict';
// What the matrix says to kafkajs: the lines of agent/agent.go over standard input and output.

const path = require('path');
const readline = require('readline');
// The modules are in the cache, not beside this file.
const need = (name) => require(path.join(process.argv[3], 'node_modules', name));
const kafkajs = need('kafkajs');
const { Kafka, CompressionTypes, CompressionCodecs, logLevel, ConfigResourceTypes } = kafkajs;

const kafka = new Kafka({ brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, retry: { retries: 4, initialRetryTime: 100 } });
const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'));

class Gap extends Error {}

async function codecs() {
  CompressionCodecs[CompressionTypes.Snappy] = need('kafkajs-snappy');
  const lz4 = need('lz4-napi');
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: async (buffer) => lz4.decompressFrame(buffer),
  });
  const zstd = need('@bokuweb/zstd-wasm');
  await zstd.init();
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  });
}

const types = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' };

async function withAdmin(run) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await run(admin);
  } finally {
    await admin.disconnect();
  }
}

// kafkajs has a map of headers, with a list where a key repeats.
function headersIn(list) {
  const headers = {};
  for (const h of list || []) {
    const v = bytes(h.value);
    if (h.key in headers) headers[h.key] = [].concat(headers[h.key], [v]);
    else headers[h.key] = v;
  }
  return headers;
}

function headersOut(headers) {
  const list = [];
  for (const [key, value] of Object.entries(headers || {})) {
    for (const v of Array.isArray(value) ? value : [value]) list.push({ key, value: text(v) });
  }
  return list;
}

const record = (partition, m) => ({
  partition, offset: Number(m.offset), timestamp: Number(m.timestamp), key: text(m.key), value: text(m.value), headers: headersOut(m.headers),
});

const handlers = {
  hello: () => ({ client: 'kafkajs ' + need('kafkajs/package.json').version }),

  create: (q) => withAdmin(async (a) => {
    const configEntries = Object.entries(q.config || {}).map(([name, value]) => ({ name, value }));
    await a.createTopics({ topics: [{ topic: q.topic, numPartitions: q.partitions, replicationFactor: -1, configEntries }] }).then((made) => {
      if (!made) throw Object.assign(new Error('the topic exists'), { code: 36 });
    });
  }),

  describe: (q) => withAdmin(async (a) => {
    const { topics } = await a.fetchTopicMetadata({ topics: [q.topic] });
    return { partitions: topics[0].partitions.length };
  }),

  produce: async (q) => {
    const producer = kafka.producer({ idempotent: !!q.idempotent, retry: q.pause ? { retries: 30, maxRetryTime: 1000 } : q.idempotent ? undefined : { retries: 2 }, allowAutoTopicCreation: false });
    await producer.connect();
    try {
      const messages = (q.records || []).map((r) => ({
        partition: r.partition, key: bytes(r.key), value: bytes(r.value), headers: headersIn(r.headers),
        timestamp: r.timestamp ? String(r.timestamp) : undefined,
      }));
      if (q.pause) {
        const offsets = [];
        for (const m of messages) {
          const [d] = await producer.send({ topic: q.topic, acks: -1, messages: [m] });
          offsets.push(Number(d.baseOffset));
          await new Promise((resolve) => setTimeout(resolve, q.pause));
        }
        return { offsets };
      }
      const done = await producer.send({ topic: q.topic, acks: -1, compression: CompressionTypes[types[q.codec]], messages });
      const next = {};
      for (const d of done) next[d.partition] = Number(d.baseOffset);
      return { offsets: messages.map((m) => next[m.partition]++) };
    } finally {
      await producer.disconnect();
    }
  },

  // kafkajs reads in groups only; a Fetch without one goes through its consumer with a group of its own.
  offset: (q) => withAdmin(async (a) => {
    const pick = (list, field) => ({ offset: Number(list.find((p) => p.partition === q.partition)[field]) });
    if (q.time === -1) return pick(await a.fetchTopicOffsets(q.topic), 'high');
    if (q.time === -2) return pick(await a.fetchTopicOffsets(q.topic), 'low');
    return pick(await a.fetchTopicOffsetsByTimestamp(q.topic, q.time), 'offset');
  }),

  read: async (q) => {
    const consumer = kafka.consumer({ groupId: 'read-' + q.topic + '-' + process.pid + '-' + Date.now() });
    const records = [];
    try {
      await consumer.connect();
      await consumer.subscribe({ topic: q.topic, fromBeginning: true });
      let failed;
      const all = new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error('nothing came for 30 s')), 30000);
        consumer.on(consumer.events.CRASH, (e) => { clearTimeout(timer); reject(e.payload.error); });
        failed = () => { clearTimeout(timer); resolve(); };
      });
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (partition !== q.partition || Number(message.offset) < q.offset || records.length >= q.count) return;
          records.push(record(partition, message));
          if (records.length >= q.count) failed();
        },
      });
      consumer.seek({ topic: q.topic, partition: q.partition, offset: String(q.offset) });
      await all;
    } finally {
      await consumer.disconnect();
    }
    return { records };
  },

  configs: (q) => withAdmin(async (a) => {
    const r = await a.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: q.topic }] });
    const config = {};
    for (const e of r.resources[0].configEntries) config[e.configName] = e.configValue;
    return { config };
  }),

  alter: (q) => withAdmin(async (a) => {
    const configEntries = Object.entries(q.config).map(([name, value]) => ({ name, value }));
    await a.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: q.topic, configEntries }] });
  }),

  grow: (q) => withAdmin((a) => a.createPartitions({ topicPartitions: [{ topic: q.topic, count: q.partitions }] }).then(() => undefined)),

  trim: (q) => withAdmin(async (a) => {
    await a.fetchTopicOffsets(q.topic); // which loads the metadata that the next call wants loaded
    await a.deleteTopicRecords({ topic: q.topic, partitions: [{ partition: q.partition, offset: String(q.offset) }] });
    return handlers.offset({ topic: q.topic, partition: q.partition, time: -2 });
  }),

  delete: (q) => withAdmin((a) => a.deleteTopics({ topics: [q.topic] })),

  commit: (q) => withAdmin((a) => a.setOffsets({
    groupId: q.group, topic: q.topic, partitions: [{ partition: q.partition, offset: String(q.offset), metadata: q.metadata }],
  })),

  committed: (q) => withAdmin(async (a) => {
    const [t] = await a.fetchOffsets({ groupId: q.group, topics: [q.topic] });
    const p = t.partitions.find((x) => x.partition === q.partition);
    return { offset: Number(p.offset), metadata: p.metadata || '' };
  }),

  groups: (q) => withAdmin(async (a) => {
    const { groups } = await a.describeGroups([q.group]);
    return { state: groups[0].state, members: groups[0].members.length };
  }),

  join: async (q) => {
    if (q.protocol === 'consumer') throw new Gap('it has the classic protocol only');
    const m = { assigned: [], consumed: {} };
    m.consumer = kafka.consumer({ groupId: q.group, sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10000 });
    m.consumer.on(m.consumer.events.GROUP_JOIN, (e) => { m.assigned = e.payload.memberAssignment[q.topic] || []; });
    m.consumer.on(m.consumer.events.REBALANCING, () => { m.assigned = []; });
    await m.consumer.connect();
    await m.consumer.subscribe({ topic: q.topic, fromBeginning: true });
    m.consumer.run({
      autoCommitInterval: 200,
      eachMessage: async ({ partition, message }) => { (m.consumed[partition] ||= []).push(Number(message.offset)); },
    });
    handlers.member = m;
  },
  status: () => ({ assigned: [...handlers.member.assigned].sort((a, b) => a - b), consumed: handlers.member.consumed }),
  leave: () => handlers.member.consumer.disconnect(),
};

// codeOf finds Kafka's error code; kafkajs wraps errors in each other.
function codeOf(error) {
  for (let e = error; e; e = e.cause || e.originalError || (e.errors && e.errors[0])) {
    if (Number.isInteger(e.code)) return e.code;
  }
  return -1;
}

async function main() {
  await codecs();
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const q = JSON.parse(line);
    let answer;
    try {
      if (!Object.hasOwn(handlers, q.op)) throw new Gap('its library has no call for this');
      answer = (await handlers[q.op](q)) || {};
      if (answer === true) answer = {};
    } catch (error) {
      answer = error instanceof Gap ? { gap: error.message } : { error: { code: codeOf(error), text: `${error.name}: ${error.message}` } };
    }
    process.stdout.write(JSON.stringify(answer) + '\n');
  }
  process.exit(0);
}

main();
