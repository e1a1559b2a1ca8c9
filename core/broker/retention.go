package broker

import "lockstep/core/config"

// retain asks every log whose topic deletes old records to do so, up to what its replica allows (rule 19), and
// comes again after log.retention.check.interval.ms.
func (b *Broker) retain() {
	b.retention = b.timers.set(b.now.Add(b.settings.RetentionCheckInterval), b.retain)
	for st := range b.image.AllPartitions() {
		p := b.local(st.Partition)
		if p != nil && !p.replica.Rebuilding() && p.config.Delete && (p.config.RetentionBytes >= 0 || p.config.Retention != config.Forever) {
			b.saveProducers(p)
			b.out.Add(Retain{Log: p.id, Limit: p.replica.RetainLimit(), Wall: b.wall})
		}
	}
}
