package broker

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
