package broker

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// coveredTag is the tagged field by which a leader tells a follower, in a partition of its answer to a Fetch, what every replica
// has (Replica.Covered). It is far from those that Kafka gives out; brokers that do not know it pass over it.
const coveredTag = 10_000

func setCovered(r *kmsg.FetchResponseTopicPartition, covered int64) {
	r.UnknownTags.Set(coveredTag, binary.BigEndian.AppendUint64(nil, uint64(covered)))
}

// coveredOf returns what a leader says, 0 if it does not.
func coveredOf(r *kmsg.FetchResponseTopicPartition) (covered int64) {
	if r.UnknownTags.Len() == 0 {
		return 0
	}
	r.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag == coveredTag && len(b) == 8 {
			covered = max(0, int64(binary.BigEndian.Uint64(b)))
		}
	})
	return covered
}

// compactAll asks every log whose topic is compacted to do so, if it is time for it, and comes again after log.cleaner.backoff.ms.
func (b *Broker) compactAll() {
	b.compaction = b.timers.set(b.now.Add(b.settings.CleanerBackoff), b.compactAll)
	for st := range b.image.AllPartitions() {
		if p := b.local(st.Partition); p != nil {
			b.compact(p)
		}
	}
}

// compact asks one log, unless it is still at it.
func (b *Broker) compact(p *partition) {
	if !b.settings.CleanerEnable || !p.config.Compact || p.compacting {
		return
	}
	limit, producers, ok := p.replica.CompactLimit() // rule 19
	if !ok {
		return
	}
	p.compacting = true
	b.out.Add(Compact{
		Log: p.id, Limit: limit, Covered: p.replica.Covered(), Wall: b.wall, Producers: producers,
		Buffer: b.settings.CleanerBufferBytes / int64(b.settings.CleanerThreads), BytesPerSecond: b.settings.CleanerBytesPerSecond,
	})
}

func (b *Broker) onCompacted(in Compacted) {
	p := b.local(in.Log)
	if p == nil || !p.compacting {
		return
	}
	p.compacting = false
	if in.Err != nil {
		b.log(Warn, "compaction failed; it is tried again", "topic", p.topic, "partition", p.id.Index, "error", in.Err)
		return
	}
	if in.Due {
		b.log(Debug, "compacted", "topic", p.topic, "partition", p.id.Index, "from", in.From, "to", in.To, "keys", in.Keys,
			"bytes_before", in.Before, "bytes_after", in.After)
	}
	if in.More {
		b.compact(p)
	}
}
